package xds_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/xds"
	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
	"github.com/isthmus-mesh/isthmus/xds/xdstest"
)

// written is a log that tests look into.
type written struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (w *written) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.Write(b)
}

// lines gives the lines that contain a text.
func (w *written) lines(part string) (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for l := range strings.Lines(w.buf.String()) {
		if strings.Contains(l, part) {
			out = append(out, l)
		}
	}
	return out
}

func (w *written) logger() *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// series gives a metric's values by their labels, joined.
func (r *rig) series(reg prometheus.Gatherer, name string) map[string]float64 {
	r.Helper()
	families, err := reg.Gather()
	r.check(err)
	out := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetValue())
			}
			out[strings.Join(labels, " ")] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return out
}

// withMetadata is node i with more metadata.
func withMetadata(t *testing.T, i int, kv map[string]any) *corev3.Node {
	n := node(i)
	for k, v := range metadata(t, kv).Fields {
		n.Metadata.Fields[k] = v
	}
	return n
}

// greet opens a stream and introduces a node on it.
func (r *rig) greet(n *corev3.Node) *xdstest.Pipe {
	r.Helper()
	p := r.pipe(wire.Delta)
	r.check(p.Send(&discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: gen.EndpointURL, ResourceNamesSubscribe: []string{foo}}))
	return p
}

// TestClientsDoNotGrowMetrics: whatever proxies say that their version is, there are few series, and
// none of who left.
func TestClientsDoNotGrowMetrics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		r := newRig(t, func(o *xds.Options) { o.Registerer = reg })
		var pipes []*xdstest.Pipe
		for i := range 100 {
			pipes = append(pipes, r.greet(withMetadata(t, i, map[string]any{"ISTIO_VERSION": fmt.Sprintf("1.%d.0", i)})))
		}
		for i, v := range []string{"1.0.0\n", strings.Repeat("9", 33), "päng", `1"} 1`} {
			pipes = append(pipes, r.greet(withMetadata(t, 100+i, map[string]any{"ISTIO_VERSION": v})))
		}
		synctest.Wait()
		got, sum := r.series(reg, "pilot_xds"), 0.0
		for _, n := range got {
			sum += n
		}
		if len(got) > 33 || sum != 104 || got["other"] < 72 || got["1.7.0"] > 1 {
			t.Errorf("%d series of %v proxies: %v", len(got), sum, got)
		}
		for _, p := range pipes {
			p.Close()
		}
		synctest.Wait()
		if got := r.series(reg, "pilot_xds"); len(got) != 0 {
			t.Errorf("proxies that left are counted: %v", got)
		}
		p := r.greet(withMetadata(t, 1, map[string]any{"ISTIO_VERSION": "1.29.1-alpha.3+build_7"}))
		defer p.Close()
		synctest.Wait()
		if got := r.series(reg, "pilot_xds"); got["1.29.1-alpha.3+build_7"] != 1 {
			t.Errorf("got %v", got)
		}
	})
}

// refuse takes a response and refuses it.
func (s *script) refuse(code int32, message string) {
	s.Helper()
	m, _ := s.next(false)
	s.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce, ErrorDetail: &statuspb.Status{Code: code, Message: message}})
	synctest.Wait()
}

// TestRefusalsAreBounded: a proxy that refuses everything, at length and for ever other reasons, costs
// one series, one log line in ten seconds, and 2 KiB.
func TestRefusalsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reg, log := prometheus.NewRegistry(), &written{}
		r := newRig(t, func(o *xds.Options) { o.Registerer, o.Log = reg, log.logger() })
		s := r.script()
		s.send(&discoveryv3.DeltaDiscoveryRequest{Node: node(1), TypeUrl: gen.EndpointURL, ResourceNamesSubscribe: []string{foo}})
		long := strings.Repeat("a: ", 200_000) + "\xc3"[:0]
		for i := range 50 {
			s.refuse(int32(i), "Error adding/updating cluster(s) "+long)
			r.mesh.Set(svc("foo.x", 0, fmt.Sprintf("10.0.0.%d", i+1)))
		}
		if got := r.series(reg, "pilot_xds_eds_reject"); len(got) != 1 {
			t.Errorf("series: %v", got)
		}
		if got := r.series(reg, "pilot_total_xds_rejects"); got["eds"] != 50 {
			t.Errorf("refusals: %v", got)
		}
		if n := len(r.server.Proxies()[0].Types[0].Nack.Message); n > 2100 {
			t.Errorf("%d bytes of a refusal are kept", n)
		}
		lines := log.lines("proxy refused")
		if len(lines) != 1 || len(lines[0]) > 4000 {
			t.Errorf("%d lines for 50 refusals: %.200q", len(lines), lines)
		}
		time.Sleep(11 * time.Second)
		s.refuse(13, "no")
		if lines := log.lines("unlogged=49"); len(lines) != 1 {
			t.Errorf("refusals that were not logged are not told: %q", log.lines("proxy refused"))
		}
		s.p.Close()
		synctest.Wait()
		if got := r.series(reg, "pilot_xds_eds_reject"); len(got) != 0 {
			t.Errorf("a proxy that left refuses: %v", got)
		}
	})
}

