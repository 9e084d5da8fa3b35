package envoy_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/bootstrap"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// socketEntry is a ServiceEntry whose endpoint is a unix socket.
func socketEntry(host string, port uint16, protocol, socket string) string {
	return object("ServiceEntry", host, fmt.Sprintf(`
hosts: [%s]
location: MESH_INTERNAL
resolution: STATIC
ports: [{number: %d, name: p, protocol: %s}]
endpoints: [{address: "unix://%s"}]`, host, port, protocol, socket))
}

// TestUnixSockets: endpoints of ServiceEntries are reached at unix sockets, in the file system and by name, so is a workload behind
// its Sidecar's ingress listener, and a gateway listens at one.
func TestUnixSockets(t *testing.T) {
	modes(t, func(t *testing.T, sotw bool) {
		m, dir := newMesh(t), t.TempDir()
		at := func(name string) string { return filepath.Join(dir, name) }
		named := fmt.Sprintf("@isthmus-test-%s-%v", m.lo.Addr(0, 1), sotw)
		serve := func(kind envoytest.Kind, name, socket string) {
			envoytest.StartBackend(t, envoytest.BackendOptions{Kind: kind, Name: name, Addr: "unix://" + socket})
		}
		serve(envoytest.HTTP1, "web", at("web"))
		serve(envoytest.HTTP2, "api", named)
		serve(envoytest.TCP, "echo", at("echo"))
		serve(envoytest.HTTP1, "workload", at("workload"))
		m.start(t, files{"east/all.yaml": {
			socketEntry("web.example", 8007, "HTTP", at("web")), socketEntry("api.example", 8008, "HTTP2", named), socketEntry("echo.example", 9007, "TCP", at("echo")),
			object("Sidecar", "served", fmt.Sprintf(`
workloadSelector: {labels: {app: served}}
ingress: [{port: {number: 9300, name: http, protocol: HTTP}, defaultEndpoint: "unix://%s"}]
egress: [{hosts: ["./*"]}]`, at("workload"))),
			object("Gateway", "sockets", fmt.Sprintf("selector: {app: edge}\nservers: [{port: {number: 0, name: http, protocol: HTTP}, bind: \"unix://%s\", hosts: ['*']}]", at("edge"))),
			object("VirtualService", "edge", "hosts: [edge.example]\ngateways: [sockets]\nhttp: [{route: [{destination: {host: web.example}}]}]"),
		}})
		p := m.launch(t, "client", bootstrap.Options{SotW: sotw})
		p.answers(t, "web.example", 8007, "web")
		p.answers(t, "api.example", 8008, "api")
		envoytest.Eventually(t, limit, "TCP to the socket", func() error {
			line, err := envoytest.EchoTCP(t.Context(), p.ns, p.addr(9007), "ping\n")
			return same(line, "echo ", err)
		})
		served := m.launch(t, "served", bootstrap.Options{SotW: sotw, Labels: map[string]string{"app": "served"}})
		served.answers(t, "anything.example", 9300, "workload")

		m.launch(t, "edge", bootstrap.Options{SotW: sotw, Type: bootstrap.Router, Labels: map[string]string{"app": "edge"}})
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", at("edge"))
		}}}
		envoytest.Eventually(t, limit, "the gateway's socket to answer", func() error {
			a, err := envoytest.Get(t.Context(), client, "http://gateway/", "edge.example")
			return same(a.Name, "web", err)
		})
	})
}
