package gen_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/proxy_protocol/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// A real Envoy sends connections where the rules of random services say, by range and server name. The original destination is
// told by the PROXY protocol.
func TestEnvoyTellsRangesAndNames(t *testing.T) {
	t.Parallel()
	if os.Getenv(envoytest.EnvoyVar) == "" {
		t.Skip(envoytest.EnvoyVar + " does not name an Envoy binary: no real proxy is asked here")
	}
	worlds := map[string]*wideAndNarrow{}
	b := &bootstrapv3.Bootstrap{Node: &corev3.Node{Id: "test", Cluster: "test"}, StaticResources: &bootstrapv3.Bootstrap_StaticResources{}}
	for seed := range uint64(20) {
		w := &wideAndNarrow{Rand: rand.New(rand.NewPCG(seed, 7))}
		for _, r := range build(t, gen.Listeners{}, w.view(t), sidecar("c1", "shop")) {
			l := decode(t, r).(*listenerv3.Listener)
			l.Name, l.BindToPort, l.Address = fmt.Sprint("l", seed), nil, socketOf(netip.MustParseAddrPort("127.0.0.1:0"))
			l.ListenerFilters = append([]*listenerv3.ListenerFilter{{Name: "proxy", ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: anyOf(t, &proxyprotocolv3.ProxyProtocol{})}}}, l.ListenerFilters...)
			b.StaticResources.Listeners = append(b.StaticResources.Listeners, l)
			worlds[l.Name] = w
		}
	}
	raw, err := protojson.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	e := envoytest.Start(t, envoytest.Options{Bootstrap: raw, Binary: os.Getenv(envoytest.EnvoyVar)})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := e.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	at, err := e.Listeners(ctx)
	if err != nil {
		t.Fatal(err)
	}
	seen := accepted(t, ctx, e)
	for name, w := range worlds {
		for _, ip := range []string{"10.1.1.1", "10.1.2.1", "10.2.0.1", "11.0.0.1"} {
			for _, sni := range []string{"a.example", "x.a.example", "y.a.example", "other.test"} {
				want := w.to(netip.MustParseAddr(ip), sni)
				got := takenBy(t, ctx, e, at[name], ip, sni, &seen)
				if got = strings.TrimSuffix(strings.TrimPrefix(got, "outbound|"), ".shop.svc.cluster.local"); got != want {
					t.Errorf("%s: %s to %s goes to %q, want %q: %+v", name, sni, ip, got, want, w.rules)
				}
			}
		}
	}
}

// takenBy opens a connection for a destination and tells which TCP proxy took it.
func takenBy(t *testing.T, ctx context.Context, e *envoytest.Envoy, addr, ip, serverName string, seen *map[string]uint64) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "PROXY TCP4 127.0.0.1 %s 1234 443\r\n", ip); err != nil {
		t.Fatal(err)
	}
	// Nobody answers: that the connection ends is all that there is to wait for.
	_ = tls.Client(c, &tls.Config{ServerName: serverName, InsecureSkipVerify: true}).HandshakeContext(ctx)
	var found string
	envoytest.Eventually(t, time.Minute, "a connection is counted", func() error {
		now := accepted(t, ctx, e)
		for name, n := range now {
			if n > (*seen)[name] {
				found = name
			}
		}
		if found == "" {
			return fmt.Errorf("no proxy has taken it: %v", now)
		}
		*seen = maps.Clone(now)
		return nil
	})
	return found
}

// accepted counts connections by TCP proxy.
func accepted(t *testing.T, ctx context.Context, e *envoytest.Envoy) map[string]uint64 {
	t.Helper()
	all, err := e.Stats(ctx, `^tcp\..*\.downstream_cx_total$`)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]uint64{}
	for name, n := range all {
		out[strings.TrimSuffix(strings.TrimPrefix(name, "tcp."), ".downstream_cx_total")] = n
	}
	return out
}