// TestSilentStream: a stream that does not say whose it is ends, and says why; one that has goes on.
func TestSilentStream(t *testing.T) {
	both(t, func(t *testing.T, p wire.Protocol) {
		r := newRig(t)
		start := time.Now()
		e := r.envoy(p, node(1))
		defer e.Disconnect()
		silent, chatty := r.pipe(p), r.pipe(wire.Delta)
		r.check(chatty.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "type.googleapis.com/istio.v1.HealthInformation"}))
		for _, x := range []*xdstest.Pipe{silent, chatty} {
			if err := x.Err(); status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "node within 10s") || time.Since(start) != 10*time.Second {
				t.Error(err, time.Since(start))
			}
		}
		time.Sleep(time.Hour)
		r.mesh.Set(svc("foo.x", 0, "10.0.0.1"))
		r.converged(1, e)
	})
}

// TestManyAddresses: of a node on its host's network, with very many addresses, the first ones count.
func TestManyAddresses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		log := &written{}
		r := newRig(t, func(o *xds.Options) { o.Log = log.logger() })
		ips := []string{"10.99.0.2", "10.99.0.2"}
		for i := range 100_000 {
			ips = append(ips, fmt.Sprintf("10.%d.%d.%d", 100+i/62500, i/250%250, i%250))
		}
		defer r.greet(withMetadata(t, 1, map[string]any{"INSTANCE_IPS": strings.Join(ips[:10_000], ",")})).Close()
		synctest.Wait()
		in := r.server.Proxies()[0].Instances
		if len(in) != 16 || in[0].IP.String() != "10.99.0.2" || in[15].IP.String() != "10.100.0.14" {
			t.Errorf("%d addresses: %v", len(in), in)
		}
		if got := log.lines("more addresses"); len(got) != 1 {
			t.Errorf("log: %q", got)
		}
	})
}

// TestOversized: what is too large is refused with the reason, which does not repeat it.
func TestOversized(t *testing.T) {
	long := strings.Repeat("x", 2000)
	eds := func(n *corev3.Node, names ...string) *discoveryv3.DeltaDiscoveryRequest {
		return &discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: gen.EndpointURL, ResourceNamesSubscribe: names}
	}
	place := node(1)
	place.Locality = &corev3.Locality{Region: "r", Zone: long}
	big := withMetadata(t, 1, map[string]any{"ANNOTATIONS": strings.Repeat("x", 1<<20)})
	known := eds(node(1))
	known.InitialResourceVersions = map[string]string{"a": "1", "b": "1", "c": "1", "d": "1"}
	versions := eds(node(1))
	versions.InitialResourceVersions = map[string]string{"a": long + long}
	drop := eds(node(1), foo)
	drop.ResourceNamesUnsubscribe = []string{long}
	foreign := eds(node(1), "a", "b", "c", "d")
	foreign.TypeUrl = "type.googleapis.com/istio.networking.nds.v1.NameTable"
	for name, tt := range map[string]struct {
		m    *discoveryv3.DeltaDiscoveryRequest
		code codes.Code
		says string
	}{
		"node":             {eds(big), codes.InvalidArgument, "the limit is 1048576"},
		"id":               {eds(&corev3.Node{Id: "sidecar~10.0.0.1~" + long + ".x~y"}), codes.InvalidArgument, "node id has 2021 bytes; the limit is 1024"},
		"cluster":          {eds(withMetadata(t, 1, map[string]any{"CLUSTER_ID": long})), codes.InvalidArgument, "CLUSTER_ID has 2000 bytes; the limit is 256"},
		"network":          {eds(withMetadata(t, 1, map[string]any{"NETWORK": long})), codes.InvalidArgument, "NETWORK has 2000 bytes"},
		"namespace":        {eds(withMetadata(t, 1, map[string]any{"NAMESPACE": long})), codes.InvalidArgument, "NAMESPACE has 2000 bytes"},
		"node name":        {eds(withMetadata(t, 1, map[string]any{"NODE_NAME": long})), codes.InvalidArgument, "NODE_NAME has 2000 bytes"},
		"locality":         {eds(place), codes.InvalidArgument, "locality has 2000 bytes"},
		"an address":       {eds(withMetadata(t, 1, map[string]any{"INSTANCE_IPS": long})), codes.InvalidArgument, "is not an IP address"},
		"a name":           {eds(node(1), foo, long), codes.InvalidArgument, "has 2000 bytes; the limit is 1024"},
		"a dropped name":   {drop, codes.InvalidArgument, "has 2000 bytes"},
		"a version":        {versions, codes.InvalidArgument, "the limit is 2048"},
		"known names":      {known, codes.ResourceExhausted, "the limit is 3"},
		"names of nothing": {foreign, codes.ResourceExhausted, "the limit is 3"},
		"a type":           {&discoveryv3.DeltaDiscoveryRequest{Node: node(1), TypeUrl: long}, codes.InvalidArgument, "is not known"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, func(o *xds.Options) { o.MaxNames = 3 })
				p := r.pipe(wire.Delta)
				r.check(p.Send(tt.m))
				if err := p.Err(); status.Code(err) != tt.code || !strings.Contains(err.Error(), tt.says) || len(err.Error()) > 600 {
					t.Errorf("got %.700v", err)
				}
			})
		})
	}
}

