package fleet

import (
	"bytes"
	"slices"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func wrap(t testing.TB, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// pieces cuts b into buffers of n bytes.
func pieces(b []byte, n int) (out mem.BufferSlice) {
	for c := range slices.Chunk(b, n) {
		out = append(out, mem.SliceBuffer(c))
	}
	return out
}

func TestContainsAcrossBuffers(t *testing.T) {
	t.Parallel()
	text := []byte("an address 10.250.101.102 among others")
	for size := 1; size <= len(text); size++ {
		data := pieces(text, size)
		if !contains(data, []byte("10.250.101.102")) {
			t.Errorf("buffers of %d: not found", size)
		}
		if contains(data, []byte("10.250.101.103")) || contains(data, []byte("10.250.101.102 and")) {
			t.Errorf("buffers of %d: found what is not there", size)
		}
	}
}

func TestReadHead(t *testing.T) {
	t.Parallel()
	want := head{version: "v7", typeURL: ClusterURL, nonce: "n1"}
	sotw := marshal(t, &discoveryv3.DiscoveryResponse{
		VersionInfo: "v7", TypeUrl: ClusterURL, Nonce: "n1", Resources: []*anypb.Any{wrap(t, &clusterv3.Cluster{Name: "a"})},
	})
	delta := marshal(t, &discoveryv3.DeltaDiscoveryResponse{
		TypeUrl: ClusterURL, Nonce: "n1", Resources: []*discoveryv3.Resource{{Name: "a", Resource: wrap(t, &clusterv3.Cluster{Name: "a"})}},
	})
	for size := 1; size < 40; size++ {
		if got, err := readHead(pieces(sotw, size), false); err != nil || got != want {
			t.Errorf("sotw in buffers of %d: %+v, %v", size, got, err)
		}
		got, err := readHead(pieces(delta, size), true)
		if got.version = "v7"; err != nil || got != want {
			t.Errorf("delta in buffers of %d: %+v, %v", size, got, err)
		}
	}
	if _, err := readHead(pieces(sotw[:len(sotw)-3], 9), false); err == nil {
		t.Error("a response that is cut off was read")
	}
}

func FuzzReadHead(f *testing.F) {
	f.Add([]byte("\n\x02v7\"\x01t*\x01n"), 3, true)
	f.Fuzz(func(_ *testing.T, b []byte, size int, delta bool) {
		_, _ = readHead(pieces(b, max(1, size)), delta)
		_ = dependents(ClusterURL, b, delta)
	})
}

func TestDependents(t *testing.T) {
	t.Parallel()
	hcm := wrap(t, &hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: "80"}}})
	chain := &listenerv3.FilterChain{Filters: []*listenerv3.Filter{{ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: hcm}}}}
	eds := &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
	tests := map[string]struct {
		typeURL string
		in      []proto.Message
		want    []string
	}{
		"assignments of EDS clusters": {ClusterURL, []proto.Message{
			&clusterv3.Cluster{Name: "plain", ClusterDiscoveryType: eds},
			&clusterv3.Cluster{Name: "named", ClusterDiscoveryType: eds, EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{ServiceName: "other"}},
			&clusterv3.Cluster{Name: "dns", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STRICT_DNS}},
			&clusterv3.Cluster{Name: "static"},
		}, []string{"plain", "other"}},
		"tables of listeners": {ListenerURL, []proto.Message{
			&listenerv3.Listener{Name: "a", FilterChains: []*listenerv3.FilterChain{chain}},
			&listenerv3.Listener{Name: "b", DefaultFilterChain: chain},
			&listenerv3.Listener{Name: "c"},
		}, []string{"80", "80"}},
	}
	for name, c := range tests {
		sotw, delta := &discoveryv3.DiscoveryResponse{}, &discoveryv3.DeltaDiscoveryResponse{}
		for _, m := range c.in {
			sotw.Resources = append(sotw.Resources, wrap(t, m))
			delta.Resources = append(delta.Resources, &discoveryv3.Resource{Name: "x", Resource: wrap(t, m)})
		}
		if got := dependents(c.typeURL, marshal(t, sotw), false); !slices.Equal(got, c.want) {
			t.Errorf("%s, sotw: %q, want %q", name, got, c.want)
		}
		if got := dependents(c.typeURL, marshal(t, delta), true); !slices.Equal(got, c.want) {
			t.Errorf("%s, delta: %q, want %q", name, got, c.want)
		}
	}
}

func TestRequestsAreReadByProtobuf(t *testing.T) {
	t.Parallel()
	node := marshal(t, &corev3.Node{Id: "x"})
	q := request{head: head{version: "v", typeURL: ClusterURL, nonce: "n"}, node: node, names: encodeNames([]string{"a", "b"})}

	var sotw discoveryv3.DiscoveryRequest
	if err := proto.Unmarshal(q.encode(false).data.Materialize(), &sotw); err != nil {
		t.Fatal(err)
	}
	if sotw.VersionInfo != "v" || sotw.TypeUrl != ClusterURL || sotw.ResponseNonce != "n" || sotw.Node.GetId() != "x" || !slices.Equal(sotw.ResourceNames, []string{"a", "b"}) {
		t.Errorf("sotw: %v", &sotw)
	}
	var delta discoveryv3.DeltaDiscoveryRequest
	if err := proto.Unmarshal(q.encode(true).data.Materialize(), &delta); err != nil {
		t.Fatal(err)
	}
	if delta.TypeUrl != ClusterURL || delta.ResponseNonce != "n" || delta.Node.GetId() != "x" || !slices.Equal(delta.ResourceNamesSubscribe, []string{"a", "b"}) {
		t.Errorf("delta: %v", &delta)
	}
}

func TestCatalogReadsOncePerClassAndVersion(t *testing.T) {
	t.Parallel()
	c, reads := newCatalog(), 0
	learn := func(class, version string, list ...string) *names {
		return c.learn(catalogKey{class, ClusterURL, version}, func() []string { reads++; return list })
	}
	a := learn("x", "1", "b", "a", "b")
	if b := learn("x", "1", "other"); b != a || reads != 1 {
		t.Errorf("read %d times", reads)
	}
	if !slices.Equal(a.list, []string{"a", "b"}) {
		t.Errorf("names %q", a.list)
	}
	if b := learn("x", "2", "a", "b"); b != a {
		t.Error("an equal list is another one")
	}
	if b := learn("x", "3", "a", "c"); b == a {
		t.Error("another list is the same")
	}
}

func TestResources(t *testing.T) {
	t.Parallel()
	r := &discoveryv3.DiscoveryResponse{VersionInfo: "v", TypeUrl: ClusterURL, Nonce: "n", Resources: []*anypb.Any{wrap(t, &clusterv3.Cluster{Name: "a"}), wrap(t, &clusterv3.Cluster{Name: "b"})}}
	got, err := Resources(marshal(t, r))
	if err != nil {
		t.Fatal(err)
	}
	if want := marshal(t, &discoveryv3.DiscoveryResponse{Resources: r.Resources}); !bytes.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
	if _, err := Resources([]byte{0x12, 0x7f}); err == nil {
		t.Error("a response that is cut off was taken")
	}
}
