package multicluster_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/isthmus-mesh/isthmus/test/env"
)

// kubeGateway is an east-west gateway of the Gateway API, on a network if label says so.
func kubeGateway(label, class, address string) string {
	return fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: eastwest, namespace: istio-system, labels: {%s}}
spec:
  gatewayClassName: %s
  listeners: [{name: tls, port: 15443, protocol: TLS, tls: {mode: Passthrough, options: {gateway.istio.io/listener-protocol: auto-passthrough}}}]
status: {addresses: [{type: IPAddress, value: %s}]}
`, label, class, address)
}

// A Gateway that loses its network, or its class, is a gateway no more.
func TestDefect04GatewayWithoutItsLabel(t *testing.T) {
	m := newMesh(t, 1)
	m.foo(primary, "c1")
	m.network(primary, "n1", "203.0.113.1")
	m.apply("c1", env.Namespace(system, env.NetworkLabel, "n2"), kubeGateway(env.NetworkLabel+": n2", "istio", "203.0.113.2"))
	m.join("c1")
	m.serve()
	p := m.proxy("client.shop", "network=n1")
	p.has("foo.shop", "10.0.0.1", "203.0.113.2:15443")
	m.apply("c1", kubeGateway("", "istio", "203.0.113.2"))
	p.has("foo.shop", "10.0.0.1", "10.1.0.1")
	m.apply("c1", kubeGateway(env.NetworkLabel+": n2", "istio", "203.0.113.2"))
	p.has("foo.shop", "10.0.0.1", "203.0.113.2:15443")
	m.apply("c1", kubeGateway(env.NetworkLabel+": n2", "istio-remote", "203.0.113.2"))
	p.has("foo.shop", "10.0.0.1", "10.1.0.1")
}

// A gateway that moves is followed for services that proxies resolve by DNS as well.
func TestDefect02MovedGatewayReachesDNSClusters(t *testing.T) {
	m := newMesh(t, 1)
	m.foo(primary, "c1")
	m.network(primary, "n1", "203.0.113.1")
	m.network("c1", "n2", "203.0.113.2")
	m.apply(primary, `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: db, namespace: shop}
spec:
  hosts: [db.mesh]
  location: MESH_INTERNAL
  resolution: DNS
  ports: [{name: http, number: 80, protocol: HTTP}]
  endpoints: [{address: db.example.com, network: n2, labels: {security.istio.io/tlsMode: istio}}]
`)
	m.join("c1")
	m.serve()
	p := m.proxy("client.shop", "network=n1")
	inline := func(want string) {
		t.Helper()
		m.eventually("db.mesh at "+want, func() error {
			c, err := p.cluster("db.mesh")
			if err != nil {
				return err
			}
			var got []string
			for _, g := range c.LoadAssignment.GetEndpoints() {
				for _, e := range g.LbEndpoints {
					s := e.GetEndpoint().GetAddress().GetSocketAddress()
					got = append(got, fmt.Sprintf("%s:%d", s.GetAddress(), s.GetPortValue()))
				}
			}
			if len(got) != 1 || got[0] != want {
				return fmt.Errorf("%q", got)
			}
			return nil
		})
	}
	inline("203.0.113.2:15443")
	p.has("foo.shop", "10.0.0.1", "203.0.113.2:15443")
	m.apply("c1", eastWest("n2", "203.0.113.3"))
	p.has("foo.shop", "10.0.0.1", "203.0.113.3:15443")
	inline("203.0.113.3:15443")
}

// Gateways of two networks at one address: every hub gives the same answer.
func TestDefect09GatewaysThatDifferInTheirNetworkOnly(t *testing.T) {
	m := newMesh(t, 2)
	m.foo(primary, "c1", "c2")
	m.network(primary, "n1", "203.0.113.1")
	m.network("c1", "n2", "203.0.113.2")
	m.network("c2", "n3", "203.0.113.2")
	m.join("c1", "c2")
	m.serve()
	first := m.proxy("client.shop", "network=n1")
	first.has("foo.shop", "10.0.0.1", "203.0.113.2:15443")
	other := m.replica()
	p := other.proxy("client.shop", "network=n1")
	p.has("foo.shop", "10.0.0.1", "203.0.113.2:15443")
	if a, b := fmt.Sprint(first.endpoints("foo.shop")), fmt.Sprint(p.endpoints("foo.shop")); a != b {
		t.Errorf("two hubs disagree:\n %s\n %s", a, b)
	}
}

// A gateway without load balancer: at the node ports of chosen nodes, or at external IPs.
func TestGatewaysAtNodesAndExternalIPs(t *testing.T) {
	m := newMesh(t, 1)
	m.foo(primary, "c1")
	m.network(primary, "n1", "203.0.113.1")
	m.network("c1", "n2")
	edge := func(ip string) *corev1.Node {
		n := env.Node("edge-1", "r1", "z1", ip)
		n.Labels["role"] = "edge"
		return n
	}
	gateway := eastWest("n2")
	gateway.Spec.Type, gateway.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 31443
	gateway.Annotations = map[string]string{"traffic.istio.io/nodeSelector": `{"role": "edge"}`}
	m.apply("c1", env.Node("other-1", "r1", "z1", "198.51.100.8"), edge("198.51.100.7"), gateway)
	m.join("c1")
	m.serve()
	p := m.both("client.shop", "network=n1")
	p.has("foo.shop", "10.0.0.1", "198.51.100.7:31443")
	m.apply("c1", edge("198.51.100.9"))
	p.has("foo.shop", "10.0.0.1", "198.51.100.9:31443")
	m.remove("c1", edge("")) // no node is left: the network can't be entered
	p.has("foo.shop", "10.0.0.1")
	gateway.Spec.ExternalIPs = []string{"198.51.100.20"}
	m.apply("c1", gateway)
	p.has("foo.shop", "10.0.0.1", "198.51.100.20:15443")
}
