package client

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/types/known/anypb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/mcp"
)

// rows is a sink that counts.
type rows int

func (r *rows) Replace(s *model.ShardState) { *r += rows(s.Len()) }
func (r *rows) Put(evs ...model.Event)      { *r += rows(len(evs)) }
func (r *rows) Status(model.Status)         {}

// Servers without increments send all objects of a kind whenever one has changed.
func BenchmarkListSentAgain(b *testing.B) {
	const objects = 10_000
	var out rows
	o := Options{Name: "up"}.withDefaults()
	r := newRun(&o, model.ShardKey{Provider: model.ProviderMCP, Cluster: "up"}, &out)
	f := r.byURL["networking.istio.io/v1/ServiceEntry"]
	list := make([]resource, objects)
	for i := range list {
		list[i] = resource{body: entryOf(b, i, "10.1.0.1")}
	}
	push := func() {
		f.kind.asked, f.answered = 1, true
		r.take(f, &message{url: f.url, full: true, resources: list})
		r.settle(f.kind, false)
		r.reconcile(f.kind)
	}
	push()
	r.sync()
	if out != 2*objects {
		b.Fatalf("%d rows", out)
	}
	n := 0
	for b.Loop() {
		n++
		list[n%objects] = resource{body: entryOf(b, n%objects, fmt.Sprintf("10.%d.%d.%d", 2+n>>16&63, n>>8&255, n&255))}
		push()
	}
	b.ReportMetric(float64(out-2*objects)/float64(n), "rows/op")
}

func entryOf(b *testing.B, i int, address string) *anypb.Any {
	b.Helper()
	body, err := anypb.New(&networking.ServiceEntry{
		Hosts: []string{fmt.Sprintf("s%d.example.com", i)}, Resolution: networking.ServiceEntry_STATIC, Location: networking.ServiceEntry_MESH_INTERNAL,
		Ports:     []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}},
		Endpoints: []*networking.WorkloadEntry{{Address: address, Labels: map[string]string{"a": "b"}}},
	})
	if err != nil {
		b.Fatal(err)
	}
	a, err := mcp.Encode(mcp.Resource{Namespace: "shop", Name: fmt.Sprint("s", i), Version: "1", Body: body})
	if err != nil {
		b.Fatal(err)
	}
	return a
}
