package oracle_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
	"github.com/isthmus-mesh/isthmus/xds/evaluate"
)

// The ports of services that are no HTTP.
const (
	tlsPort = 9443
	tcpPort = 9100
)

// silence ends a connection on which one side waits for the other in vain, which is a disagreement.
const silence = 10 * time.Second

// streamHosts are services with both ports.
func streamHosts() []*service {
	return []*service{
		{name: "x", ns: namespace, versions: 2, number: 5}, {name: "y.example.com", ns: namespace, entry: true, versions: 2, number: 6},
		{name: "z.example.com", ns: namespace, entry: true, versions: 1, number: 7},
	}
}

// streams is a configuration of connections that are not HTTP.
type streams struct {
	config   *config // the marker
	services []*service
	virtual  []object
	rules    []object
}

func streamPorts() list {
	return list{
		object{"number": tlsPort, "name": "tls", "protocol": "TLS", "targetPort": targetPort(tlsPort)},
		object{"number": tcpPort, "name": "tcp", "protocol": "TCP", "targetPort": targetPort(tcpPort)},
	}
}

func (g *generator) streams(number int) *streams {
	s := &streams{config: &config{number: number, at: g.at, subsets: map[string]map[string]int{}}}
	for _, x := range streamHosts() {
		if g.chance(85) {
			s.services = append(s.services, x)
		}
		if g.chance(60) {
			s.rules = append(s.rules, destinationRule(x, map[string]int{"v0": 1, "v1": 2}))
		}
	}
	for i := range g.IntN(4) {
		s.virtual = append(s.virtual, g.streamRoutes(i))
	}
	return s
}

func (g *generator) streamRoutes(i int) object {
	hosts := list{pick(g, "x", "y.example.com", "z.example.com", "*.example.com", "*example.com")}
	spec := object{"hosts": hosts}
	routes := func(port int) (out list) {
		for range 1 + g.IntN(2) {
			to := object{"host": pick(g, "x", "y.example.com", "z.example.com"), "port": object{"number": port}}
			if g.chance(40) {
				to["subset"] = pick(g, "v0", "v1")
			}
			out = append(out, object{"destination": to, "weight": pick(g, 1, 20)})
		}
		return out
	}
	if g.chance(75) {
		var all list
		for range 1 + g.IntN(2) {
			name := complete(hosts[0].(string))
			if name[0] == '*' && g.chance(60) {
				name = pick(g, "y.example.com", "some.example.com", "*.sub.example.com", "*-eu.example.com")
			}
			m := object{"sniHosts": list{name}, "port": tlsPort}
			all = append(all, object{"match": list{m}, "route": routes(tlsPort)})
		}
		spec["tls"] = all
	}
	if spec["tls"] == nil || g.chance(40) {
		spec["tcp"] = list{object{"route": routes(tcpPort), "match": list{object{"port": tcpPort}}}}
	}
	return istio("VirtualService", namespace, fmt.Sprintf("stream-%d", i), i, spec)
}

func (s *streams) yaml() string {
	docs := s.config.marker()
	for _, x := range s.services {
		for _, o := range x.objects(s.config.at) {
			spec, _ := o["spec"].(object)
			switch o["kind"] {
			case "ServiceEntry":
				spec["ports"] = streamPorts()
			case "Service":
				spec["ports"] = list{
					object{"name": "tls", "port": tlsPort, "targetPort": targetPort(tlsPort)}, object{"name": "tcp", "port": tcpPort, "targetPort": targetPort(tcpPort)}}
			case "EndpointSlice":
				o["ports"] = list{object{"name": "tls", "port": targetPort(tlsPort)}, object{"name": "tcp", "port": targetPort(tcpPort)}}
			}
			docs = append(docs, o)
		}
	}
	return written(docs) + written(s.rules) + written(s.virtual)
}

// streamBackends serve TLS at one port and bytes at the other, and begin with their address.
func (w *world) streamBackends() {
	files := envoytest.StartAuthority(w.t).Issue(w.t, "stream", "spiffe://test/stream")
	pair, err := tls.LoadX509KeyPair(files.Chain, files.Key)
	if err != nil {
		w.t.Fatal(err)
	}
	secure := &tls.Config{Certificates: []tls.Certificate{pair}, SessionTicketsDisabled: true}
	var running sync.WaitGroup
	w.t.Cleanup(running.Wait) // once the listeners are closed
	for _, s := range streamHosts() {
		for v := range s.versions {
			for _, port := range []int{tlsPort, tcpPort} {
				l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", w.at(s, v), targetPort(port)))
				if err != nil {
					w.t.Fatal(err)
				}
				running.Go(func() {
					for {
						c, err := l.Accept()
						if err != nil {
							return
						}
						running.Go(func() { greet(c, secure, port == tlsPort) })
					}
				})
				w.t.Cleanup(func() { l.Close() })
			}
		}
	}
}

