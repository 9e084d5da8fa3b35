package envoy_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/bootstrap"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// intercepted is a network with a client and a server workload, each with a
// sidecar that its namespace's firewall sends all TCP to, and a machine outside
// the mesh.
type intercepted struct {
	*mesh
	client, server, outside *envoytest.Namespace
}

// podPort is an address inside a namespace.
func podPort(ns *envoytest.Namespace, port uint16) string {
	return netip.AddrPortFrom(ns.Addr, port).String()
}

// Ports of the server workload.
const (
	webPort      = 8080
	echoPort     = 9000
	anyPort      = 8081
	anythingPort = 9001
	headlessPort = 8082
	apiPort      = 8083
	greeterPort  = 8084
	dbPort       = 9002
	unknownPort  = 7000 // of no service
	unknownTCP   = 7001
)

func newIntercepted(t *testing.T, sotw bool) *intercepted {
	t.Helper()
	net := envoytest.NewNetwork(t, "client", "server", "outside")
	w := &intercepted{mesh: newMesh(t), client: net.Namespace("client"), server: net.Namespace("server"), outside: net.Namespace("outside")}
	var objects []any
	serve := func(ns *envoytest.Namespace, kind envoytest.Kind, name string, port uint16) {
		envoytest.StartBackend(t, envoytest.BackendOptions{Kind: kind, Name: name, Namespace: ns, Addr: podPort(ns, port)})
	}
	add := func(kind envoytest.Kind, name, vip, portName string, port, target uint16) {
		s := service(name, vip, portName, port)
		serve(w.server, kind, name, target)
		objects = append(objects, s, slicesOf(s, endpoint{addr: podPort(w.server, target), pod: "server"}))
	}
	add(envoytest.HTTP1, "web", "10.96.0.1", "http", 80, webPort)
	add(envoytest.TCP, "echo", "10.96.0.2", "tcp", echoPort, echoPort)
	add(envoytest.HTTP1, "any", "10.96.0.3", "", 81, anyPort)
	add(envoytest.TCP, "anything", "10.96.0.4", "", anythingPort, anythingPort)
	add(envoytest.HTTP1, "headless", "", "http", headlessPort, headlessPort)
	add(envoytest.TCP, "db", "", "tcp", dbPort, dbPort)
	add(envoytest.HTTP2, "api", "10.96.0.5", "http2", 82, apiPort)
	add(envoytest.GRPC, "greeter", "10.96.0.6", "grpc", 83, greeterPort)
	serve(w.server, envoytest.HTTP1, "unknown", unknownPort)
	serve(w.server, envoytest.TCP, "unknown", unknownTCP)
	serve(w.outside, envoytest.HTTP1, "outside", 80)
	serve(w.outside, envoytest.TCP, "outside", unknownPort)
	objects = append(objects,
		pod("server", w.server.Addr.String(), "", nil), pod("client", w.client.Addr.String(), "", nil))
	w.startAt(t, files{"east/all.yaml": objects}, netip.AddrPortFrom(net.Host, 15010).String())
	for _, ns := range []*envoytest.Namespace{w.client, w.server} {
		w.intercept(t, ns, sotw)
	}
	return w
}

// intercept sends a namespace's traffic to a sidecar, and starts it.
func (m *mesh) intercept(t testing.TB, ns *envoytest.Namespace, sotw bool) *proxy {
	t.Helper()
	if err := ns.Intercept(t.Context()); err != nil {
		t.Fatal(err)
	}
	o := m.complete(t, ns.Name, bootstrap.Options{IP: ns.Addr, Interception: bootstrap.Redirect, SotW: sotw})
	return m.run(t, ns.Addr, envoytest.Options{Name: ns.Name, Bootstrap: config(t, o), Namespace: ns, UID: envoytest.ProxyUID})
}

// inbound is what a workload sees as its peer when its own sidecar calls it.
const inbound = "127.0.0.6:"

// get asks an address in a namespace for a host, and checks the answer and
// whether it passed the sidecar of the one who gave it.
func (w *intercepted) get(t *testing.T, ns *envoytest.Namespace, addr, host, want string, sidecar bool) {
	t.Helper()
	envoytest.Eventually(t, limit, fmt.Sprintf("%s to get an answer of %s from %s for %q", ns.Name, want, addr, host), func() error {
		a, err := envoytest.Get(t.Context(), ns.HTTPClient(), "http://"+addr+"/", host)
		if err = same(a.Name, want, err); err == nil && strings.HasPrefix(a.From, inbound) != sidecar {
			err = fmt.Errorf("the peer was %s", a.From)
		}
		return err
	})
}

