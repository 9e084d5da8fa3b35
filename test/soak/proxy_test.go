package soak_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
	"github.com/isthmus-mesh/isthmus/xds/xdstest"
)

// guard knows which endpoints must be in every response to every proxy.
type guard struct {
	mu      sync.Mutex
	must    map[string]map[string]bool // addresses by the name of an Envoy cluster; guarded by mu, as are all below
	checked int                        // assignments
	faults  []string
}

func newGuard() *guard { return &guard{must: map[string]map[string]bool{}} }

// demand makes an address one that no assignment may lack. All proxies must have it.
func (g *guard) demand(service string, addresses ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	name := outbound(service)
	if g.must[name] == nil {
		g.must[name] = map[string]bool{}
	}
	for _, a := range addresses {
		g.must[name][a] = true
	}
}

// release undoes demand.
func (g *guard) release(service string, addresses ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range addresses {
		delete(g.must[outbound(service)], a)
	}
}

// found are the faults so far.
func (g *guard) found() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.faults)
}

// count is how many assignments of demanded services were looked at.
func (g *guard) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.checked
}

// manyFaults are enough to know.
const manyFaults = 20

func (g *guard) fault(format string, a ...any) { // called under mu
	if len(g.faults) < manyFaults {
		g.faults = append(g.faults, fmt.Sprintf(format, a...))
	}
}

// check looks at a response of either protocol.
func (g *guard) check(proxy string, m proto.Message) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch r := m.(type) {
	case *discoveryv3.DeltaDiscoveryResponse:
		for _, n := range r.RemovedResources {
			if len(g.must[n]) > 0 {
				g.fault("%s: %s %s was removed", proxy, r.TypeUrl, n)
			}
		}
		for _, res := range r.Resources {
			g.assignment(proxy, r.TypeUrl, res.Resource.GetValue())
		}
	case *discoveryv3.DiscoveryResponse:
		names := map[string]bool{}
		for _, res := range r.Resources {
			g.assignment(proxy, r.TypeUrl, res.Value)
			names[xdstest.NameOf(r.TypeUrl, res.Value)] = true
		}
		for n, must := range g.must {
			if r.TypeUrl == gen.ClusterURL && len(must) > 0 && !names[n] {
				g.fault("%s: cluster %s is missing", proxy, n)
			}
		}
	}
}

func (g *guard) assignment(proxy, typeURL string, body []byte) {
	if typeURL != gen.EndpointURL {
		return
	}
	name, have, err := addresses(body)
	if err != nil {
		g.fault("%s: %v", proxy, err)
		return
	}
	must := g.must[name]
	if len(must) == 0 {
		return
	}
	g.checked++
	for a := range must {
		if !slices.Contains(have, a) {
			g.fault("%s was sent %s without %s: %q", proxy, name, a, have)
		}
	}
}

// addresses are the usable endpoints of an encoded assignment, "ip:port", sorted.
func addresses(body []byte) (name string, out []string, err error) {
	var a endpointv3.ClusterLoadAssignment
	if err := proto.Unmarshal(body, &a); err != nil {
		return "", nil, err
	}
	for _, g := range a.Endpoints {
		for _, e := range g.LbEndpoints {
			sock := e.GetEndpoint().GetAddress().GetSocketAddress()
			if e.HealthStatus == corev3.HealthStatus_HEALTHY {
				out = append(out, fmt.Sprintf("%s:%d", sock.GetAddress(), sock.GetPortValue()))
			}
		}
	}
	slices.Sort(out)
	return a.ClusterName, slices.Compact(out), nil
}

// part ends proxies and tells what a server must not do and did to them.
func (m *mesh) part(which func(*proxy) bool) {
	m.proxies = slices.DeleteFunc(m.proxies, func(p *proxy) bool {
		if !which(p) {
			return false
		}
		p.Disconnect()
		for _, v := range p.Violations() {
			m.Errorf("proxy %s: %s", p.ID(), v)
		}
		return true
	})
}

// ours reports whether an Envoy cluster is that of a service which a test made.
func ours(name string) bool {
	return strings.HasPrefix(name, "outbound|") && (strings.HasSuffix(name, "."+namespace+".svc.cluster.local") || strings.HasSuffix(name, entrySuffix))
}

