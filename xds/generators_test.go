package xds_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds"
	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
	"github.com/isthmus-mesh/isthmus/xds/xdstest"
)

// TestRealGenerators: the generators that are served keep what the engine relies on (a listed name
// leads back to its view, and is listed by no other), and clients end up with what they make.
func TestRealGenerators(t *testing.T) {
	both(t, func(t *testing.T, p wire.Protocol) {
		r := newRig(t, func(o *xds.Options) { o.Generators = gen.All() })
		e := r.envoy(p, node(1))
		defer e.Disconnect()
		own := svc("own.x.svc.cluster.local", 0, "10.99.0.2", "10.0.7.1")
		r.mesh.Set(own, svc("foo.x.svc.cluster.local", 0, "10.0.0.1"))
		r.agrees(e)
		for i := range 8 {
			r.mesh.Set(svc("foo.x.svc.cluster.local", i/3, fmt.Sprintf("10.0.0.%d", i+1)), svc(fmt.Sprintf("s%d.x.svc.cluster.local", i%3), i, "10.0.2.1"))
			r.agrees(e)
		}
		r.mesh.Delete(own)
		r.agrees(e)
		r.mesh.SetMesh()
		r.agrees(e)
	})
}

// TestEveryNamedClusterExists: where several services claim a host, listeners and routes name clusters
// of the one that is meant, whichever ports the others have.
func TestEveryNamedClusterExists(t *testing.T) {
	both(t, func(t *testing.T, p wire.Protocol) {
		r := newRig(t, func(o *xds.Options) { o.Generators = gen.All() })
		e := r.envoy(p, node(1))
		defer e.Disconnect()
		claim := func(namespace string, tcp bool, ports ...uint16) xdstest.Service {
			s := svc("h.example", 0, "10.0.0.1")
			s.Namespace, s.TCP, s.Ports = namespace, tcp, ports
			s.VIP = fmt.Sprintf("10.255.0.%d", len(namespace))
			return s
		}
		first, second := claim("a", false, 80), claim("bb", true, 9090, 8080)
		r.mesh.Set(first, second)
		r.agrees(e)
		r.mesh.Set(claim("bb", false, 8080))
		r.agrees(e)
		r.mesh.Delete(first) // the second has the host now, on ports that did not change
		r.agrees(e)
		r.mesh.Set(first)
		r.agrees(e)
		r.mesh.Set(claim("x", true, 3306)) // the proxy's own namespace before others
		r.agrees(e)
	})
}

func (r *rig) agrees(all ...*xdstest.Envoy) {
	r.Helper()
	time.Sleep(2 * time.Second)
	synctest.Wait()
	for _, e := range all {
		r.agreesOne(e)
	}
	if r.Failed() {
		r.FailNow()
	}
}

func (r *rig) agreesOne(e *xdstest.Envoy) {
	r.Helper()
	if v := e.Violations(); len(v) > 0 {
		r.Fatal(v)
	}
	proxies := r.server.Proxies()
	status := proxies[slices.IndexFunc(proxies, func(p xds.ProxyStatus) bool { return p.ID == e.ID() })]
	reader := &pushcontext.Reader{Cluster: status.Cluster, Namespace: status.Namespace, Instances: status.Instances, Scope: status.Class.Scope}
	pc := r.mesh.Hub.Current()
	for _, g := range gen.All() {
		r.owned(pc, g, status.Class, reader)
	}
	want, err := xdstest.Expect(pc, gen.All(), status.Class, reader)
	if err != nil {
		r.Fatal(err)
	}
	have := e.State()
	if d, err := xdstest.Dangling(have); err != nil || len(d) > 0 {
		r.Errorf("clusters are named that the proxy does not have: %q %v", d, err)
	}
	for u := range want {
		for n := range want[u] {
			if have[u][n] != want[u][n] {
				r.Errorf("%s %s: has %q, want %q", u, n, have[u][n], want[u][n])
			}
		}
		if len(have[u]) != len(want[u]) {
			r.Errorf("%s: has %d, want %d", u, len(have[u]), len(want[u]))
		}
	}
}