func greet(c net.Conn, secure *tls.Config, encrypt bool) {
	defer c.Close()
	at := c.LocalAddr().String()
	_ = c.SetDeadline(time.Now().Add(silence)) // a client that has gone must not keep it
	if encrypt {
		c = tls.Server(c, secure)
	}
	fmt.Fprintln(c, at) // an error means that the client has gone, or speaks something else
}

// knock connects, and gives who greets; "" if the connection is closed.
func (w *world) knock(ctx context.Context, port int, serverName string) (string, error) {
	d := net.Dialer{Timeout: limit}
	c, err := d.DialContext(ctx, "tcp", fmt.Sprintf("%s:%d", w.lo.Addr(1, 1), port))
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(silence))
	if serverName != "" {
		c = tls.Client(c, quickTLS(serverName))
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line), err
}

// quickTLS asks for a server name, at little cost for both sides.
func quickTLS(serverName string) *tls.Config {
	return &tls.Config{ServerName: serverName, InsecureSkipVerify: true, CurvePreferences: []tls.CurveID{tls.X25519}}
}

// TestStreamsAgree: connections of TLS, by their server names, and of bytes go where the evaluator says.
func TestStreamsAgree(t *testing.T) {
	t.Parallel()
	n := *seed
	if n == 0 {
		n = rand.Uint64()
	}
	t.Logf("-seed %d", n)
	w := newWorld(t, false)
	g := &generator{Rand: rand.New(rand.NewPCG(n, 1)), at: w.at}
	w.streamBackends()
	told := map[string]int{}
	for i := range *rounds {
		s := g.streams(i)
		if i == 0 {
			w.start(s.yaml(), false)
		} else {
			w.apply(s.yaml())
		}
		w.settle(s.config, servicePorts...)
		e := w.evaluator()
		for range asksPerRound * 2 / 3 {
			name := pick(g, "x.shop.svc.cluster.local", "y.example.com", "z.example.com", "some.example.com", "a.sub.example.com", "nobody.test", "")
			port := tlsPort
			if name == "" {
				port = tcpPort
			}
			told[w.compareStream(e, s, port, name)]++
		}
	}
	w.accepted()
	t.Logf("%d configurations: %v", *rounds, told)
}

// compareStream fails the test if the Envoy does not come to do what the evaluator says: a listener takes a moment to change.
func (w *world) compareStream(e *evaluate.Config, s *streams, port int, name string) string {
	w.t.Helper()
	want := e.Evaluate(evaluate.Request{
		Destination: netip.AddrPortFrom(w.lo.Addr(1, 1), uint16(port)), Protocol: evaluate.TCP, TLS: name != "", ServerName: name,
	})
	ctx, cancel := context.WithTimeout(w.t.Context(), limit)
	defer cancel()
	err := envoytest.PollEvery(ctx, quick, func() error {
		got, err := w.knock(ctx, port, name)
		return streamDiffers(want, got, err)
	})
	if err != nil {
		w.t.Fatalf("port %d with server name %q: %v\nthe evaluator: %s\nthe configuration:\n%s", port, name, err, text(want), s.yaml())
	}
	return string(want.Kind)
}

func streamDiffers(want *evaluate.Result, got string, err error) error {
	if want.Fails != "" && err == nil {
		return fmt.Errorf("%s greets, and it should fail: %s", got, want.Fails)
	}
	var all []string
	for _, s := range want.Clusters {
		if s.Percent > 0 {
			for _, e := range s.Endpoints {
				all = append(all, e.Address)
			}
		}
		if s.Percent > 0 && len(s.Endpoints) == 0 && err != nil {
			return nil // a cluster without endpoints closes the connection
		}
	}
	switch {
	case len(all) == 0 && err == nil:
		return fmt.Errorf("%s greets, and nobody should", got)
	case len(all) > 0 && err != nil:
		return fmt.Errorf("nobody greets: %w", err)
	case len(all) > 0 && !slices.Contains(all, got):
		return fmt.Errorf("%s greets, which is none of %v", got, all)
	}
	return nil
}
