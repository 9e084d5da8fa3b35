package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
)

// servers are DNS servers on loopback addresses that share a port: UDP and TCP.
type servers struct {
	port  string
	hosts []string
	asked []*atomic.Int32 // questions, by server
}

type handler func(w dns.ResponseWriter, q *dns.Msg)

// serve starts a server for each handler, at 127.0.0.1 and on.
func serve(t *testing.T, handlers ...handler) *servers {
	t.Helper()
	for range 50 { // a port may be taken at one of the addresses
		s := &servers{port: "0"}
		var open []*dns.Server
		for i, h := range handlers {
			asked := &atomic.Int32{}
			counted := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
				asked.Add(1)
				h(w, q)
			})
			host := fmt.Sprintf("127.0.0.%d", i+1)
			packets, err := net.ListenPacket("udp", net.JoinHostPort(host, s.port))
			if err != nil {
				break
			}
			open = append(open, &dns.Server{PacketConn: packets, Handler: counted})
			_, s.port, _ = net.SplitHostPort(packets.LocalAddr().String())
			streams, err := net.Listen("tcp", net.JoinHostPort(host, s.port))
			if err != nil {
				break
			}
			open = append(open, &dns.Server{Listener: streams, Handler: counted})
			s.hosts, s.asked = append(s.hosts, host), append(s.asked, asked)
		}
		if len(s.hosts) == len(handlers) {
			run(t, open)
			return s
		}
		for _, o := range open {
			if o.PacketConn != nil {
				o.PacketConn.Close()
			} else {
				o.Listener.Close()
			}
		}
	}
	t.Fatal("no free port")
	return nil
}

func run(t *testing.T, list []*dns.Server) {
	for _, srv := range list {
		started, done := make(chan struct{}), make(chan struct{})
		srv.NotifyStartedFunc = func() { close(started) }
		go func() {
			defer close(done)
			if err := srv.ActivateAndServe(); err != nil {
				t.Error(err)
			}
		}()
		<-started
		t.Cleanup(func() {
			if err := srv.Shutdown(); err != nil {
				t.Error(err)
			}
			<-done
		})
	}
}

// zone answers with records, "NXDOMAIN", "SERVFAIL" or, for "", with nothing.
func zone(records map[string][]string) handler {
	return func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(q)
		key := dns.TypeToString[q.Question[0].Qtype] + " " + q.Question[0].Name
		for _, text := range records[key] {
			switch {
			case text == "SERVFAIL":
				m.Rcode = dns.RcodeServerFailure
			case text == "NXDOMAIN":
				m.Rcode = dns.RcodeNameError
			case strings.Contains(text, " SOA "), strings.Contains(text, " NS "):
				m.Ns = append(m.Ns, record(text))
			default:
				m.Answer = append(m.Answer, record(text))
			}
		}
		if _, udp := w.RemoteAddr().(*net.UDPAddr); udp {
			m.Truncate(int(q.IsEdns0().UDPSize()))
		}
		w.WriteMsg(m)
	}
}

func record(text string) dns.RR {
	rr, err := dns.NewRR(text)
	if err != nil {
		panic(err)
	}
	return rr
}

// client asks the servers.
func (s *servers) client(t *testing.T, hosts string) *Client {
	t.Helper()
	dir := t.TempDir()
	f := Files{Resolv: filepath.Join(dir, "resolv.conf"), Hosts: filepath.Join(dir, "hosts")}
	text := "search wrong.example\n"
	for _, h := range s.hosts {
		text += "nameserver " + h + "\n"
	}
	for name, content := range map[string]string{f.Resolv: text, f.Hosts: hosts} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := NewClient(f)
	c.port = s.port
	return c
}

// lookup gives "addresses for TTL" or "error: …".
func lookup(t *testing.T, c *Client, name string, f Family) string {
	t.Helper()
	a, err := c.Lookup(t.Context(), name, f)
	if err != nil {
		return "error: " + err.Error()
	}
	return fmt.Sprint(a.Addrs, " for ", a.TTL)
}

