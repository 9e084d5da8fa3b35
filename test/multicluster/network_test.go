package multicluster_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/test/env"
)

const gatewayPort = 15443

// eastWest is a Service that is the east-west gateway of a network, at addresses.
func eastWest(network string, addresses ...string) *corev1.Service {
	svc := env.Service(system+"/eastwest", gatewayPort)
	svc.Labels = map[string]string{env.NetworkLabel: network}
	svc.Spec.Type = corev1.ServiceTypeLoadBalancer
	svc.Spec.Ports[0].Name = "tls"
	for _, a := range addresses {
		in := corev1.LoadBalancerIngress{IP: a}
		if strings.ContainsAny(a, "ghijklmnopqrstuvwxyz") {
			in = corev1.LoadBalancerIngress{Hostname: a}
		}
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, in)
	}
	return svc
}

// network puts a cluster on a network, with a gateway at the addresses.
func (m *mesh) network(id, network string, addresses ...string) {
	m.Helper()
	m.apply(id, env.Namespace(system, env.NetworkLabel, network))
	if len(addresses) > 0 {
		m.apply(id, eastWest(network, addresses...))
	}
}

// explainFor is what /debug/servicez says of a host for a proxy.
func (m *mesh) explainFor(host, proxy string) (debug.Explanation, error) {
	var out []debug.Explanation
	if err := m.ask("/debug/servicez?host="+host+"&proxyID="+proxy, &out); err != nil {
		return debug.Explanation{}, err
	}
	if len(out) != 1 {
		return debug.Explanation{}, fmt.Errorf("%d services %s", len(out), host)
	}
	return out[0], nil
}

// leftOut waits until an endpoint is left out, for a proxy, with a reason; "" is any.
func (m *mesh) leftOut(host, proxy, address, reason string) {
	m.Helper()
	m.eventually(fmt.Sprintf("%s left out of %s for %s: %s", address, host, proxy, reason), func() error {
		out, err := m.explainFor(host, proxy)
		if err != nil {
			return err
		}
		for _, e := range out.Endpoints {
			if strings.HasPrefix(e.Address, address) && e.Reason != "" && strings.HasPrefix(e.Reason, reason) {
				return nil
			}
		}
		return fmt.Errorf("%+v", out)
	})
}

const foo = "foo.shop.svc.cluster.local"

// Endpoints of another network are reached through its gateway, by those who can speak mutual TLS; a
// gateway that moves is followed.
func TestNetworksMeetAtGateways(t *testing.T) {
	m := newMesh(t, 2)
	m.foo(primary, "c1", "c2")
	m.network(primary, "n1", "203.0.113.1")
	m.network("c1", "n1")
	m.network("c2", "n2", "203.0.113.2")
	m.join("c1", "c2")
	m.serve()
	here, there := m.proxy("here.shop", "network=n1"), m.proxy("there.shop", "network=n2", "cluster=c2", "ip=10.250.0.2")
	here.has("foo.shop", "10.0.0.1", "10.1.0.1", "203.0.113.2:15443")
	there.has("foo.shop", "203.0.113.1:15443", "10.2.0.1")
	a := there.where("foo.shop", "both", func(a assignment) bool { return len(a) == 2 })
	if a.at("203.0.113.1:15443").weight != 2*a.at("10.2.0.1:8080").weight {
		t.Errorf("weights %+v, want the gateway's to be that of the two behind it", a)
	}
	m.apply("c2", eastWest("n2", "203.0.113.20", "203.0.113.21"))
	here.has("foo.shop", "10.0.0.1", "10.1.0.1", "203.0.113.20:15443", "203.0.113.21:15443")
	bare := m.proxy("bare.shop", "network=n1", "ip=10.250.0.3", "tls=off")
	bare.has("foo.shop", "10.0.0.1", "10.1.0.1")
	m.leftOut(foo, "bare.shop", "10.2.0.1", "NoMTLS")
	viewing := m.proxy("viewing.shop", "network=n1", "ip=10.250.0.4", "REQUESTED_NETWORK_VIEW=n1")
	viewing.has("foo.shop", "10.0.0.1", "10.1.0.1")

	const plain = `
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: shop}
spec: {mtls: {mode: DISABLE}}
`
	m.apply(primary, plain)
	here.has("foo.shop", "10.0.0.1", "10.1.0.1")
	m.leftOut(foo, "here.shop", "10.2.0.1", "NoMTLS")
	m.remove(primary, plain)
	here.has("foo.shop", "10.0.0.1", "10.1.0.1", "203.0.113.20:15443", "203.0.113.21:15443")

	// A cluster that moves to another network.
	m.network("c1", "n2")
	here.where("foo.shop", "the moved endpoint behind the gateways", func(a assignment) bool {
		return len(a) == 3 && a.at("203.0.113.20:15443").weight == a.at("10.0.0.1:8080").weight && a.at("10.1.0.1:8080").address == ""
	})
	there.has("foo.shop", "203.0.113.1:15443", "10.1.0.1", "10.2.0.1")
	m.network("c1", "n1")
	here.has("foo.shop", "10.0.0.1", "10.1.0.1", "203.0.113.20:15443", "203.0.113.21:15443")
	// A network without any gateway is taken as one that can be reached.
	m.remove("c2", eastWest("n2"))
	here.has("foo.shop", "10.0.0.1", "10.1.0.1", "10.2.0.1")
}

