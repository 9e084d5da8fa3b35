package gen_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/test/golden"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

func proxyPort(n int32) func(*settings) {
	return func(m *settings) { m.Config.ProxyHttpPort = n }
}

func refusing(m *settings) {
	m.Config.OutboundTrafficPolicy = &meshconfig.MeshConfig_OutboundTrafficPolicy{Mode: meshconfig.MeshConfig_OutboundTrafficPolicy_REGISTRY_ONLY}
}

// proxyEgress has HTTP proxies among the egress listeners of a Sidecar, beside one for all.
func proxyEgress(c *gen.Class) {
	at := func(n uint32, bind string, mode networking.CaptureMode, host string) pushcontext.Egress {
		return pushcontext.Egress{Port: &networking.SidecarPort{Number: n, Protocol: "HTTP_PROXY"}, Bind: bind, Capture: mode, Imports: []pushcontext.Import{{Namespace: "*", Host: host}}}
	}
	sidecarScope(nil, at(3128, "127.0.0.1", networking.CaptureMode_NONE, cartHost), at(3128, "127.0.0.1", networking.CaptureMode_NONE, "*"), at(8080, "", 0, "any.shop.svc.cluster.local"),
		pushcontext.Egress{Imports: []pushcontext.Import{{Namespace: "*", Host: "*"}}})(c)
}

type proxyWorld struct {
	name  string
	mesh  *settings
	class gen.Class
}

func proxyWorlds() []proxyWorld {
	return []proxyWorld{
		{"mesh", newMesh(proxyPort(15007)), sidecar("c1", "shop")},
		{"registry-only", newMesh(proxyPort(15007), refusing), sidecar("c1", "other", func(c *gen.Class) { c.IPv4, c.IPv6 = false, true })},
		{"own-port", newMesh(proxyPort(15007)), sidecar("c1", "shop", noInterception, func(c *gen.Class) { c.Tuning.HTTPProxy, c.HTTP10 = 8118, true })},
		{"sidecar", newMesh(proxyPort(3128)), sidecar("c1", "shop", proxyEgress)},
	}
}

// snapshotOf is of a mesh in which proxies have something to route.
func (w proxyWorld) snapshot(t testing.TB) *pushcontext.PushContext {
	t.Helper()
	beside := virtualService(t, "beside", "hosts: [beside.example]\nhttp: [{route: [{destination: {host: cart.shop.svc.cluster.local, port: {number: 80}}}]}]")
	c := pushcontext.Commit{Mesh: w.mesh.MeshView, Time: time.Unix(1, 0), VirtualServices: []*pushcontext.VirtualService{beside}}
	for _, s := range []svc{
		{host: cartHost, ports: []model.Port{httpPort(80), httpPort(8080)}, vips: members("c1", "10.0.0.1", "c1", "fd00::1"), edit: routedBy(
			virtualService(t, "cart", "hosts: [cart.shop.svc.cluster.local]\nhttp: [{match: [{uri: {prefix: /v2}}], route: [{destination: {host: any.shop.svc.cluster.local}}]}, {route: [{destination: {host: cart.shop.svc.cluster.local}}]}]"))},
		{host: "any.shop.svc.cluster.local", ports: []model.Port{autoPort(7000), tcpPort(9000)}},
		{host: "nodes.shop.svc.cluster.local", ports: []model.Port{httpPort(9042)}, resolution: model.Passthrough},
		{host: "db.shop.svc.cluster.local", ports: []model.Port{tcpPort(3306)}, vips: members("c1", "10.0.0.2")},
		{host: "at.proxy.example", ns: "shop", ports: []model.Port{tcpPort(15007)}, vips: members("c1", "127.0.0.1")},
	} {
		v := s.view(w.mesh)
		c.Services = append(c.Services, pushcontext.Change{Key: v.Shape.Key, View: v})
	}
	pc, _ := pushcontext.NewBuilder().Commit(c)
	return pc
}

// resources are those of the proxy that are for all its destinations together, and its listeners.
func (w proxyWorld) resources(t testing.TB) (out []resource) {
	t.Helper()
	pc, r := w.snapshot(t), &pushcontext.Reader{Cluster: w.class.Cluster, Namespace: w.class.Namespace, Scope: w.class.Scope}
	for _, of := range []struct {
		g     gen.Generator
		kinds []pushcontext.ViewKind
	}{
		{gen.Clusters{}, []pushcontext.ViewKind{pushcontext.ViewMesh}},
		{gen.Listeners{}, []pushcontext.ViewKind{pushcontext.ViewMesh, pushcontext.ViewPort}},
		{gen.Routes{}, []pushcontext.ViewKind{pushcontext.ViewPorts}},
	} {
		for _, kind := range of.kinds {
			if !slices.Contains(of.g.Kinds(), kind) {
				t.Fatalf("%T is not made of views of kind %d", of.g, kind)
			}
			var made []resource
			for k := range pc.Keys(kind) {
				v, _ := pc.View(k, r)
				c := w.class
				if n, ok := of.g.(gen.Narrower); ok {
					c = n.Narrow(v, c.Keep(of.g.Traits(v)))
				}
				made = append(made, build(t, of.g, v, c)...)
			}
			slices.SortFunc(made, func(a, b resource) int { return bytes.Compare([]byte(a.name), []byte(b.name)) })
			out = append(out, made...)
		}
	}
	return out
}

