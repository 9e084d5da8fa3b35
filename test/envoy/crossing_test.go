package envoy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/bootstrap"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// crossing is two clusters on two networks, east on n1 and west on n2. Each has
// a gateway, workloads with sidecars, and a firewall that lets nothing pass from
// the workloads of one network to those of the other.
type crossing struct {
	*mesh
	api     *apiServers // nil: the clusters are folders
	net     *envoytest.Network
	ca      *envoytest.Authority
	sotw    bool
	proxies map[string]*proxy
	west    []any           // what west is made of, beside its gateway
	far     *corev1.Service // one of them, that only west has endpoints of
}

// Who is where.
const (
	east, west     = "east", "west"
	gatewayPort    = 15443
	gatewayService = "eastwest"
)

func (c *crossing) ns(name string) *envoytest.Namespace { return c.net.Namespace(name) }

func workloadsOf(cluster string) []string {
	return map[string][]string{east: {"client", "near"}, west: {"far1", "far2", "bare"}}[cluster]
}

// meshed is a pod whose sidecar speaks mutual TLS.
func meshed(ns *envoytest.Namespace) *corev1.Pod {
	p := pod(ns.Name, ns.Addr.String(), "", map[string]string{"app": ns.Name, "security.istio.io/tlsMode": "istio"})
	p.Spec.ServiceAccountName = ns.Name
	return p
}

// gateway is the Service of a network's gateway, as a load balancer at the
// addresses.
func gateway(network string, addrs ...netip.Addr) *corev1.Service {
	s := service(gatewayService+"-"+network, "10.96.9.9", "tls", gatewayPort)
	s.Labels = map[string]string{"topology.istio.io/network": network}
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	for _, a := range addrs {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a.String()})
	}
	return s
}

const gatewayServer = `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: cross-network, namespace: shop}
spec:
  selector: {istio: eastwestgateway}
  servers:
  - {port: {number: 15443, name: tls, protocol: TLS}, tls: {mode: AUTO_PASSTHROUGH}, hosts: ["*.local"]}`

func newCrossing(t *testing.T, sotw bool, on *apiServers) *crossing {
	t.Helper()
	c := &crossing{mesh: newMesh(t), api: on, sotw: sotw, proxies: map[string]*proxy{}, ca: envoytest.StartAuthority(t)}
	c.net = envoytest.NewNetwork(t, "client", "near", "far1", "far2", "bare", "gateway1", "gateway2")
	c.apart(t, east, west)
	c.apart(t, west, east)
	pods := map[string]*corev1.Pod{}
	for _, name := range []string{"client", "near", "far1", "far2"} {
		pods[name] = meshed(c.ns(name))
	}
	c.serve(t, "near", "far1", "far2", "bare")
	web, far, db, api, home, plain := service("web", "10.96.1.1", "http", 80), service("far", "10.96.1.2", "http", 80), service("db", "10.96.1.3", "tcp", 9000),
		service("api", "10.96.1.4", "grpc", 83), service("home", "10.96.1.5", "http", 80), service("plain", "10.96.1.6", "http", 80)
	of := func(name string, port uint16) endpoint {
		return endpoint{addr: podPort(c.ns(name), port), pod: name}
	}
	c.far = far
	c.west = []any{
		pods["far1"], pods["far2"], pod("bare", c.ns("bare").Addr.String(), "", nil),
		web, slicesOf(web, of("far1", webPort), of("far2", webPort)), far, slicesOf(far, of("far1", webPort)), db, slicesOf(db, of("far1", dbPort)),
		api, slicesOf(api, of("far2", greeterPort)), plain, slicesOf(plain, of("bare", webPort)), home,
	}
	c.startOn(t, files{
		"networks.yaml": {"networks: {n1: {endpoints: [{fromRegistry: east}]}, n2: {endpoints: [{fromRegistry: west}]}}"},
		"east/all.yaml": {gatewayServer, gateway("n1", c.ns("gateway1").Addr), pods["client"], pods["near"],
			web, slicesOf(web, of("near", webPort)), far, db, api, plain, home, slicesOf(home, of("near", webPort))},
		"west/all.yaml":     c.west,
		"west/gateway.yaml": {gateway("n2", c.ns("gateway2").Addr)},
	}, netip.AddrPortFrom(c.net.Host, 15010).String())
	for _, name := range []string{"client", "near", "far1", "far2"} {
		c.sidecar(t, name)
	}
	c.router(t, "gateway1", east, "n1")
	c.router(t, "gateway2", west, "n2")
	return c
}

// startOn starts the hub on the files or, with API servers, on what they hold.
func (c *crossing) startOn(t *testing.T, content files, grpc string) {
	t.Helper()
	if c.api == nil {
		c.startAt(t, content, grpc)
		return
	}
	const networks = "networks.yaml"
	c.mesh.write(t, networks, content[networks]...)
	delete(content, networks)
	for path, objects := range content {
		c.api.write(t, path, objects)
	}
	c.args = c.api.flags(t, filepath.Join(c.dir, networks))
	c.dir = ""
	c.startAt(t, nil, grpc)
}

// write replaces the objects of a path.
func (c *crossing) write(t *testing.T, path string, objects ...any) {
	t.Helper()
	if c.api == nil {
		c.mesh.write(t, path, objects...)
		return
	}
	c.api.write(t, path, objects)
}

func (c *crossing) remove(t *testing.T, path string) {
	t.Helper()
	if c.api == nil {
		c.mesh.remove(t, path)
		return
	}
	c.api.write(t, path, nil)
}