// A gateway's host name that cannot be resolved: networks stay apart.
func TestIncident61UnresolvedGatewayKeepsNetworksApart(t *testing.T) {
	m := newMesh(t, 1)
	m.foo(primary, "c1")
	m.network(primary, "n1", "203.0.113.1")
	m.network("c1", "n2", "gateway.invalid")
	m.join("c1")
	m.serve()
	here := m.proxy("here.shop", "network=n1")
	here.has("foo.shop", "10.0.0.1")
	m.leftOut(foo, "here.shop", "10.1.0.1", "NoGateway")
	m.fence([]string{primary}, here)
	here.never("foo.shop", "10.1.0.1")
	m.apply("c1", eastWest("n2", "203.0.113.2"))
	here.has("foo.shop", "10.0.0.1", "203.0.113.2:15443")
}

// Endpoints that are not ready add no weight to their network's gateway, and all of them no gateway.
func TestIncident63NetworkOfUnreadyEndpoints(t *testing.T) {
	m := newMesh(t, 1)
	m.foo(primary)
	m.network(primary, "n1", "203.0.113.1")
	m.network("c1", "n2", "203.0.113.2")
	objects := env.App("shop/foo", 80, "", "10.1.0.1", "10.1.0.2")
	slice := env.Slice("shop/foo", env.AppPort, "10.1.0.1", "10.1.0.2")
	ready := func(v ...bool) {
		for i := range v {
			slice.Endpoints[i].Conditions.Ready = &v[i]
		}
		m.apply("c1", slice)
	}
	m.apply("c1", objects[:3])
	ready(false, false)
	m.join("c1")
	m.serve()
	here := m.proxy("here.shop", "network=n1")
	here.where("foo.shop", "no healthy gateway", func(a assignment) bool {
		return a.at("10.0.0.1:8080").address != "" && a.at("203.0.113.2:15443").health != 1
	})
	ready(true, false)
	one := here.where("foo.shop", "a healthy gateway", func(a assignment) bool { return a.at("203.0.113.2:15443").health == 1 })
	if one.at("203.0.113.2:15443").weight != one.at("10.0.0.1:8080").weight {
		t.Errorf("weights %+v, want that of one endpoint at both", one)
	}
	ready(true, true)
	here.where("foo.shop", "twice the weight at the gateway", func(a assignment) bool {
		return a.at("203.0.113.2:15443").weight == 2*a.at("10.0.0.1:8080").weight
	})
}

// A WorkloadEntry without address that names a network is that network's gateway, also for a proxy on
// no network.
func TestIncident64WorkloadEntryWithANetworkOnly(t *testing.T) {
	m := newMesh(t, 1)
	m.network("c1", "n2", "203.0.113.2")
	m.apply(primary, entry("app.mesh", httpPort, "app: x"),
		vm("w", `network: n2, labels: {app: x, security.istio.io/tlsMode: istio}, serviceAccount: w`))
	m.join("c1")
	m.serve()
	here, there := m.proxy("here.shop"), m.proxy("there.shop", "cluster=c1", "network=n2", "ip=10.250.0.2")
	here.has("app.mesh", "203.0.113.2:15443")
	there.has("app.mesh")
	m.remove("c1", eastWest("n2"))
	here.has("app.mesh")
	m.apply("c1", eastWest("n2", "203.0.113.3"))
	here.has("app.mesh", "203.0.113.3:15443")
}

// One virtual address, of two services in two clusters: each is for the proxies of its own cluster.
func TestIncident66VirtualAddressesStayInTheirCluster(t *testing.T) {
	m := newMesh(t, 1)
	const vip = "10.96.7.7"
	for id, name := range map[string]string{primary: "mysql", "c1": "pg"} {
		svc := env.Service("shop/"+name, 3306)
		svc.Spec.ClusterIP, svc.Spec.Ports[0].Name = vip, "tcp"
		m.apply(id, svc)
	}
	m.join("c1")
	m.serve()
	listens := func(p *proxy, service string) {
		t.Helper()
		m.eventually("a listener at the address for "+service, func() error {
			for name, body := range p.listeners() {
				if strings.HasPrefix(name, vip+"_") {
					if strings.Contains(body, outbound(service+":3306")) {
						return nil
					}
					return fmt.Errorf("listener %s is for another", name)
				}
			}
			return fmt.Errorf("there is no listener at %s", vip)
		})
	}
	one, two := m.proxy("one.shop"), m.proxy("two.shop", "cluster=c1", "ip=10.250.0.2")
	listens(one, "mysql.shop")
	listens(two, "pg.shop")
	m.fence([]string{primary, "c1"}, one, two)
	listens(one, "mysql.shop")
	listens(two, "pg.shop")

	headless := env.App("shop/db", 80, "", "10.1.0.7")
	headless[0].(*corev1.Service).Spec.ClusterIP = corev1.ClusterIPNone
	m.network(primary, "n1", "203.0.113.1")
	m.network("c1", "n2", "203.0.113.2")
	m.apply("c1", headless)
	far := m.proxy("far.shop", "network=n1", "ip=10.250.0.3")
	m.explained("db.shop", "its endpoint", func(e debug.Explanation) bool { return len(e.Endpoints) == 1 })
	m.leftOut("db.shop.svc.cluster.local", "far.shop", "10.1.0.7", "")
	m.fence([]string{primary, "c1"}, far)
	if names := slices.Sorted(maps.Keys(far.listeners())); slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, "10.1.0.7") }) {
		t.Errorf("listeners %q, one of which is at an address of another network", names)
	}
}

