package envoy_test

import (
	"net"
	"net/netip"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/bootstrap"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// startDNS answers A queries for the names (which end with a dot) at addr.
// Queries for other names stay without any answer, as with a resolver that is
// down.
func startDNS(t testing.TB, addr netip.AddrPort, names map[string][]netip.Addr) {
	t.Helper()
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return // closed at the end of the test
			}
			if reply, ok := answerDNS(buf[:n], names); ok {
				_, _ = conn.WriteToUDPAddrPort(reply, from)
			}
		}
	}()
	t.Cleanup(func() { conn.Close(); <-done })
}

func answerDNS(query []byte, names map[string][]netip.Addr) ([]byte, bool) {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || len(m.Questions) != 1 {
		return nil, false
	}
	q := m.Questions[0]
	addrs, ok := names[q.Name.String()]
	if !ok {
		return nil, false
	}
	m.Response, m.Additionals = true, nil
	if q.Type == dnsmessage.TypeA {
		for _, a := range addrs {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 60},
				Body:   &dnsmessage.AResource{A: a.As4()},
			})
		}
	}
	reply, err := m.Pack()
	return reply, err == nil
}

// resolving is launch for a proxy that resolves names at that address instead
// of asking the machine's resolver. Clusters have resolver settings of their own,
// so that those of a bootstrap would not count.
func (m *mesh) resolving(t testing.TB, name string, o bootstrap.Options, resolver netip.AddrPort) *proxy {
	t.Helper()
	o = m.complete(t, name, o)
	return m.run(t, o.IP, envoytest.Options{Name: name, Bootstrap: config(t, o), Resolver: resolver})
}
