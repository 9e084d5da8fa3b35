package wire_test

import (
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/isthmus-mesh/isthmus/xds/wire"
)

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func list(l *wire.List) (out []string) {
	for b := range l.All() {
		out = append(out, string(b))
	}
	return out
}

func TestReadsWhatProtobufWrites(t *testing.T) {
	t.Parallel()
	node := &corev3.Node{Id: "n", Cluster: "c"}
	fault := &statuspb.Status{Code: 13, Message: "no"}
	sotw := &discoveryv3.DiscoveryRequest{
		VersionInfo: "7", Node: node, ResourceNames: []string{"a", "", "b"}, TypeUrl: "t", ResponseNonce: "4", ErrorDetail: fault,
	}
	r := wire.Request{Protocol: wire.SotW}
	if err := r.Unmarshal(marshal(t, sotw)); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(sotw, sotwOf(t, &r, "7"), protocmp.Transform()); d != "" {
		t.Error(d)
	}
	delta := &discoveryv3.DeltaDiscoveryRequest{
		Node: node, TypeUrl: "t", ResourceNamesSubscribe: []string{"a", "b"}, ResourceNamesUnsubscribe: []string{"c"},
		InitialResourceVersions: map[string]string{"x": "1", "y": "2"}, ResponseNonce: "4", ErrorDetail: fault,
	}
	r = wire.Request{Protocol: wire.Delta}
	if err := r.Unmarshal(marshal(t, delta)); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(delta, deltaOf(t, &r), protocmp.Transform()); d != "" {
		t.Error(d)
	}
}

func nodeOf(t testing.TB, r *wire.Request) *corev3.Node {
	if r.Node == nil {
		return nil
	}
	n := &corev3.Node{}
	if err := proto.Unmarshal(r.Node, n); err != nil {
		t.Fatal(err)
	}
	return n
}

func faultOf(r *wire.Request) *statuspb.Status {
	if r.Fault == nil {
		return nil
	}
	return &statuspb.Status{Code: r.Fault.Code, Message: r.Fault.Message}
}

func sotwOf(t testing.TB, r *wire.Request, version string) *discoveryv3.DiscoveryRequest {
	return &discoveryv3.DiscoveryRequest{
		VersionInfo: version, Node: nodeOf(t, r), ResourceNames: list(&r.Names), TypeUrl: r.TypeURL, ResponseNonce: r.Nonce, ErrorDetail: faultOf(r),
	}
}

func deltaOf(t testing.TB, r *wire.Request) *discoveryv3.DeltaDiscoveryRequest {
	m := &discoveryv3.DeltaDiscoveryRequest{
		Node: nodeOf(t, r), TypeUrl: r.TypeURL, ResponseNonce: r.Nonce, ErrorDetail: faultOf(r),
		ResourceNamesSubscribe: list(&r.Subscribe), ResourceNamesUnsubscribe: list(&r.Unsubscribe),
	}
	for n, v := range r.Versions() {
		if m.InitialResourceVersions == nil {
			m.InitialResourceVersions = map[string]string{}
		}
		m.InitialResourceVersions[string(n)] = string(v)
	}
	return m
}

func TestListsApart(t *testing.T) {
	t.Parallel()
	// Names before and after another field are one list; equal lists have equal hashes.
	var b []byte
	b = protowire.AppendTag(b, 3, protowire.BytesType)
	b = protowire.AppendString(b, "a")
	b = protowire.AppendTag(b, 4, protowire.BytesType)
	b = protowire.AppendString(b, "type")
	b = protowire.AppendTag(b, 3, protowire.BytesType)
	b = protowire.AppendString(b, "b")
	r := wire.Request{Protocol: wire.SotW}
	if err := r.Unmarshal(b); err != nil {
		t.Fatal(err)
	}
	if got := list(&r.Names); !slices.Equal(got, []string{"a", "b"}) || r.Names.Count != 2 {
		t.Fatal(got)
	}
	seed := maphash.MakeSeed()
	same := wire.Request{Protocol: wire.SotW}
	if err := same.Unmarshal(marshal(t, &discoveryv3.DiscoveryRequest{ResourceNames: []string{"a", "b"}})); err != nil {
		t.Fatal(err)
	}
	if r.Names.Hash(seed) != same.Names.Hash(seed) {
		t.Error("equal lists differ")
	}
	other := wire.Request{Protocol: wire.SotW}
	if err := other.Unmarshal(marshal(t, &discoveryv3.DiscoveryRequest{ResourceNames: []string{"ab"}})); err != nil {
		t.Fatal(err)
	}
	if r.Names.Hash(seed) == other.Names.Hash(seed) {
		t.Error("different lists are equal")
	}
}

