package wire

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"runtime"
	"slices"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

func manyNames(prefix string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("%s-%d.ns.svc.cluster.local", prefix, i))
	}
	return out
}

// buffers cuts b into buffers of n bytes, as a transport does.
func buffers(b []byte, n int) (out mem.BufferSlice) {
	for c := range slices.Chunk(b, n) {
		out = append(out, mem.SliceBuffer(c))
	}
	return out
}

func sotwRequest(t testing.TB, url, nonce string, names []string) []byte {
	t.Helper()
	b, err := proto.Marshal(&discoveryv3.DiscoveryRequest{
		VersionInfo: "7", TypeUrl: url, ResponseNonce: nonce, ResourceNames: names, ErrorDetail: &statuspb.Status{Code: 13, Message: "no"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func namesOf(r *Request) (out []string) {
	for n := range r.Names.All() {
		out = append(out, string(n))
	}
	return out
}

func TestRepeatedNamesAreSharedAndRestIsRead(t *testing.T) {
	t.Parallel()
	lists := NewNameLists(maphash.MakeSeed())
	names := manyNames("a", 100)
	for size := 1; size < 3000; size = size*3 + 1 {
		x := lists.Stream()
		for i, nonce := range []string{"1", "2", "3"} {
			r := &Request{Protocol: SotW, Repeats: x}
			if err := r.Read(buffers(sotwRequest(t, "type", nonce, names), size)); err != nil {
				t.Fatal(err)
			}
			if r.Nonce != nonce || r.TypeURL != "type" || r.Fault == nil || r.Fault.Message != "no" || r.Names.Count != 100 || !slices.Equal(namesOf(r), names) {
				t.Errorf("buffers of %d, request %d: %+v", size, i, r)
			}
			if i > 0 && r.Names.shared == nil {
				t.Errorf("buffers of %d, request %d was parsed", size, i)
			}
		}
	}
}

func TestStreamsWithEqualListsShareOne(t *testing.T) {
	t.Parallel()
	lists := NewNameLists(maphash.MakeSeed())
	b := buffers(sotwRequest(t, "type", "1", manyNames("a", 100)), 1000)
	one, two := lists.Stream(), lists.Stream()
	for _, x := range []*Repeats{one, two} {
		if err := (&Request{Protocol: SotW, Repeats: x}).Read(b); err != nil {
			t.Fatal(err)
		}
	}
	if one.last["type"] == nil || one.last["type"] != two.last["type"] {
		t.Error("equal lists are kept twice")
	}
	one, two = nil, nil
	for range 100 {
		runtime.GC()
		lists.mu.Lock()
		n := len(lists.known)
		lists.mu.Unlock()
		if n == 0 {
			return
		}
		runtime.Gosched()
	}
	t.Error("a list outlives its streams")
}

func TestChangedListsAreParsed(t *testing.T) {
	t.Parallel()
	names := manyNames("a", 100)
	changed := slices.Clone(names)
	changed[50] = "other"
	x := NewNameLists(maphash.MakeSeed()).Stream()
	for i, list := range [][]string{names, names[:60], append(slices.Clone(names), "more"), changed, nil, names, {"few"}, names} {
		r := &Request{Protocol: SotW, Repeats: x}
		if err := r.Read(buffers(sotwRequest(t, "type", "n", list), 700)); err != nil {
			t.Fatal(err)
		}
		if got := namesOf(r); !slices.Equal(got, list) || r.Names.Count != len(list) {
			t.Errorf("list %d: %d names, want %d", i, len(got), len(list))
		}
	}
}

func TestListsOfTypesAreApart(t *testing.T) {
	t.Parallel()
	short, long := manyNames("a", 100), manyNames("a", 150) // one begins with the other
	x := NewNameLists(maphash.MakeSeed()).Stream()
	for i := range 6 {
		url, list := "x", short
		if i%2 == 1 {
			url, list = "y", long
		}
		r := &Request{Protocol: SotW, Repeats: x}
		if err := r.Read(buffers(sotwRequest(t, url, "n", list), 4096)); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(namesOf(r), list) || i > 1 && r.Names.shared == nil {
			t.Errorf("request %d: %d names, shared %v", i, r.Names.Count, r.Names.shared != nil)
		}
	}
}

// FuzzCut compares reading with a memory to reading without. Its seeds are long, since short lists are not
// remembered; `-fuzzminimizetime 1s` keeps the fuzzer from spending its time on making them shorter.
func FuzzCut(f *testing.F) {
	seed := maphash.MakeSeed()
	known := sotwRequest(f, "type", "1", manyNames("a", 30))
	f.Add(known, 64)
	f.Add(sotwRequest(f, "type", "2", manyNames("a", 31)), 1000)
	f.Add(append(slices.Clone(known), 0x1a, 1, 'x'), 9)
	f.Add(known[:len(known)-1], 128)
	x := NewNameLists(seed).Stream()
	if err := (&Request{Protocol: SotW, Repeats: x}).Read(buffers(known, 100)); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		rest, list := x.cut(buffers(b, max(1, size)))
		if list == nil {
			return
		}
		got, want := &Request{Protocol: SotW}, &Request{Protocol: SotW}
		errGot, errWant := got.Unmarshal(rest), want.Unmarshal(b)
		if (errGot == nil) != (errWant == nil) {
			t.Fatalf("%v, want %v", errGot, errWant)
		}
		if errGot == nil && (got.TypeURL != want.TypeURL || got.Nonce != want.Nonce || !bytes.Equal(got.Node, want.Node) ||
			!want.Names.equal(list.encoded) || list.count != want.Names.Count || list.hash != want.Names.Hash(seed)) {
			t.Fatalf("%+v, want %+v", got, want)
		}
	})
}

func BenchmarkRepeatedNames(b *testing.B) {
	data := buffers(sotwRequest(b, "type", "1", manyNames("service", 1000)), 16<<10)
	x := NewNameLists(maphash.MakeSeed()).Stream()
	b.ReportAllocs()
	for b.Loop() {
		if err := (&Request{Protocol: SotW, Repeats: x}).Read(data); err != nil {
			b.Fatal(err)
		}
	}
}