// The goldens of HTTP proxies, in testdata/httpproxy: the fixed clusters, the listeners, and the tables of the proxies.
func TestHTTPProxies(t *testing.T) {
	t.Parallel()
	for _, w := range proxyWorlds() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			var got bytes.Buffer
			for _, r := range w.resources(t) {
				fmt.Fprintf(&got, "# %s %s\n%s\n", r.url, r.name, text(t, decode(t, r)))
			}
			golden.Compare(t, filepath.Join("testdata", "httpproxy", w.name+".golden"), got.String())
		})
	}
}

// A stock Envoy takes them.
func TestEnvoyAcceptsHTTPProxies(t *testing.T) {
	t.Parallel()
	envoy := os.Getenv("ISTHMUS_ENVOY")
	if envoy == "" {
		t.Skip("ISTHMUS_ENVOY does not name an Envoy binary: HTTP proxies are not validated by a real proxy here")
	}
	files := mounted(t)
	for _, w := range proxyWorlds() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			b := &bootstrapv3.Bootstrap{
				Node:             &corev3.Node{Id: "test", Cluster: "test"},
				StaticResources:  &bootstrapv3.Bootstrap_StaticResources{Clusters: []*clusterv3.Cluster{staticCluster("xds")}},
				DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{AdsConfig: adsConfig()},
			}
			for _, r := range w.resources(t) {
				embed(t, b.StaticResources, decode(t, r))
			}
			if why := validated(t, envoy, files, b); why != "" {
				t.Error(why)
			}
		})
	}
}

// No two virtual hosts of a table share a domain, whatever ports the hosts have: Envoy would refuse the table.
func TestHTTPProxyDomainsAreUnique(t *testing.T) {
	t.Parallel()
	for _, w := range proxyWorlds() {
		for _, r := range w.resources(t) {
			m, ok := decode(t, r).(*routev3.RouteConfiguration)
			if !ok {
				continue
			}
			domains, hosts := map[string]string{}, map[string]bool{}
			for _, h := range m.VirtualHosts {
				if hosts[h.Name] {
					t.Errorf("%s: %s: two virtual hosts %s", w.name, r.name, h.Name)
				}
				hosts[h.Name] = true
				for _, d := range h.Domains {
					if other := domains[d]; other != "" {
						t.Errorf("%s: %s: %s is of %s and of %s", w.name, r.name, d, other, h.Name)
					}
					domains[d] = h.Name
				}
			}
		}
	}
}

// A proxy that has none is told nothing of them, and is one with all others that have none.
func TestNoHTTPProxy(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]proxyWorld{
		"not asked for":  {mesh: newMesh(), class: sidecar("c1", "shop")},
		"a router":       {mesh: newMesh(proxyPort(15007)), class: router("c1", "edge")},
		"no port":        {mesh: newMesh(proxyPort(70000)), class: sidecar("c1", "shop")},
		"the proxy's":    {mesh: newMesh(proxyPort(15001)), class: sidecar("c1", "shop")},
		"other settings": {mesh: newMesh(), class: sidecar("c1", "shop", sidecarScope(nil, egress(0, "*")), func(c *gen.Class) { c.Tuning.Idle = time.Hour })},
	} {
		pc := w.snapshot(t)
		all, _ := pc.View(pushcontext.ViewKey{Kind: pushcontext.ViewPorts}, &pushcontext.Reader{})
		for _, g := range []gen.Narrower{gen.Clusters{}, gen.Routes{}} {
			v := pushcontext.View(pc.Mesh)
			if g.TypeURL() == gen.RouteURL {
				v = all
			}
			c := g.Narrow(v, w.class.Keep(g.Traits(v)))
			if c.Scope != nil || c.Tuning != (gen.Tuning{}) {
				t.Errorf("%s: %T tells it apart by %+v", name, g, c)
			}
			for _, n := range g.Names(v, c) {
				if n == "HttpProxyCluster" || n == "http_proxy" {
					t.Errorf("%s: there is %s", name, n)
				}
			}
		}
	}
}
