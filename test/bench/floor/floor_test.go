package floor

import (
	"bytes"
	"slices"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

func TestRequestType(t *testing.T) {
	t.Parallel()
	names := []string{"one", "two", "three"}
	sotw, _ := proto.Marshal(&discoveryv3.DiscoveryRequest{VersionInfo: "1", ResourceNames: names, TypeUrl: "type", ResponseNonce: "2"})
	delta, _ := proto.Marshal(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "type", ResourceNamesSubscribe: names, ResponseNonce: "2"})
	for size := 1; size < 20; size++ {
		for i, b := range [][]byte{sotw, delta} {
			var data mem.BufferSlice
			for c := range slices.Chunk(b, size) {
				data = append(data, mem.SliceBuffer(c))
			}
			q := request{delta: i == 1}
			if err := q.read(data); err != nil || q.typeURL != "type" {
				t.Errorf("delta %v, buffers of %d: %q, %v", q.delta, size, q.typeURL, err)
			}
		}
	}
	q := request{}
	if err := q.read(mem.BufferSlice{mem.SliceBuffer(sotw[:len(sotw)-2])}); err == nil {
		t.Error("a request that is cut off was read")
	}
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte("\x22\x04type"), false)
	f.Fuzz(func(_ *testing.T, b []byte, delta bool) {
		q := request{delta: delta}
		_ = q.read(mem.BufferSlice{mem.SliceBuffer(b)})
	})
}

func TestMessageIsAResponse(t *testing.T) {
	t.Parallel()
	body, _ := proto.Marshal(&discoveryv3.DiscoveryResponse{Resources: []*anypb.Any{{TypeUrl: "a"}, {TypeUrl: "b"}}})
	s := New(Material{Bodies: map[string][]byte{clusterURL: body}})
	m := s.message(clusterURL, First(body, 1), "marker")
	var r discoveryv3.DiscoveryResponse
	if err := proto.Unmarshal(m.parts.Materialize(), &r); err != nil {
		t.Fatal(err)
	}
	if r.TypeUrl != clusterURL || r.Nonce == "" || r.VersionInfo == "" || len(r.Resources) != 1 || r.Resources[0].TypeUrl != "a" {
		t.Errorf("response %v", &r)
	}
	if !bytes.Contains(m.parts.Materialize(), []byte("marker")) {
		t.Error("the marker is missing")
	}
}

func TestFirst(t *testing.T) {
	t.Parallel()
	body, _ := proto.Marshal(&discoveryv3.DiscoveryResponse{Resources: []*anypb.Any{{TypeUrl: "a"}, {TypeUrl: "bb"}}})
	for n, want := range []int{0, 5, len(body), len(body)} {
		if got := len(First(body, n)); got != want {
			t.Errorf("first %d: %d bytes, want %d", n, got, want)
		}
	}
	if got := First([]byte{0xff}, 1); len(got) != 0 {
		t.Errorf("of rubbish: %x", got)
	}
}