// TestRealGeneratorsAtRandom: whatever changes, also what is kept of earlier changes and shared between
// proxies is what would be made anew. Some of the proxies are endpoints themselves.
func TestRealGeneratorsAtRandom(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(o *xds.Options) { o.Generators = gen.All() })
				p := rand.New(rand.NewPCG(seed, 9))
				var all []*xdstest.Envoy
				rules := []*pushcontext.DestinationPolicy{byLabels("x", "tier"), byLabels("y"), byLabels("x", "topology.istio.io/cluster", "tier", "pod-template-hash"), byLabels("z")}
				for i := range 6 {
					n := node(i)
					if i%2 == 1 {
						n = labelledNode(i, []string{"x", "z"}[i/2%2], "gold")
					}
					if i >= 4 {
						n = gatewayNode(i)
					}
					if i%2 == 0 {
						certify(n)
					}
					e := r.envoy([]wire.Protocol{wire.SotW, wire.Delta}[p.IntN(2)], n)
					defer e.Disconnect()
					all = append(all, e)
				}
				for range 40 {
					var list []xdstest.Service
					for range 1 + p.IntN(3) {
						list = append(list, anyService(p))
					}
					for i := range list {
						list[i].Policies, list[i].Labels = somePolicies(p, rules), model.Labels{"tier": "gold"}
					}
					list = slices.CompactFunc(list, func(a, b xdstest.Service) bool { return a.Host == b.Host && a.Namespace == b.Namespace })
					switch p.IntN(12) {
					case 0:
						r.mesh.SetMesh(func(m *pushcontext.MeshView) { m.AutoPassthrough = anyServers(p) })
					case 6, 7:
						r.mesh.SetGateways(anyGateways(p))
					case 1, 2, 3:
						r.mesh.Delete(list[0])
					case 4, 5:
						r.mesh.SetSidecars(anySidecars(p), "*")
					default:
						r.mesh.Set(list[:1]...)
						r.mesh.Set(list[len(list)-1])
					}
					if p.IntN(2) == 0 {
						r.agrees(all...)
					}
				}
				r.agrees(all...)
			})
		})
	}
}

// anyGateways gives servers, some of which share sockets, to some routers.
func anyGateways(p *rand.Rand) func(*pushcontext.MeshView) []*pushcontext.GatewayServer {
	var list []*pushcontext.GatewayServer
	for i := range p.IntN(5) {
		s := &pushcontext.GatewayServer{Namespace: "x", Gateway: fmt.Sprint("g", i), Selector: []model.Labels{nil, {"gw": "4"}, {"gw": "5"}}[p.IntN(3)],
			Spec: &networking.Server{Port: &networking.Port{Number: []uint32{80, 9000}[p.IntN(2)], Name: "p", Protocol: []string{"HTTP", "TLS", "HTTPS"}[p.IntN(3)]}}}
		switch s.Spec.Port.Protocol {
		case "TLS":
			s.Spec.Tls = &networking.ServerTLSSettings{Mode: networking.ServerTLSSettings_AUTO_PASSTHROUGH}
		case "HTTPS":
			s.Spec.Tls = &networking.ServerTLSSettings{Mode: networking.ServerTLSSettings_SIMPLE, ServerCertificate: "/c", PrivateKey: "/k"}
		}
		host := []string{"*", "a.example", "*.local"}[p.IntN(3)]
		s.Spec.Hosts, s.Hosts = []string{host}, []pushcontext.GatewayHost{{Namespace: "*", Host: host}}
		v := &pushcontext.VirtualService{Namespace: "x", Hosts: []string{host}, Gateways: []string{s.Name()}, Export: pushcontext.NewExport([][]string{nil, {"."}}[p.IntN(2)], nil, "x"),
			Spec: &networking.VirtualService{Http: []*networking.HTTPRoute{{DirectResponse: &networking.HTTPDirectResponse{Status: 200 + uint32(p.IntN(3))}}}}}
		s.Bound = []*pushcontext.VirtualService{v}
		list = append(list, s)
	}
	return func(m *pushcontext.MeshView) (out []*pushcontext.GatewayServer) {
		for _, s := range list {
			out = append(out, &pushcontext.GatewayServer{Namespace: s.Namespace, Gateway: s.Gateway, Selector: s.Selector, Spec: s.Spec, Hosts: s.Hosts, Bound: s.Bound, Mesh: m})
		}
		return out
	}
}

// anySidecars gives some namespaces a Sidecar.
func anySidecars(p *rand.Rand) map[string][]string {
	out := map[string][]string{}
	for _, n := range []string{"x", "y", "z"} {
		switch p.IntN(4) {
		case 0:
			out[n] = []string{"./*"}
		case 1:
			out[n] = []string{"*/s1.x.svc.cluster.local", "x/s2.x.svc.cluster.local"}
		case 2:
			out[n] = []string{"*/*"}
		}
	}
	return out
}

// gatewayNode is a router that AUTO_PASSTHROUGH servers may select.
func gatewayNode(i int) *corev3.Node {
	n := node(i)
	n.Id = strings.Replace(n.Id, "sidecar~", "router~", 1)
	labels := structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"gw": structpb.NewStringValue(fmt.Sprint(i))}})
	n.Metadata.Fields["LABELS"] = labels
	return n
}

// certify lets a proxy speak mutual TLS.
func certify(n *corev3.Node) {
	for _, side := range []string{"CLIENT", "SERVER"} {
		for _, file := range []string{"CERT_CHAIN", "KEY", "ROOT_CERT"} {
			n.Metadata.Fields["TLS_"+side+"_"+file] = structpb.NewStringValue("/etc/certs/" + file)
		}
	}
}