func TestLookup(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range 200 {
		many = append(many, fmt.Sprintf("many.example. 60 IN A 192.0.2.%d", i))
	}
	c := serve(t, zone(map[string][]string{
		"A gw.example.":     {"gw.example. 60 IN A 192.0.2.1", "gw.example. 40 IN A 192.0.2.2"},
		"AAAA gw.example.":  {"gw.example. 60 IN AAAA 2001:db8::1"},
		"A alias.example.":  {"alias.example. 20 IN CNAME Lb.example.", "lb.example. 300 IN CNAME lb2.example.", "lb2.example. 300 IN A 192.0.2.3", "other.example. 1 IN A 192.0.2.9"},
		"A loop.example.":   {"loop.example. 60 IN CNAME loop2.example.", "loop2.example. 60 IN CNAME loop.example."},
		"A gone.example.":   {"NXDOMAIN", "example. 900 IN SOA ns.example. root.example. 1 2 3 4 120"},
		"A none.example.":   {"example. 50 IN SOA ns.example. root.example. 1 2 3 4 120"},
		"A bare.example.":   {},
		"A away.example.":   {"example. 50 IN NS ns.example."},
		"A broken.example.": {"SERVFAIL"},
		"A many.example.":   many,
		"A hosted.example.": {"hosted.example. 60 IN A 192.0.2.66"},
		"A wrong.example.":  {"wrong.example. 60 IN AAAA 2001:db8::1"},
	})).client(t, "# 192.0.2.98 gw.example\n192.0.2.99 a hosted.example # b\n2001:db8::99 Hosted.Example.\nnonsense hosted.example\n")
	for _, tc := range []struct {
		name string
		f    Family
		want string
	}{
		{"gw.example", IPv4, "[192.0.2.1 192.0.2.2] for 40s"},
		{"gw.example", IPv6, "[2001:db8::1] for 1m0s"},
		{"alias.example", IPv4, "[192.0.2.3] for 20s"},
		{"loop.example", IPv4, "[] for 30s"},
		{"gone.example", IPv4, "[] for 2m0s"},
		{"none.example", IPv4, "[] for 50s"},
		{"bare.example", IPv4, "[] for 30s"},
		{"hosted.example", IPv4, "[192.0.2.99] for 30s"},
		{"hosted.example", IPv6, "[2001:db8::99] for 30s"},
		{"wrong.example", IPv4, "[] for 30s"},
		{"away.example", IPv4, "error: server 127.0.0.1: it refers to other servers"},
		{"broken.example", IPv4, "error: server 127.0.0.1: SERVFAIL"},
	} {
		if d := cmp.Diff(tc.want, lookup(t, c, tc.name, tc.f)); d != "" {
			t.Errorf("%s: %s", tc.name, d)
		}
	}
	if a, err := c.Lookup(t.Context(), "many.example", IPv4); err != nil || len(a.Addrs) != 200 { // too many for a packet
		t.Errorf("many: %d addresses, %v", len(a.Addrs), err)
	}
}

// Incident 61: every resolver is tried, until one answers.
func TestIncident61EveryServerIsTried(t *testing.T) {
	t.Parallel()
	failing := zone(map[string][]string{"A gw.example.": {"SERVFAIL"}, "A gone.example.": {"NXDOMAIN"}})
	good := zone(map[string][]string{"A gw.example.": {"gw.example. 60 IN A 192.0.2.1"}, "A gone.example.": {"gone.example. 60 IN A 192.0.2.2"}})
	s := serve(t, failing, good)
	c := s.client(t, "")
	if got := lookup(t, c, "gw.example", IPv4); got != "[192.0.2.1] for 1m0s" {
		t.Error(got)
	}
	if got := lookup(t, c, "gone.example", IPv4); got != "[] for 30s" { // what the first says is an answer
		t.Error(got)
	}
	if a, b := s.asked[0].Load(), s.asked[1].Load(); a != 2 || b != 1 {
		t.Errorf("%d and %d questions", a, b)
	}
}

