package multicluster_test

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// zone is a DNS server.
type zone struct {
	at string // "IP:PORT"

	mu    sync.Mutex
	addrs map[string]string // by name; "" = the server fails; guarded by mu
}

// zone serves names until the end of the test.
func (m *mesh) zone(addrs map[string]string) *zone {
	m.Helper()
	z := &zone{at: envoytest.StartLoopback(m).At(0, 1, 5353), addrs: addrs}
	socket, err := net.ListenPacket("udp", z.at)
	if err != nil {
		m.Fatal(err)
	}
	started := make(chan struct{})
	server := &dns.Server{PacketConn: socket, Handler: z, NotifyStartedFunc: func() { close(started) }}
	var running sync.WaitGroup
	running.Go(func() { _ = server.ActivateAndServe() }) // ends with Shutdown
	<-started
	m.Cleanup(func() {
		if err := server.Shutdown(); err != nil {
			m.Error(err)
		}
		running.Wait()
	})
	return z
}

// set changes what a name stands for.
func (z *zone) set(name, addr string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.addrs[name] = addr
}

// ServeDNS implements dns.Handler. Answers expire at once; how soon the hub asks again is its own matter.
func (z *zone) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	z.mu.Lock()
	defer z.mu.Unlock()
	reply := new(dns.Msg)
	reply.SetReply(q)
	name := q.Question[0].Name
	addr, known := z.addrs[strings.TrimSuffix(name, ".")]
	switch {
	case !known:
		reply.Rcode = dns.RcodeNameError
	case addr == "":
		reply.Rcode = dns.RcodeServerFailure
	case q.Question[0].Qtype == dns.TypeA:
		reply.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}, A: net.ParseIP(addr)}}
	}
	_ = w.WriteMsg(reply) // the hub asks again
}

// unresolved checks which names /debug/clusterz says are not resolved.
func (m *mesh) unresolved(names ...string) {
	m.Helper()
	m.eventually(fmt.Sprintf("unresolved names %q", names), func() error {
		var all []debug.Cluster
		if err := m.ask("/debug/clusterz", &all); err != nil {
			return err
		}
		var got []string
		for _, c := range all {
			if c.Provider == "dns" {
				for _, p := range c.Problems {
					got = append(got, p.Item)
				}
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(names) {
			return fmt.Errorf("they are %q", got)
		}
		return nil
	})
}

// The host names of a gateway: resolved, and again when the answer has expired. One that fails keeps its
// last address, and it is told; no address of a Pod behind them is ever sent.
func TestIncident61GatewaysByName(t *testing.T) {
	m := newMesh(t, 1)
	m.foo(primary, "c1")
	m.network(primary, "n1", "203.0.113.1")
	m.network("c1", "n2", "moves.example", "fails.example", "late.example")
	z := m.zone(map[string]string{"moves.example": "203.0.113.2", "fails.example": "203.0.113.3", "late.example": ""})
	m.join("c1")
	m.serve("--dns-servers", z.at)
	p := m.both("client.shop", "network=n1")
	p.has("foo.shop", "10.0.0.1", "203.0.113.2:15443", "203.0.113.3:15443")
	m.unresolved("late.example")
	p.never("foo.shop", "10.1.0.1")
	p.forget()
	z.set("moves.example", "203.0.113.22")
	z.set("fails.example", "")
	z.set("late.example", "203.0.113.4")
	p.has("foo.shop", "10.0.0.1", "203.0.113.22:15443", "203.0.113.3:15443", "203.0.113.4:15443")
	m.unresolved("fails.example")
	m.fence([]string{primary}, p...)
	p.always("foo.shop", "10.0.0.1", "203.0.113.3")
	z.set("fails.example", "203.0.113.33")
	p.has("foo.shop", "10.0.0.1", "203.0.113.22:15443", "203.0.113.33:15443", "203.0.113.4:15443")
	m.unresolved()
	p.never("foo.shop", "10.1.0.1")
}
