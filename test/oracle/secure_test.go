package oracle_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
	"github.com/isthmus-mesh/isthmus/xds/evaluate"
)

// securePort is where all servers with TLS are.
const securePort = 8443

// secureHosts are those of servers, each of one, and of VirtualServices.
var secureHosts = []string{"*", "*.example.com", "*.deep.example.com", "a.example.com", "b.example.com", "x.deep.example.com", "*.test"}

// secured is a configuration of a Gateway whose servers tell connections apart by server name.
type secured struct {
	config  *config    // the marker
	servers [][]string // the hosts of each
	virtual []string   // the host of each VirtualService, the oldest first
}

func (g *generator) secured(number int) *secured {
	s := &secured{config: &config{number: number, at: g.at, servers: []string{markerHost}}}
	hosts := slices.Clone(secureHosts)
	g.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
	for len(hosts) > 0 && len(s.servers) < 4 {
		n := min(1+g.IntN(2), len(hosts))
		if slices.Contains(hosts[:n], "*") {
			n = 1 // a server for all names does not look at others of its own, as with Istio
		}
		s.servers = append(s.servers, hosts[:n])
		hosts = hosts[n:]
	}
	for range 1 + g.IntN(4) {
		s.virtual = append(s.virtual, pick(g, secureHosts[1:]...))
	}
	return s
}

// serverFiles are the certificates of servers, by their place.
type serverFiles [4]envoytest.Certificate

func (s *secured) yaml(files serverFiles) string {
	var servers list
	for i, hosts := range s.servers {
		servers = append(servers, object{"port": object{"number": securePort, "name": fmt.Sprint("https-", i), "protocol": "HTTPS"}, "hosts": hosts,
			"tls": object{"mode": "SIMPLE", "serverCertificate": files[i].Chain, "privateKey": files[i].Key}})
	}
	docs := append(s.config.marker(), istio("Gateway", namespace, "secure", 0, object{"selector": object{"app": "client"}, "servers": servers}))
	for i, h := range s.virtual {
		docs = append(docs, istio("VirtualService", namespace, fmt.Sprint("vs-", i), i, object{"hosts": list{h}, "gateways": list{"secure"},
			"http": list{object{"directResponse": object{"status": 200, "body": object{"string": fmt.Sprint("vs-", i)}}}}}))
	}
	return written(docs) + s.config.routing()
}

// means says which server's certificate a client gets that asks for a server name, -1 for none, and which VirtualService
// answers a request for a host then, -1 for none.
func (s *secured) means(serverName, host string) (server, virtual int) {
	byName := map[string]int{}
	for i, hosts := range s.servers {
		for _, h := range hosts {
			byName[h] = i
		}
	}
	server = closest(byName, serverName)
	if server < 0 {
		return -1, -1
	}
	byDomain := map[string]int{}
	for i, h := range s.virtual {
		for _, of := range s.servers[server] {
			if d, ok := narrower(h, of); ok {
				if _, older := byDomain[d]; !older {
					byDomain[d] = i
				}
			}
		}
	}
	return server, closest(byDomain, host)
}

// closest gives what belongs to the narrowest of the patterns that a host is among, -1 for none.
func closest(patterns map[string]int, host string) int {
	best := nearest(maps.Keys(patterns), host)
	if best == "" {
		return -1
	}
	return patterns[best]
}

// TestServerNamesAgree: a client of a gateway gets the certificate, and the routes, of the server that its server name is for.
func TestServerNamesAgree(t *testing.T) {
	t.Parallel()
	n := *seed
	if n == 0 {
		n = rand.Uint64()
	}
	t.Logf("-seed %d", n)
	w := newWorld(t, false)
	g := &generator{rand.New(rand.NewPCG(n, 3)), w.at, true}
	authority := envoytest.StartAuthority(t)
	var files serverFiles
	for i := range files {
		files[i] = authority.Issue(t, fmt.Sprint("server-", i), fmt.Sprint("spiffe://test/", i))
	}
	told := map[string]int{}
	for i := range *rounds {
		s := g.secured(i)
		if i == 0 {
			w.start(s.yaml(files), true)
		} else {
			w.apply(s.yaml(files))
		}
		w.settle(s.config, servicePorts...)
		e := w.evaluator()
		for range asksPerRound / 4 {
			name := pick(g, "a.example.com", "b.example.com", "c.example.com", "x.deep.example.com", "y.deep.example.com", "any.test", "other.org")
			host := name
			if g.chance(20) {
				host = pick(g, "a.example.com", "x.deep.example.com", "any.test")
			}
			told[w.compareSecure(e, s, name, host, files)]++
		}
	}
	w.accepted()
	t.Logf("%d configurations: %v", *rounds, told)
}

// compareSecure gives "closed", "not found" or "answered".
func (w *world) compareSecure(e *evaluate.Config, s *secured, name, host string, files serverFiles) string {
	w.t.Helper()
	at := netip.AddrPortFrom(w.lo.Addr(1, 1), securePort)
	got := e.Evaluate(evaluate.Request{Destination: at, Method: "GET", Authority: host, Path: "/", TLS: true, ServerName: name})
	server, virtual := s.means(name, host)
	want, kind := "closed", "closed"
	switch {
	case virtual >= 0:
		want, kind = fmt.Sprintf("%d: 200 vs-%d", server, virtual), "answered"
	case server >= 0:
		want, kind = fmt.Sprintf("%d: 404 ", server), "not found"
	}
	evaluated := got.Kind == evaluate.Direct && got.Status == 200
	ctx, cancel := context.WithTimeout(w.t.Context(), limit)
	defer cancel()
	err := envoytest.PollEvery(ctx, quick, func() error {
		if answer := secureAnswer(ctx, at.String(), name, host); answer != want {
			return fmt.Errorf("%q, want %q", answer, want)
		}
		return nil
	})
	if err == nil && evaluated != (kind == "answered") {
		err = fmt.Errorf("the evaluator does not say so")
	}
	if err != nil {
		w.t.Fatalf("%s for %s: %v\nthe evaluator: %s\nthe configuration:\n%s", name, host, err, text(got), s.yaml(files))
	}
	return kind
}

// secureAnswer asks for a host over TLS, and tells the server's identity, the status and what is answered; "closed" if there is
// no connection.
func secureAnswer(ctx context.Context, at, name, host string) string {
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: limit}, Config: quickTLS(name)}
	c, err := d.DialContext(ctx, "tcp", at)
	if err != nil {
		return "closed"
	}
	defer c.Close()
	identity := c.(*tls.Conn).ConnectionState().PeerCertificates[0].URIs[0].String()
	client := &http.Client{Timeout: limit, Transport: &http.Transport{
		DisableKeepAlives: true, DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return c, nil }}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+"/", nil)
	if err != nil {
		return err.Error()
	}
	res, err := client.Do(r)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s: %d %s", strings.TrimPrefix(identity, "spiffe://test/"), res.StatusCode, body)
}