// Servers that are named are asked in place of the machine's.
func TestNamedServers(t *testing.T) {
	t.Parallel()
	bad := zone(map[string][]string{"A gw.example.": {"SERVFAIL"}})
	good := zone(map[string][]string{"A gw.example.": {"gw.example. 60 IN A 192.0.2.1"}})
	s := serve(t, bad, good)
	at := func(host string) netip.AddrPort { return netip.MustParseAddrPort(net.JoinHostPort(host, s.port)) }
	missing := Files{Resolv: filepath.Join(t.TempDir(), "resolv.conf"), Hosts: filepath.Join(t.TempDir(), "hosts")}
	if got := lookup(t, NewClient(missing, at(s.hosts[0]), at(s.hosts[1])), "gw.example", IPv4); got != "[192.0.2.1] for 1m0s" {
		t.Error(got)
	}
	first := at(s.hosts[0])
	if got := lookup(t, NewClient(missing, first), "gw.example", IPv4); got != "error: server "+first.String()+": SERVFAIL" {
		t.Error(got)
	}
}

// A server that never answers costs its time-out, and then the next is asked.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	silent := func(dns.ResponseWriter, *dns.Msg) {}
	good := zone(map[string][]string{"A gw.example.": {"gw.example. 60 IN A 192.0.2.1"}})
	s := serve(t, silent, good)
	c := s.client(t, "")
	if c.wait != 5*time.Second {
		t.Errorf("waits %v", c.wait)
	}
	c.wait = time.Second
	if got := lookup(t, c, "gw.example", IPv4); got != "[192.0.2.1] for 1m0s" {
		t.Error(got)
	}
	s.hosts = s.hosts[:1]
	c = s.client(t, "")
	c.wait = time.Second
	if got := lookup(t, c, "gw.example", IPv4); got != "error: server 127.0.0.1: no answer in time" {
		t.Error(got)
	}
}

// A lookup ends with its context, not with the time-out of a silent server.
func TestLookupEndsWithItsContext(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 10)
	s := serve(t, func(dns.ResponseWriter, *dns.Msg) { asked <- struct{}{} })
	c := s.client(t, "")
	c.wait = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if _, err := c.Lookup(ctx, "gw.example", IPv4); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestNoConfiguration(t *testing.T) {
	t.Parallel()
	c := (&servers{}).client(t, "")
	if got := lookup(t, c, "gw.example", IPv4); got != "error: no DNS server is configured" {
		t.Error(got)
	}
	c.files.Resolv += ".missing"
	if got := lookup(t, c, "gw.example", IPv4); !strings.HasPrefix(got, "error: read DNS servers: ") {
		t.Error(got)
	}
}

func FuzzParseHosts(f *testing.F) {
	f.Add("192.0.2.1 a b # c\n::1 a\n", "a")
	f.Fuzz(func(t *testing.T, text, name string) {
		for _, a := range parseHosts(strings.NewReader(text), name) {
			if !a.IsValid() || a.Is4In6() || a.Zone() != "" {
				t.Errorf("address %v", a)
			}
		}
	})
}

func FuzzRead(f *testing.F) {
	m := new(dns.Msg)
	m.SetQuestion("a.example.", dns.TypeA)
	m.Answer = []dns.RR{record("a.example. 60 IN A 192.0.2.1"), record("a.example. 60 IN CNAME b.example.")}
	wire, _ := m.Pack()
	f.Add(wire)
	f.Fuzz(func(t *testing.T, wire []byte) {
		reply := new(dns.Msg)
		if reply.Unpack(wire) != nil {
			return
		}
		a, err := read(dns.Question{Name: "a.example.", Qtype: dns.TypeA}, reply)
		if err == nil && (a.TTL < 0 || a.TTL > MaxTTL) {
			t.Errorf("TTL %v", a.TTL)
		}
		for _, addr := range a.Addrs {
			if !addr.IsValid() {
				t.Errorf("address %v", addr)
			}
		}
	})
}
