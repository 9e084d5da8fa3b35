package client_test

import (
	"log/slog"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/mcp/client"
	"github.com/isthmus-mesh/isthmus/test/env"
)

var servers env.Pool

func upstream(name string, port int, addresses string) string {
	return `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: ` + name + `, namespace: shop, labels: {team: pay}}
spec:
  hosts: [` + name + `.example.com]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{name: http, number: ` + itoa(port) + `, protocol: HTTP}]
  endpoints: [` + addresses + `]
`
}

const routes = `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: pay, namespace: shop}
spec:
  hosts: [pay.example.com]
  http: [{route: [{destination: {host: pay.example.com}}], timeout: 3s}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: pay, namespace: shop}
spec: {host: pay.example.com, trafficPolicy: {tls: {mode: DISABLE}}}
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: odd, namespace: shop}
spec: {configPatches: []}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: shop}
spec: {mtls: {mode: STRICT}}
`

// What an istiod reads from its API server arrives as rows; while it is away nothing goes, and what was deleted
// meanwhile goes when it is back. Incident 76, with a real config server.
func TestIncident76RealIstiodRestarts(t *testing.T) {
	if testing.Short() {
		t.Skip("runs an API server and an istiod")
	}
	c := servers.Take(t, 1)[0]
	c.Apply(t, upstream("pay", 80, "{address: 10.1.0.1}"), upstream("mail", 25, "{address: 10.1.0.2}"), routes, env.App("shop/cart", 80, "", "10.1.0.9"))
	i := c.Istiod(t)
	for name, plain := range map[string]bool{"delta": false, "state of the world": true} {
		t.Run(name, func(t *testing.T) {
			c.Apply(t, upstream("mail", 25, "{address: 10.1.0.2}"))
			r := run(t, client.Options{Name: "upstream", Addresses: []string{i.Address}, NoDelta: plain, Log: slog.Default()})
			r.host("pay.example.com", "10.1.0.1")
			r.host("mail.example.com", "10.1.0.2")
			r.state(model.StateLive)
			r.config("VirtualService", "shop/pay")
			r.config("DestinationRule", "shop/pay")
			r.config("EnvoyFilter", "shop/odd")
			r.config("PeerAuthentication", "shop/default")
			r.config("MeshConfig", "/mesh")
			r.noHost("cart.shop.svc.cluster.local") // a Service there: clusters are read from their API servers
			c.Apply(t, upstream("pay", 80, "{address: 10.1.0.1}, {address: 10.1.0.3}"))
			r.host("pay.example.com", "10.1.0.1", "10.1.0.3")
			i.Stop()
			r.state(model.StateStale)
			r.host("mail.example.com", "10.1.0.2")
			c.Delete(t, upstream("mail", 25, ""))
			c.Apply(t, upstream("pay", 80, "{address: 10.1.0.1}"))
			i.Start(t)
			r.state(model.StateLive)
			r.noHost("mail.example.com")
			r.host("pay.example.com", "10.1.0.1")
			r.config("VirtualService", "shop/pay")
			r.stop()
		})
	}
}
