package consul

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/foreign"
	"github.com/isthmus-mesh/isthmus/test/env"
)

const (
	manyServices  = 5000
	manyInstances = 4 // of each
	manyNodes     = 200
)

func manyName(i int) string { return fmt.Sprintf("svc-%04d", i) }

func manyInstance(service, n int) registered {
	at := service*manyInstances + n
	return registered{
		node: fmt.Sprintf("node-%03d", at%manyNodes), id: fmt.Sprintf("%s-%d", manyName(service), n), address: fmt.Sprintf("10.%d.%d.%d", at>>16, at>>8&255, at&255),
		port: 8080, passing: 1, warning: 1, status: "passing",
	}
}

// fill registers all, in transactions of as many operations as Consul takes.
func fill(b *testing.B, c *env.Consul) {
	var ops []any
	flush := func() {
		if len(ops) > 0 {
			c.Put(b, "/v1/txn", ops, nil)
			ops = nil
		}
	}
	add := func(kind string, what map[string]any) {
		ops = append(ops, map[string]any{kind: map[string]any{"Verb": "set", kind: what}})
	}
	for n := range manyNodes {
		add("Node", map[string]any{"Node": fmt.Sprintf("node-%03d", n), "Address": "192.0.2.1"})
		if len(ops) == 64 {
			flush()
		}
	}
	flush()
	for s := range manyServices {
		for n := range manyInstances {
			r := manyInstance(s, n)
			ops = append(ops,
				map[string]any{"Service": map[string]any{"Verb": "set", "Node": r.node, "Service": map[string]any{"ID": r.id, "Service": manyName(s), "Address": r.address, "Port": r.port}}},
				map[string]any{"Check": map[string]any{"Verb": "set", "Check": map[string]any{"Node": r.node, "CheckID": "c-" + r.id, "Status": r.status, "ServiceID": r.id}}})
			if len(ops) == 64 {
				flush()
			}
		}
	}
	flush()
}

// serving is an instance's address and health as a sink has them.
func (s *sink) serving(service, address string) (health string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, _ := s.rows[model.RowKey{Kind: model.RowEndpoints, Key: "Service/ns/" + service}].(*model.Endpoints)
	if e == nil {
		return ""
	}
	for i := range e.Endpoints {
		if e.Endpoints[i].Addr.AddrPort.Addr().String() == address {
			return e.Endpoints[i].Health.String()
		}
	}
	return ""
}

func (s *sink) known() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.rows {
		if k.Kind == model.RowService {
			n++
		}
	}
	return n
}

func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func percentile(all []time.Duration, p int) float64 {
	slices.Sort(all)
	return all[(len(all)-1)*p/100].Seconds()
}

// BenchmarkReal is a Consul server with 5 000 services of 4 instances: the time of the first sync, what the registry costs at rest, and
// the time from a registration to the rows. One run of it is enough: go test -bench Real -benchtime 1x.
func BenchmarkReal(b *testing.B) {
	server, err := env.NewConsul(b.Context(), b.TempDir(), env.ConsulOptions{
		Config: map[string]any{"limits": map[string]any{"http_max_conns_per_client": 600}}, // also for what an earlier run has left
	})
	if err != nil {
		b.Fatal(err)
	}
	defer server.Close()
	fill(b, server)
	for _, tc := range []struct {
		name                string
		requests, most, max int32
	}{
		{"defaults", api.DefaultRequestsPerSecond, 128, 20_000}, {"all of 100 watched", api.DefaultRequestsPerSecond, 128, 100},
	} {
		b.Run(tc.name, func(b *testing.B) {
			for b.Loop() {
				measure(b, server, tc.requests, tc.most, tc.max)
			}
		})
	}
}

func measure(b *testing.B, server *env.Consul, requests, most, services int32) {
	spec := spec(func(s *api.RegistrySpec) {
		s.Addresses = []string{server.URL}
		s.Limits = &api.Limits{RequestsPerSecond: requests, Concurrency: most, MaxServices: services}
	})
	r, err := New(Options{Name: "legacy", Spec: spec, Access: foreign.Access{}})
	if err != nil {
		b.Fatal(err)
	}
	counts := &counting{RoundTripper: r.client.http.Transport}
	r.client.http.Transport = counts
	s := newSink()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	began, before := time.Now(), cpu(b)
	go func() { done <- r.Run(ctx, s) }()
	watch := func(ok func() bool) time.Time {
		for {
			s.mu.Lock()
			next := s.changed
			s.mu.Unlock()
			if ok() {
				return time.Now()
			}
			<-next
		}
	}
	synced := watch(func() bool { return s.known() == int(min(services, manyServices)) })
	b.ReportMetric(synced.Sub(began).Seconds(), "s-to-sync")
	b.ReportMetric((cpu(b) - before).Seconds(), "cpu-s-to-sync")
	pause(ctx, time.Minute, nil) // whatever the first sync has left to do
	runtime.GC()
	b.ReportMetric(float64(runtime.NumGoroutine()), "goroutines")
	asked, before := counts.n.Load(), cpu(b)
	const rest = 30
	pause(ctx, rest*time.Second, nil)
	b.ReportMetric(float64(counts.n.Load()-asked)/rest, "requests/s-idle")
	b.ReportMetric(100*(cpu(b)-before).Seconds()/rest, "cpu%-idle")
	for _, kind := range []string{"health", "new", "address"} {
		var all []time.Duration
		for i := range map[bool]int{true: 4, false: 100}[kind == "address" && services > 1000] {
			n := (i*37 + 17) % int(min(services, manyServices))
			if kind == "address" && services > 1000 {
				n += manyServices / 2 // none that is watched
			}
			c := manyInstance(n, 0)
			want := "healthy"
			switch kind {
			case "health":
				c.status, want = "critical", "unhealthy"
				c.check(b, server)
			case "new":
				c.id, c.address = c.id+"-new", strings.Replace(c.address, "10.", "11.", 1)
				c.register(b, server, manyName(n))
			case "address":
				c = manyInstance(n, 1)
				c.address = strings.Replace(c.address, "10.", "12.", 1)
				c.register(b, server, manyName(n))
			}
			sent := time.Now()
			all = append(all, watch(func() bool { return s.serving(manyName(n), c.address) == want }).Sub(sent))
		}
		b.ReportMetric(percentile(all, 50), kind+"-p50-s")
		b.ReportMetric(percentile(all, 99), kind+"-p99-s")
	}
	for i := range 100 { // as it was
		n := (i*37 + 17) % int(min(services, manyServices))
		c := manyInstance(n, 0)
		if err := server.Do(ctx, http.MethodPut, "/v1/catalog/deregister", map[string]any{"Node": c.node, "ServiceID": c.id + "-new"}, nil); err != nil {
			b.Fatal(err)
		}
		c.check(b, server)
		manyInstance(n, 1).register(b, server, manyName(n))
	}
	cancel()
	<-done
}

// counting counts requests.
type counting struct {
	http.RoundTripper
	n atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return c.RoundTripper.RoundTrip(r)
}
