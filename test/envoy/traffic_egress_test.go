package envoy_test

import (
	"fmt"
	"testing"

	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

const partner = "partner.example"

// refused waits until the client gets no further than its own sidecar with a connection.
func (w *roads) refused(t *testing.T, addr string) {
	t.Helper()
	envoytest.Eventually(t, limit, addr+" to be refused", func() error {
		return mustFail(w.connects(t.Context(), addr))
	})
}

// egress: what is outside is reached where a ServiceEntry says so, as routes of it say; and nothing else, where the
// mesh says so.
func (w *roads) egress(t *testing.T) {
	w.serves(t, "near", "http", 80, webPort) // so that the sidecar listens at the port
	web, stream := podPort(w.outside, 80), podPort(w.outside, unknownPort)
	asks := request{path: "/a", host: partner}
	w.until(t, web, asks, "what is not known to be refused", status(502))
	w.refused(t, stream)

	w.write(t, "east/partner.yaml",
		object("ServiceEntry", "partner", fmt.Sprintf(`
hosts: [%s]
location: MESH_EXTERNAL
resolution: STATIC
ports: [{number: 80, name: http, protocol: HTTP}]
endpoints: [{address: %s}]
`, partner, w.outside.Addr)),
		object("VirtualService", "partner", fmt.Sprintf(`
hosts: [%s]
http:
- match: [{uri: {prefix: /forbidden}}]
  directResponse: {status: 403}
- rewrite: {uri: /v2/}
  match: [{uri: {prefix: /}}]
  route: [{destination: {host: %[1]s}}]
`, partner)),
		object("ServiceEntry", "stream-of-partner", fmt.Sprintf(`
hosts: [stream.%s]
addresses: [%s]
location: MESH_EXTERNAL
resolution: NONE
ports: [{number: %d, name: tcp, protocol: TCP}]
`, partner, w.outside.Addr, unknownPort)))
	got := w.until(t, "10.98.0.1:80", asks, "the partner to be reached", named("outside")) // by its name, wherever that is said to be
	if got.Path != "/v2/a" || got.Host != partner {
		t.Errorf("the partner sees %s%s", got.Host, got.Path)
	}
	if got := w.must(t, web, request{path: "/forbidden", host: partner}); got.status != 403 {
		t.Errorf("what a route refuses: got %+v", got)
	}
	if got := w.must(t, web, request{host: "other.example"}); got.status != 502 {
		t.Errorf("another host: got %+v", got)
	}
	envoytest.Eventually(t, limit, "the partner's stream to be reached", func() error {
		name, err := w.connects(t.Context(), stream)
		return same(name, "outside", err)
	})

	w.remove(t, "east/partner.yaml")
	w.until(t, web, asks, "the partner to be refused", status(502))
	w.refused(t, stream)
}

// sidecars: a Sidecar says which services its proxies know, and what becomes of requests to others.
func (w *roads) sidecars(t *testing.T) {
	imported, hidden := w.serves(t, "imported", "http", 80, webPort), w.serves(t, "hidden", "http", 80, webPort)
	stream := w.serves(t, "hidden-stream", "tcp", dbPort+1, dbPort)
	web := podPort(w.outside, 80)
	asks := request{host: host("hidden")} // at an address outside
	known := func(r reply) bool { return r.Name == "v1" || r.Name == "v2" }
	reaches := func() error { _, err := w.connects(t.Context(), stream); return err }
	w.write(t, "mesh.yaml", "outboundTrafficPolicy: {mode: ALLOW_ANY}")
	w.until(t, web, request{host: "other.example"}, "what is not known to be let through", named("outside"))
	w.until(t, web, asks, "the service by its name", known)
	w.until(t, hidden, request{}, "the service by its address", known)
	envoytest.Eventually(t, limit, "the stream to be reached", reaches)

	sidecar := func(policy string) string {
		return object("Sidecar", "default", "egress: [{hosts: ['./"+host("imported")+"']}]\n"+policy)
	}
	w.write(t, "east/sidecar.yaml", sidecar(""))
	w.until(t, web, asks, "a service that is not imported to be let through as unknown", named("outside"))
	if got := w.must(t, imported, request{}); !known(got) {
		t.Errorf("the imported service: got %+v", got)
	}

	w.write(t, "east/sidecar.yaml", sidecar(registryOnly))
	w.until(t, web, asks, "a service that is not imported to be refused", status(502))
	w.refused(t, stream)
	if got := w.must(t, hidden, request{}); got.status != 502 {
		t.Errorf("its address: got %+v", got)
	}
	if got := w.must(t, web, request{host: "other.example"}); got.status != 502 {
		t.Errorf("what is not known: got %+v", got)
	}
	if got := w.must(t, imported, request{}); !known(got) {
		t.Errorf("the imported service: got %+v", got)
	}

	w.remove(t, "east/sidecar.yaml")
	w.until(t, web, asks, "the service by its name, again", known)
	envoytest.Eventually(t, limit, "the stream to be reached again", reaches)
	w.write(t, "mesh.yaml", registryOnly)
	w.until(t, web, request{host: "other.example"}, "what is not known to be refused", status(502))
}
