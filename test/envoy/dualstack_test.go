package envoy_test

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/bootstrap"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// A pod with addresses of both families is one endpoint to a proxy that speaks
// both: where the IPv4 address refuses, the other is tried. A proxy that
// speaks IPv4 alone is sent that one.
func TestDualStackPod(t *testing.T) {
	t.Parallel()
	if l, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skipf("this machine has no IPv6: %v", err)
	} else {
		l.Close()
	}
	m := newMesh(t)
	b := m.backendAt(t, envoytest.HTTP1, "both", "[::1]:0")
	refuses := netip.AddrPortFrom(m.lo.Addr(2, 1), netip.MustParseAddrPort(b.Addr).Port()).String()
	web := service("web", "10.96.0.1", "http", 8000)
	six := slicesOf(web, endpoint{addr: b.Addr, pod: "both"})
	slice := six[0].(*discoveryv1.EndpointSlice)
	slice.Name, slice.AddressType = "web-six", discoveryv1.AddressTypeIPv6
	m.start(t, files{"east/all.yaml": {web, slicesOf(web, endpoint{addr: refuses, pod: "both"}), six, pod("both", m.lo.Addr(2, 1).String(), "", nil)}})

	o := m.complete(t, "dual", bootstrap.Options{})
	text := bytes.Replace(config(t, o), []byte(`"`+o.IP.String()+`"`), []byte(`"`+o.IP.String()+`,::1"`), 1)
	if !bytes.Contains(text, []byte(",::1")) {
		t.Fatalf("the bootstrap names no addresses:\n%s", text)
	}
	dual := m.run(t, o.IP, envoytest.Options{Name: "dual", Bootstrap: text})
	dual.has(t, outbound(host("web"), 8000), refuses)
	dual.answers(t, host("web"), 8000, "both")
	m.launch(t, "four", bootstrap.Options{}).has(t, outbound(host("web"), 8000), refuses)
}