// TestNamesWithoutCommits: a client that asks for ever new names, and gives them up, does not fill the
// hub, whether or not anything else happens.
func TestNamesWithoutCommits(t *testing.T) {
	both(t, func(t *testing.T, p wire.Protocol) {
		const names, rounds = 20_000, 20
		reg := prometheus.NewRegistry()
		r := newRig(t, func(o *xds.Options) { o.Registerer = reg })
		r.mesh.Set(svc("foo.x", 0, "10.0.0.1"))
		e := r.envoy(p, node(1))
		defer e.Disconnect()
		r.converged(1, e)
		x := r.pipe(p)
		defer x.Close()
		var last []string
		peak := 0.0
		for round := range rounds {
			var ask []string
			for i := range names {
				ask = append(ask, fmt.Sprintf("outbound|80||r%d-%d.x", round, i))
			}
			var m proto.Message = &discoveryv3.DeltaDiscoveryRequest{Node: node(2), TypeUrl: gen.EndpointURL, ResourceNamesSubscribe: ask, ResourceNamesUnsubscribe: last}
			var answer proto.Message = &discoveryv3.DeltaDiscoveryResponse{}
			if p == wire.SotW {
				m, answer = &discoveryv3.DiscoveryRequest{Node: node(2), TypeUrl: gen.EndpointURL, ResourceNames: ask}, &discoveryv3.DiscoveryResponse{}
			}
			r.check(x.Send(m))
			r.check(x.Recv(answer))
			last = ask
			synctest.Wait()
			peak = max(peak, r.series(reg, "isthmus_xds_names")[""])
		}
		if peak > names*rounds/2 {
			t.Errorf("%v names are kept of %d, of which %d are asked for at once", peak, names*rounds, names)
		}
		r.mesh.Set(svc("foo.x", 0, "10.0.0.2"))
		r.converged(1, e)
	})
}

// TestSmallMemo: proxies get the same where there is no room to keep what was encoded for others.
func TestSmallMemo(t *testing.T) {
	both(t, func(t *testing.T, p wire.Protocol) {
		reg := prometheus.NewRegistry()
		r := newRig(t, func(o *xds.Options) { o.MemoBytes, o.Registerer, o.Generators = 1, reg, gen.All() })
		for i := range 10 {
			r.mesh.Set(database(i), svc(fmt.Sprintf("s%d.x", i), 0, fmt.Sprintf("10.0.2.%d", i)))
		}
		a, b := r.envoy(p, node(1)), r.envoy(p, node(2))
		defer a.Disconnect()
		defer b.Disconnect()
		r.agrees(a)
		for i := range 10 {
			changed := database(i)
			changed.Generation, changed.Endpoints = i%3, []string{"10.0.3.1"}
			r.mesh.Set(changed)
			r.mesh.Delete(svc(fmt.Sprintf("s%d.x", i), 0))
			r.agrees(a)
			r.agrees(b)
			c := r.envoy(p, node(3))
			r.agrees(c)
			c.Disconnect()
		}
		if kept := r.series(reg, "isthmus_xds_memo_bytes")[""]; kept > 10_000 {
			t.Errorf("%v bytes are kept; the budget is 1", kept)
		}
	})
}
