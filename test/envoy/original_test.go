package envoy_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// originalEntry is a ServiceEntry whose connections go where they were going.
func originalEntry(host, addresses, protocol string, port uint16) string {
	return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: original-%d, namespace: %s}
spec:
  hosts: [%q]
  addresses: [%s]
  location: MESH_EXTERNAL
  resolution: NONE
  ports: [{number: %d, name: p, protocol: %s}]`, port, namespace, host, addresses, port, protocol)
}

// Entries of resolution NONE are reached at their original destinations where
// nothing else outside the mesh is: at any address of a port, at one address,
// in a range, and by host.
func TestOriginalDestination(t *testing.T) {
	envoytest.RequireRoot(t)
	modes(t, func(t *testing.T, sotw bool) {
		net := envoytest.NewNetwork(t, "client", "outside")
		w := &intercepted{mesh: newMesh(t), client: net.Namespace("client"), outside: net.Namespace("outside")}
		serve := func(kind envoytest.Kind, port uint16) string {
			return envoytest.StartBackend(t, envoytest.BackendOptions{
				Kind: kind, Name: "outside", Namespace: w.outside, Addr: podPort(w.outside, port)}).Addr
		}
		anywhere, address, inRange, web := serve(envoytest.TCP, 5001), serve(envoytest.TCP, 5002), serve(envoytest.TCP, 5003), serve(envoytest.HTTP1, 5004)
		w.startAt(t, files{
			"mesh.yaml":     {"outboundTrafficPolicy: {mode: REGISTRY_ONLY}"},
			"east/all.yaml": {pod("client", w.client.Addr.String(), "", nil)},
		}, netip.AddrPortFrom(net.Host, 15010).String())
		w.intercept(t, w.client, sotw)
		for _, addr := range []string{anywhere, address, inRange, web} {
			if err := mustFail(envoytest.EchoTCP(t.Context(), w.client, addr, "ping\n")); err != nil {
				t.Errorf("%s is reached before anything is known of it: %v", addr, err)
			}
		}
		w.write(t, "east/original.yaml",
			originalEntry("anywhere.example", "", "TCP", 5001),
			originalEntry("address.example", w.outside.Addr.String(), "TCP", 5002),
			originalEntry("range.example", net.Subnet.String(), "TCP", 5003),
			originalEntry("*.web.example", "", "HTTP", 5004))
		w.echo(t, w.client, anywhere, "outside")
		w.echo(t, w.client, address, "outside")
		w.echo(t, w.client, inRange, "outside")
		w.get(t, w.client, web, "a.web.example", "outside", false)
		envoytest.Eventually(t, limit, "another host to be refused", func() error {
			_, err := envoytest.Get(t.Context(), w.client.HTTPClient(), "http://"+web+"/", "a.other.example")
			return refusal(err, 502)
		})
	})
}