func TestRefusesMalformed(t *testing.T) {
	t.Parallel()
	text := protowire.AppendTag(nil, 3, protowire.BytesType)
	text = protowire.AppendBytes(text, []byte{0xff})
	kind := protowire.AppendTag(nil, 4, protowire.VarintType)
	kind = protowire.AppendVarint(kind, 1)
	entry := protowire.AppendTag(nil, 5, protowire.BytesType)
	entry = protowire.AppendBytes(entry, []byte{0x0a, 0x05, 'x'})
	for name, b := range map[string][]byte{"utf-8": text, "wire type": kind, "cut": {0x1a, 0x05, 'x'}, "tag": {0xff}} {
		if err := (&wire.Request{Protocol: wire.SotW}).Unmarshal(b); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := (&wire.Request{Protocol: wire.Delta}).Unmarshal(entry); err == nil {
		t.Error("map entry: accepted")
	}
}

func TestResponses(t *testing.T) {
	t.Parallel()
	c := &clusterv3.Cluster{Name: "c"}
	body, err := anypb.New(c)
	if err != nil {
		t.Fatal(err)
	}
	res := wire.NewResource(body.TypeUrl, "c", body.Value)
	head := wire.Head{Protocol: wire.Delta, Version: "3", TypeURL: body.TypeUrl, Nonce: "9", Removed: []string{"x", "y"}}
	msg := wire.NewResponse(head)
	msg.Add(wire.Delta, res)
	got := &discoveryv3.DeltaDiscoveryResponse{}
	if err := proto.Unmarshal(msg.Bytes(), got); err != nil {
		t.Fatal(err)
	}
	want := &discoveryv3.DeltaDiscoveryResponse{
		SystemVersionInfo: "3", TypeUrl: body.TypeUrl, Nonce: "9", RemovedResources: []string{"x", "y"},
		Resources: []*discoveryv3.Resource{{Name: "c", Version: res.Version, Resource: body}},
	}
	if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
		t.Error(d)
	}
	if msg.Size() != len(msg.Bytes()) {
		t.Errorf("size %d, but %d bytes", msg.Size(), len(msg.Bytes()))
	}
	whole := wire.NewResponse(wire.Head{Protocol: wire.SotW, Version: "3", TypeURL: body.TypeUrl, Nonce: "9"})
	whole.Add(wire.SotW, res)
	whole.Add(wire.SotW, res)
	sotw := &discoveryv3.DiscoveryResponse{}
	if err := proto.Unmarshal(whole.Bytes(), sotw); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(&discoveryv3.DiscoveryResponse{
		VersionInfo: "3", TypeUrl: body.TypeUrl, Nonce: "9", Resources: []*anypb.Any{body, body},
	}, sotw, protocmp.Transform()); d != "" {
		t.Error(d)
	}
}

func TestVersionIsOfTheContent(t *testing.T) {
	t.Parallel()
	a, b := wire.NewResource("t", "a", []byte("body")), wire.NewResource("t", "b", []byte("body"))
	if a.Version != b.Version || a.Sum != b.Sum || a.Version == wire.NewResource("t", "a", []byte("other")).Version {
		t.Error(a.Version, b.Version)
	}
	if string(a.Body()) != "body" {
		t.Error(a.Body())
	}
}

func TestCodec(t *testing.T) {
	t.Parallel()
	c := wire.NewCodec()
	n := &corev3.Node{Id: "x"}
	b, err := c.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	back := &corev3.Node{}
	if err := c.Unmarshal(b, back); err != nil || !proto.Equal(n, back) {
		t.Fatal(back, err)
	}
	r := &wire.Request{Protocol: wire.Delta}
	raw := marshal(t, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: "t"})
	if err := c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(raw)}, r); err != nil || r.TypeURL != "t" {
		t.Fatal(r, err)
	}
	if err := c.Unmarshal(mem.BufferSlice{mem.SliceBuffer{0xff}}, r); err == nil || !strings.Contains(err.Error(), "discovery request") {
		t.Fatal(err)
	}
	out, err := c.Marshal(wire.NewResponse(wire.Head{TypeURL: "t", Nonce: "1"}))
	if err != nil || out.Len() == 0 {
		t.Fatal(out, err)
	}
}

// FuzzRequest: whatever arrives, reading it never panics, and it agrees with protobuf.
func FuzzRequest(f *testing.F) {
	f.Add(false, marshal(f, &discoveryv3.DiscoveryRequest{TypeUrl: "t", ResourceNames: []string{"a", "b"}, ErrorDetail: &statuspb.Status{Code: 1, Message: "m"}}))
	f.Add(true, marshal(f, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: "t", ResourceNamesSubscribe: []string{"a"}, InitialResourceVersions: map[string]string{"a": "1"}}))
	f.Add(true, []byte{0x2a, 0x02, 0x0a, 0x00})
	f.Fuzz(func(t *testing.T, delta bool, b []byte) {
		r := wire.Request{Protocol: wire.SotW}
		if delta {
			r.Protocol = wire.Delta
		}
		if r.Unmarshal(b) != nil {
			return
		}
		for range r.Names.All() {
		}
		if !delta {
			var m discoveryv3.DiscoveryRequest
			if proto.Unmarshal(b, &m) == nil && (!slices.Equal(list(&r.Names), m.ResourceNames) || r.TypeURL != m.TypeUrl || r.Nonce != m.ResponseNonce) {
				t.Errorf("got %+v, want %v", r, &m)
			}
			return
		}
		var m discoveryv3.DeltaDiscoveryRequest
		if proto.Unmarshal(b, &m) != nil {
			return
		}
		versions := map[string]string{}
		for n, v := range r.Versions() {
			versions[string(n)] = string(v)
		}
		if !slices.Equal(list(&r.Subscribe), m.ResourceNamesSubscribe) || !slices.Equal(list(&r.Unsubscribe), m.ResourceNamesUnsubscribe) ||
			!maps.Equal(versions, m.InitialResourceVersions) || r.Nonce != m.ResponseNonce {
			t.Errorf("got %+v, want %v", r, &m)
		}
	})
}
