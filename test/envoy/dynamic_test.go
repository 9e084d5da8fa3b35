package envoy_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"testing"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/bootstrap"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// TestDynamicDNS: of a host with a wildcard, requests go where the proxy's resolver says that the host is which they ask for, over
// HTTP and, by the server name, over TLS; hosts beside it go nowhere.
func TestDynamicDNS(t *testing.T) {
	modes(t, func(t *testing.T, sotw bool) {
		m, names := newMesh(t), map[string][]netip.Addr{}
		for i, name := range []string{"one", "two"} {
			addr := m.lo.Addr(4, byte(i+1))
			names[name+".dynamic.example."] = []netip.Addr{addr}
			m.backendAt(t, envoytest.HTTP1, name, netip.AddrPortFrom(addr, 8000).String())
			m.secureAt(t, name, netip.AddrPortFrom(addr, 8443).String())
		}
		names["beside.example."] = names["one.dynamic.example."]
		resolver := netip.MustParseAddrPort(m.lo.At(3, 1, 5353))
		startDNS(t, resolver, names)
		m.start(t, files{"mesh.yaml": {registryOnly}, "east/all.yaml": {object("ServiceEntry", "dynamic", `
hosts: ["*.dynamic.example"]
location: MESH_EXTERNAL
resolution: DYNAMIC_DNS
ports: [{number: 8000, name: http, protocol: HTTP}, {number: 8443, name: tls, protocol: TLS}]`)}})
		p := m.resolving(t, "client", bootstrap.Options{SotW: sotw}, resolver)
		for _, name := range []string{"one", "two"} {
			host := name + ".dynamic.example"
			envoytest.Eventually(t, limit, host+" to answer", func() error {
				a, err := p.get(t.Context(), host+":8000", 8000)
				if err == nil && a.Host != host+":8000" {
					err = fmt.Errorf("it is asked for %s", a.Host)
				}
				return same(a.Name, name, err)
			})
			envoytest.Eventually(t, limit, host+" to answer over TLS", func() error {
				a, err := p.secureGet(t, host, 8443)
				return same(a.Name, name, err)
			})
		}
		p.refuses(t, "beside.example:8000", 8000, 502)
		if a, err := p.secureGet(t, "beside.example", 8443); err == nil {
			t.Errorf("a host beside is answered by %s", a.Name)
		}
	})
}

// secureGet asks for a host over TLS, and for its server name.
func (p *proxy) secureGet(t *testing.T, host string, port uint16) (envoytest.Answer, error) {
	client := &http.Client{Timeout: limit, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{ServerName: host, InsecureSkipVerify: true}, DialContext: (&net.Dialer{}).DialContext}}
	return envoytest.Get(t.Context(), client, "https://"+p.addr(port)+"/", host)
}