// outbound is the name of the Envoy cluster of a service, "name" or "name:port".
func outbound(service string) string {
	name, port, ok := strings.Cut(service, ":")
	if !ok {
		port = "80"
	}
	return fmt.Sprintf("outbound|%s||%s", port, host(name))
}

func host(service string) string { return service + "." + namespace + ".svc.cluster.local" }

// proxy is a client that behaves as Envoy, all of whose responses are checked.
type proxy struct {
	*xdstest.Envoy
	cluster string
}

// connect adds sidecars of a cluster, every other one with state-of-the-world.
func (m *mesh) connect(cluster string, n int) {
	m.Helper()
	for range n {
		i := len(m.proxies)
		protocol := []wire.Protocol{wire.Delta, wire.SotW}[i%2]
		name := fmt.Sprintf("client-%d.%s", i, namespace)
		ip := fmt.Sprintf("10.250.%d.%d", i/200, i%200+1)
		meta, err := structpb.NewStruct(map[string]any{"CLUSTER_ID": cluster, "NAMESPACE": namespace, "INSTANCE_IPS": ip})
		if err != nil {
			m.Fatal(err)
		}
		node := &corev3.Node{Id: fmt.Sprintf("sidecar~%s~%s~%s.svc.cluster.local", ip, name, namespace), Metadata: meta}
		p := &proxy{xdstest.NewEnvoy(protocol, node, func() (xdstest.Stream, error) { return m.stream(name, protocol) }), cluster}
		m.eventually("a stream of "+name, p.Connect)
		m.proxies = append(m.proxies, p)
	}
}

func (m *mesh) stream(name string, protocol wire.Protocol) (xdstest.Stream, error) {
	conn, err := grpc.NewClient("passthrough:///"+m.hub.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	s, err := xdstest.Open(context.Background(), conn, protocol)
	if err != nil {
		return nil, err
	}
	return &checked{s, name, m.guard}, nil
}

// checked is a stream whose responses pass the guard.
type checked struct {
	xdstest.Stream
	name  string
	guard *guard
}

// Recv implements xdstest.Stream.
func (c *checked) Recv(to proto.Message) error {
	err := c.Stream.Recv(to)
	if err == nil {
		c.guard.check(c.name, to)
	}
	return err
}

// reconnect breaks a proxy's stream off and has it come again.
func (m *mesh) reconnect(p *proxy) {
	m.Helper()
	p.Disconnect()
	m.eventually("a stream of "+p.ID(), p.Connect)
}

// endpoints are the usable endpoints that a proxy has, by the name of its clusters. (Services of other
// namespaces are Kubernetes' own, which stay in their cluster.)
func (p *proxy) endpoints() (map[string][]string, error) {
	state := p.State()
	out := map[string][]string{}
	for name := range state[gen.ClusterURL] {
		if !ours(name) {
			continue
		}
		body, ok := state[gen.EndpointURL][name]
		if !ok {
			return nil, fmt.Errorf("%s has cluster %s without endpoints", p.ID(), name)
		}
		_, have, err := addresses([]byte(body))
		if err != nil {
			return nil, err
		}
		out[name] = have
	}
	return out, nil
}

// agree waits until every proxy has exactly the endpoints, by the name of clusters, and ejects those that fail as it should.
func (m *mesh) agree(all content) {
	m.Helper()
	want := all.usable
	for _, p := range m.proxies {
		m.eventually(p.ID()+" to have what there is", func() error {
			have, err := p.endpoints()
			if err != nil {
				return err
			}
			if err := p.ejects(all.ejects); err != nil {
				return err
			}
			for _, n := range slices.Sorted(maps.Keys(want)) {
				if got, ok := have[n]; !ok || !slices.Equal(got, want[n]) {
					return fmt.Errorf("%s has %q, want %q", n, got, want[n])
				}
			}
			for n := range have {
				if _, ok := want[n]; !ok {
					return fmt.Errorf("%s has a cluster %s too many", p.ID(), n)
				}
			}
			return nil
		})
	}
}