// settings are the mesh's, in the ConfigMap that Istio users have.
func settings(mesh, networks string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "istio"},
		Data:       map[string]string{"mesh": mesh, "meshNetworks": networks},
	}
}

const twoNetworks = `
networks:
  n1: {endpoints: [{fromRegistry: primary}]}
  n2: {endpoints: [{fromRegistry: c1}], gateways: [{%s, port: 15443}]}
`

// Networks as meshNetworks has them: by cluster, with gateways by address or by the Service that they
// are; a change takes effect at once.
func TestMeshNetworksOfTheConfigMap(t *testing.T) {
	m := newMesh(t, 1)
	m.foo(primary, "c1")
	m.apply(primary, settings("", fmt.Sprintf(twoNetworks, "address: 203.0.113.2")))
	m.join("c1")
	m.serve()
	p := m.proxy("client.shop", "network=n1")
	p.has("foo.shop", "10.0.0.1", "203.0.113.2:15443")
	m.apply(primary, settings("", fmt.Sprintf(twoNetworks, "address: 203.0.113.3")))
	p.has("foo.shop", "10.0.0.1", "203.0.113.3:15443")

	gateway := eastWest("", "203.0.113.4")
	gateway.Labels = nil
	m.apply("c1", gateway)
	m.apply(primary, settings("", fmt.Sprintf(twoNetworks, "registryServiceName: eastwest.istio-system.svc.cluster.local")))
	p.has("foo.shop", "10.0.0.1", "203.0.113.4:15443")
	gateway.Status.LoadBalancer.Ingress[0].IP = "203.0.113.5"
	m.apply("c1", gateway)
	p.has("foo.shop", "10.0.0.1", "203.0.113.5:15443")

	p.forget()
	m.apply(primary, settings("", "networks: [")) // a mistake changes nothing
	m.fence([]string{primary, "c1"}, p)
	p.has("foo.shop", "10.0.0.1", "203.0.113.5:15443")
	m.apply(primary, settings("", ""))
	p.has("foo.shop", "10.0.0.1", "10.1.0.1")
}

// Namespaces that the mesh's settings choose are read, in every cluster; another choice takes effect
// without a gap for what both choose.
func TestDiscoverySelectors(t *testing.T) {
	m := newMesh(t, 1)
	const choice = "discoverySelectors: [{matchLabels: {mesh: %s}}]"
	for _, id := range []string{primary, "c1"} {
		m.apply(id, env.Namespace("shop", "mesh", "a"), env.Namespace("other", "mesh", "b"), env.App("other/bar", 80, "", fooIP(id)))
	}
	m.foo(primary, "c1")
	m.apply(primary, settings(fmt.Sprintf(choice, "a"), ""))
	m.join("c1")
	m.serve()
	p := m.proxy("client.shop")
	p.has("foo.shop", "10.0.0.1", "10.1.0.1")
	p.lacks("bar.other")
	p.forget()
	m.apply(primary, settings("discoverySelectors: [{matchExpressions: [{key: mesh, operator: Exists}]}]", ""))
	p.has("bar.other", "10.0.0.1", "10.1.0.1")
	p.always("foo.shop", "10.0.0.1", "10.1.0.1")
	m.apply(primary, settings(fmt.Sprintf(choice, "b"), ""))
	p.lacks("foo.shop")
	p.has("bar.other", "10.0.0.1", "10.1.0.1")
	m.apply("c1", env.Namespace("shop", "mesh", "b")) // a namespace that comes to be chosen
	p.has("foo.shop", "10.1.0.1")
}

// A choice of namespaces that leaves the system namespace out does not hide the gateways in it.
func TestIncident61SelectorsDoNotHideGateways(t *testing.T) {
	m := newMesh(t, 1)
	for _, id := range []string{primary, "c1"} {
		m.apply(id, env.Namespace("shop", "mesh", "a"))
	}
	m.foo(primary, "c1")
	m.network(primary, "n1", "203.0.113.1")
	m.network("c1", "n2", "203.0.113.2")
	m.apply(primary, settings("discoverySelectors: [{matchLabels: {mesh: a}}]", ""))
	m.join("c1")
	m.serve()
	m.proxy("client.shop", "network=n1").has("foo.shop", "10.0.0.1", "203.0.113.2:15443")
}