func anyServers(p *rand.Rand) []pushcontext.AutoPassthrough {
	var out []pushcontext.AutoPassthrough
	for range p.IntN(3) {
		out = append(out, pushcontext.AutoPassthrough{
			Namespace: "x", Selector: []model.Labels{nil, {"gw": "4"}, {"gw": "5"}}[p.IntN(3)], Port: []uint16{15443, 9000}[p.IntN(2)],
			Hosts: [][]string{{"*"}, {"*.local"}, {"./s1.x.svc.cluster.local", "s2.x.svc.cluster.local"}}[p.IntN(3)]})
	}
	return out
}

// A router forwards while a server selects it, and to what is there to forward to.
func TestForwardingRouter(t *testing.T) {
	both(t, func(t *testing.T, p wire.Protocol) {
		r := newRig(t, func(o *xds.Options) { o.Generators = gen.All() })
		e, other := r.envoy(p, gatewayNode(4)), r.envoy(p, gatewayNode(5))
		defer e.Disconnect()
		defer other.Disconnect()
		forwards := func(e *xdstest.Envoy, want ...string) {
			t.Helper()
			r.agrees(e)
			var got []string
			for _, url := range []string{gen.ClusterURL, gen.EndpointURL, gen.ListenerURL} {
				for n := range e.State()[url] {
					if strings.HasPrefix(n, "outbound_.") || strings.HasPrefix(n, "gateway_") {
						got = append(got, n)
					}
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Fatalf("forwards %v, want %v", got, want)
			}
		}
		const name, listener = "outbound_.80_._.foo.x.svc.cluster.local", "gateway_0.0.0.0_15443"
		foo := svc("foo.x.svc.cluster.local", 0, "10.0.0.1")
		foo.Mutual = true
		server := func(m *pushcontext.MeshView) {
			m.AutoPassthrough = []pushcontext.AutoPassthrough{{Selector: model.Labels{"gw": "4"}, Port: 15443, Hosts: []string{"*"}}}
		}
		servers := func(m *pushcontext.MeshView) []*pushcontext.GatewayServer {
			return []*pushcontext.GatewayServer{{Namespace: "x", Gateway: "g", Selector: model.Labels{"gw": "4"}, Hosts: []pushcontext.GatewayHost{{Namespace: "*", Host: "*"}}, Mesh: m,
				Spec: &networking.Server{Port: &networking.Port{Number: 15443, Protocol: "TLS"}, Tls: &networking.ServerTLSSettings{Mode: networking.ServerTLSSettings_AUTO_PASSTHROUGH}}}}
		}
		r.mesh.Set(foo)
		forwards(e)
		r.mesh.SetMesh(server)
		forwards(e, name, name)
		r.mesh.SetGateways(servers)
		forwards(e, listener, name, name)
		forwards(other)
		before := e.State()[gen.EndpointURL][name]
		foo.Endpoints = append(foo.Endpoints, "10.0.0.2")
		r.mesh.Set(foo)
		forwards(e, listener, name, name)
		if e.State()[gen.EndpointURL][name] == before {
			t.Error("a new endpoint is not forwarded to")
		}
		r.mesh.Delete(foo)
		forwards(e, listener)
		r.mesh.Set(foo)
		forwards(e, listener, name, name)
		r.mesh.SetGateways(nil)
		forwards(e, name, name)
		r.mesh.SetMesh()
		forwards(e)
	})
}

// anyService is one of few hosts, so that names, addresses and ports meet.
func anyService(p *rand.Rand) xdstest.Service {
	i := p.IntN(5)
	s := xdstest.Service{
		Host: fmt.Sprintf("s%d.x.svc.cluster.local", i), Namespace: []string{"x", "y"}[p.IntN(2)], Member: "c1",
		Ports: [][]uint16{{80}, {3306}, {80, 3306}, {9000}}[p.IntN(4)], TCP: p.IntN(2) == 0, Headless: p.IntN(3) == 0,
		Mutual: p.IntN(2) == 0, Generation: p.IntN(2), Export: [][]string{nil, nil, {"."}}[p.IntN(3)],
	}
	if !s.Headless && p.IntN(3) > 0 {
		s.VIP = fmt.Sprintf("10.255.0.%d", 1+p.IntN(4))
	}
	for k := range 5 { // the first four are those of proxies
		if p.IntN(3) == 0 {
			s.Endpoints = append(s.Endpoints, fmt.Sprintf("10.99.0.%d", k+1))
		}
	}
	return s
}

func (r *rig) owned(pc *pushcontext.PushContext, g gen.Generator, c gen.Class, reader *pushcontext.Reader) {
	r.Helper()
	for _, kind := range g.Kinds() {
		for key := range pc.Keys(kind) {
			v, _ := pc.View(key, reader)
			if v == nil {
				continue
			}
			for _, n := range g.Names(v, c.Keep(g.Traits(v))) {
				if got, ok := g.Key(n); !ok || got != key {
					r.Errorf("%s: %s is listed by %+v, but its key is %+v", g.TypeURL(), n, key, got)
				}
			}
		}
	}
}