// apart drops and counts what workloads of one network send to those of another.
func (c *crossing) apart(t *testing.T, from, to string) {
	t.Helper()
	var there []string
	for _, name := range workloadsOf(to) {
		there = append(there, c.ns(name).Addr.String())
	}
	rules := fmt.Sprintf(`
table ip apart {
	chain out {
		type filter hook output priority 10; policy accept;
		tcp flags & (syn | ack) == syn ip daddr { %s } counter drop
	}
}
`, strings.Join(there, ", "))
	here := append(workloadsOf(from), map[string]string{east: "gateway1", west: "gateway2"}[from])
	for _, name := range here {
		if err := c.ns(name).Run(t.Context(), rules, "nft", "-f", "-"); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, name := range here {
			if n, err := c.ns(name).Output(context.Background(), "nft", "list", "table", "ip", "apart"); err != nil || !strings.Contains(n, "packets 0 ") {
				t.Errorf("%s has tried to reach the other network by itself: %s, %v", name, n, err)
			}
		}
	})
}

// serve runs the backends of workloads. Each says who it is.
func (c *crossing) serve(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		cluster := east
		if slices.Contains(workloadsOf(west), name) {
			cluster = west
		}
		for port, kind := range map[uint16]envoytest.Kind{webPort: envoytest.HTTP1, dbPort: envoytest.TCP, greeterPort: envoytest.GRPC, unknownPort: envoytest.HTTP1} {
			envoytest.StartBackend(t, envoytest.BackendOptions{Kind: kind, Name: name, Cluster: cluster, Namespace: c.ns(name), Addr: podPort(c.ns(name), port)})
		}
	}
}

// sidecar intercepts a workload's traffic.
func (c *crossing) sidecar(t *testing.T, name string) {
	t.Helper()
	cluster, network := east, "n1"
	if slices.Contains(workloadsOf(west), name) {
		cluster, network = west, "n2"
	}
	ns := c.ns(name)
	if err := ns.Intercept(t.Context()); err != nil {
		t.Fatal(err)
	}
	o := c.complete(t, name, certified(t, c.ca, name, bootstrap.Options{IP: ns.Addr, Cluster: cluster, Network: network,
		Interception: bootstrap.Redirect, SotW: c.sotw}))
	c.proxies[name] = c.run(t, ns.Addr, envoytest.Options{Name: name, Bootstrap: config(t, o), Namespace: ns, UID: envoytest.ProxyUID})
}

// router runs a network's gateway. It has no certificates: it needs none.
func (c *crossing) router(t *testing.T, name, cluster, network string) {
	t.Helper()
	ns := c.ns(name)
	o := c.complete(t, name, bootstrap.Options{Type: bootstrap.Router, IP: ns.Addr, Cluster: cluster, Network: network, SotW: c.sotw,
		Labels: map[string]string{"istio": "eastwestgateway"}})
	c.proxies[name] = c.run(t, ns.Addr, envoytest.Options{Name: name, Bootstrap: config(t, o), Namespace: ns})
}

// from makes one request from a workload.
func (c *crossing) from(ctx context.Context, name, addr, host string) (envoytest.Answer, error) {
	return envoytest.Get(ctx, c.ns(name).HTTPClient(), "http://"+addr+"/", host)
}

// reaches waits until a workload gets an answer of another.
func (c *crossing) reaches(t *testing.T, from, addr, host, want string) {
	t.Helper()
	envoytest.Eventually(t, limit, fmt.Sprintf("%s to get an answer of %s from %s", from, want, addr), func() error {
		a, err := c.from(t.Context(), from, addr, host)
		return same(a.Name+" in "+a.Cluster, want, err)
	})
}

// fails waits until a workload's requests end with the status, or without one if
// it is 0.
func (c *crossing) fails(t *testing.T, from, addr, host string, status int) {
	t.Helper()
	envoytest.Eventually(t, limit, fmt.Sprintf("%s to be refused by %s with %d", from, addr, status), func() error {
		_, err := c.from(t.Context(), from, addr, host)
		if status != 0 || err == nil {
			return refusal(err, status)
		}
		var answered *envoytest.StatusError
		if errors.As(err, &answered) {
			return err
		}
		return nil
	})
}

// entered counts the connections that came in at a gateway.
func (c *crossing) entered(t *testing.T, name string) uint64 {
	t.Helper()
	n, err := c.proxies[name].Stat(t.Context(), "tcp.passthrough.downstream_cx_total")
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// explained waits until the hub gives the reason why a proxy is not sent an
// endpoint of a service; "" if it is sent.
func (c *crossing) explained(t *testing.T, proxy, service, addr, reason string) {
	t.Helper()
	at := fmt.Sprintf("%s/debug/servicez?host=%s&proxyID=%s.%s", c.hub.URL, host(service), proxy, namespace)
	envoytest.Eventually(t, limit, fmt.Sprintf("%s of %s to be explained to %s as %q", addr, service, proxy, reason), func() error {
		body, err := c.hub.Get(t.Context(), at)
		if err != nil {
			return err
		}
		var all []struct {
			Endpoints []struct{ Address, Reason, Detail string }
		}
		if err := json.Unmarshal(body, &all); err != nil {
			return err
		}
		for _, x := range all {
			for _, e := range x.Endpoints {
				if e.Address == addr {
					return same(e.Reason, reason, nil)
				}
			}
		}
		return fmt.Errorf("%s is not mentioned: %s", addr, body)
	})
}