func (w *intercepted) echo(t *testing.T, ns *envoytest.Namespace, addr, want string) {
	t.Helper()
	envoytest.Eventually(t, limit, fmt.Sprintf("%s to reach %s at %s", ns.Name, want, addr), func() error {
		line, err := envoytest.EchoTCP(t.Context(), ns, addr, "ping\n")
		return same(strings.TrimSpace(line), want, err)
	})
}

func (w *intercepted) grpc(t *testing.T, ns *envoytest.Namespace, addr, want string) {
	t.Helper()
	envoytest.Eventually(t, limit, fmt.Sprintf("%s to call %s at %s", ns.Name, want, addr), func() error {
		a, err := envoytest.EchoGRPC(t.Context(), ns, addr, host(want))
		return same(a.Name, want, err)
	})
}

func TestTransparentInterception(t *testing.T) {
	envoytest.RequireRoot(t)
	modes(t, func(t *testing.T, sotw bool) {
		w := newIntercepted(t, sotw)

		w.get(t, w.client, "10.96.0.1:80", "", "web", true)
		w.get(t, w.client, "10.96.0.1:80", host("web"), "web", true)
		w.get(t, w.client, "10.96.9.9:80", host("web"), "web", true) // the name decides, not the address
		w.echo(t, w.client, "10.96.0.2:9000", "echo")
		w.get(t, w.client, "10.96.0.3:81", host("any"), "any", true)
		w.get(t, w.client, "10.96.0.5:82", host("api"), "api", true)
		w.grpc(t, w.client, "10.96.0.6:83", "greeter")
		w.get(t, w.client, podPort(w.server, headlessPort), host("headless"), "headless", true)
		w.echo(t, w.client, podPort(w.server, dbPort), "db")
		// A port without a name is whatever the client speaks.
		w.echo(t, w.client, "10.96.0.4:9001", "anything")

		// Straight to the pod, from inside and outside the mesh, on ports of
		// services and of none.
		w.get(t, w.client, podPort(w.server, webPort), "", "web", true)
		w.get(t, w.outside, podPort(w.server, webPort), "", "web", true)
		w.echo(t, w.outside, podPort(w.server, echoPort), "echo")
		w.get(t, w.outside, podPort(w.server, unknownPort), "", "unknown", true)
		w.echo(t, w.outside, podPort(w.server, unknownTCP), "unknown")
		w.echo(t, w.client, podPort(w.server, unknownTCP), "unknown")
		// A workload calls its own service.
		w.get(t, w.server, "10.96.0.1:80", host("web"), "web", false)

		w.unknownDestinations(t)
	})
}

// unknownDestinations are reached or refused as the mesh says, from one moment
// to the other.
func (w *intercepted) unknownDestinations(t *testing.T) {
	allowed := func() {
		w.get(t, w.client, podPort(w.outside, 80), "outside.example", "outside", false)
		w.echo(t, w.client, podPort(w.outside, unknownPort), "outside")
	}
	allowed()
	w.write(t, "mesh.yaml", "outboundTrafficPolicy: {mode: REGISTRY_ONLY}")
	envoytest.Eventually(t, limit, "an unknown host to be refused", func() error {
		_, err := envoytest.Get(t.Context(), w.client.HTTPClient(), "http://"+podPort(w.outside, 80)+"/", "outside.example")
		return refusal(err, 502)
	})
	envoytest.Eventually(t, limit, "an unknown address to be refused", func() error {
		return mustFail(envoytest.EchoTCP(t.Context(), w.client, podPort(w.outside, unknownPort), "ping\n"))
	})
	w.get(t, w.client, "10.96.0.1:80", host("web"), "web", true)
	w.echo(t, w.client, "10.96.0.2:9000", "echo")
	w.write(t, "mesh.yaml", "outboundTrafficPolicy: {mode: ALLOW_ANY}")
	allowed()
}

func mustFail(line string, err error) error {
	if err == nil {
		return fmt.Errorf("got %q", line)
	}
	return nil
}
