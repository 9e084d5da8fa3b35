package gen_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// routedWorld is a random port: services and hosts of none with VirtualServices that look at all sorts of things.
type routedWorld struct {
	*rand.Rand
	testing.TB
	made int
}

func (w *routedWorld) one(list ...string) string { return list[w.IntN(len(list))] }

func (w *routedWorld) routes(hosts ...string) *pushcontext.VirtualService {
	w.made++
	rule := func(n int) string {
		match := w.one("", "", ", match: [{sourceLabels: {app: "+w.one("x", "z")+"}}]", ", match: [{sourceNamespace: "+w.one("a", "b")+"}]",
			", match: [{port: 81}]", ", match: [{gateways: [mesh], sourceLabels: {v: x}}]", ", match: [{sourceLabels: {v: x}, sourceNamespace: a}]")
		return fmt.Sprintf("{route: [{destination: {host: %s}}], name: r%d-%d%s}", w.one(cartHost, "x.example"), w.made, n, match)
	}
	v := virtualService(w, fmt.Sprint("v", w.made), "http: ["+rule(1)+", "+rule(2)+"]")
	v.Hosts, v.Namespace = hosts, w.one("a", "b", "shop")
	if w.IntN(3) == 0 {
		v.Export = pushcontext.Export{Namespaces: []string{w.one("a", "b")}}
	}
	if w.IntN(3) == 0 {
		v.Policies = map[string]*pushcontext.DestinationPolicies{cartHost: {Namespace: "shop", Policies: w.rules()}}
	}
	return v
}

func (w *routedWorld) rules() (out []*pushcontext.DestinationPolicy) {
	for range w.IntN(3) {
		var selector model.Labels
		if w.IntN(2) == 0 {
			selector = model.Labels{w.one("app", "tier"): "x"}
		}
		out = append(out, hashRule(w.one("a", "b", "shop"), w.one("h1", "h2"), selector))
	}
	return out
}

func (w *routedWorld) view() *pushcontext.PortView {
	var services []svc
	for i := range 3 {
		host := fmt.Sprintf("s%d%s", i, w.one(".shop.svc.cluster.local", ".a.svc.cluster.local", ".example"))
		port := httpPort(80)
		if w.IntN(4) == 0 {
			port = autoPort(80)
		}
		services = append(services, svc{host: host, ns: w.one("shop", "a"), ports: []model.Port{port}, vips: members("c1", fmt.Sprintf("10.0.0.%d", i+1)),
			edit: func(s *pushcontext.ShapeView) {
				for range w.IntN(3) {
					s.VirtualServices = append(s.VirtualServices, w.routes(host))
				}
				s.Policies = w.rules()
			}})
	}
	v := portView(80, newMesh(), services...)
	for i := range w.IntN(3) {
		v = unclaimed(v, w.routes(fmt.Sprintf("u%d.example", i), w.one("*", "shared.example", "10.0.0.1")))
	}
	return v
}

func (w *routedWorld) class() gen.Class {
	c := sidecar("c1", w.one("a", "b", "shop"), withLabels(model.Labels{"app": w.one("x", "z"), "tier": w.one("x", "z"), "v": w.one("x", "z"), "pod": w.one("1", "2", "3")}))
	switch w.IntN(4) {
	case 0:
		sidecarScope(nil, egress(0, w.one("a", "b", "shop", "*")), egress(uint32(80+w.IntN(2)), w.one("a", "*")))(&c)
	case 1:
		c.Scope = &pushcontext.Scope{}
	}
	c.VHDS = w.IntN(2) == 0
	return c
}

// Resources depend on nothing of a class but what the generator declares and keeps of it.
func TestRoutesDependOnDeclaredTraitsOnly(t *testing.T) {
	t.Parallel()
	shared := 0
	for seed := range uint64(150) {
		w := &routedWorld{Rand: rand.New(rand.NewPCG(seed, 1)), TB: t}
		v := w.view()
		for _, g := range []gen.Narrower{gen.Routes{}, gen.VirtualHosts{}} {
			classes := map[gen.Class]bool{}
			for range 6 {
				c := w.class()
				kept := g.Narrow(v, c.Keep(g.Traits(v)))
				if classes[kept] {
					shared++
				}
				classes[kept] = true
				if full, less := g.Names(v, c), g.Names(v, kept); fmt.Sprint(full) != fmt.Sprint(less) {
					t.Fatalf("seed %d: names %v, of the kept class %v", seed, full, less)
				}
				for _, n := range g.Names(v, c) {
					full, err := g.Build(v, c, n)
					if err != nil {
						t.Fatal(err)
					}
					whole := decode(t, resource{g.TypeURL(), n, full})
					if again, err := (proto.MarshalOptions{Deterministic: true}).Marshal(whole); err != nil || !bytes.Equal(full, again) {
						t.Fatalf("seed %d: %s is not the encoding of its message (%v)", seed, n, err)
					}
					if m, ok := whole.(*routev3.RouteConfiguration); ok {
						checkTable(t, m)
					}
					if less, err := g.Build(v, kept, n); err != nil || !bytes.Equal(full, less) {
						t.Fatalf("seed %d: %s depends on more than %+v (%v)", seed, n, kept, err)
					}
				}
			}
		}
	}
	if shared == 0 {
		t.Error("no two classes share anything")
	}
}
