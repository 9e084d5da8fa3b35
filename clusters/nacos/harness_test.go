package nacos

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/foreign"
)

// patience is how long tests wait for what must come: long, for a busy machine.
const patience = 2 * time.Minute

// quick are times for tests. What comes after a time-out or an interval comes soon, and nothing depends on how soon.
var quick = timing{
	request: 10 * time.Second, login: 5 * time.Second, relogin: time.Nanosecond, poll: time.Millisecond, beat: 20 * time.Millisecond,
	settle: time.Hour, reconcile: time.Hour, notify: 20 * time.Millisecond, relist: 10 * time.Millisecond,
	refused: 20 * time.Millisecond, servers: 20 * time.Millisecond,
}

// sink keeps the rows of a run.
type sink struct {
	t testing.TB

	mu       sync.Mutex
	rows     map[model.RowKey]model.Object
	replaced int
	puts     int
	status   model.Status
	states   []model.State // all that there were
	changed  chan struct{}
}

func newSink(t testing.TB) *sink {
	return &sink{t: t, rows: map[model.RowKey]model.Object{}, changed: make(chan struct{})}
}

func (s *sink) enter() func() {
	s.mu.Lock()
	return func() {
		close(s.changed)
		s.changed = make(chan struct{})
		s.mu.Unlock()
	}
}

func (s *sink) Replace(state *model.ShardState) {
	defer s.enter()()
	s.rows = maps.Collect(state.Rows())
	s.replaced++
}

func (s *sink) Put(events ...model.Event) {
	defer s.enter()()
	s.puts++
	for _, e := range events {
		if s.rows[e.Row] = e.Obj; e.Obj == nil {
			delete(s.rows, e.Row)
		}
	}
}

func (s *sink) Status(st model.Status) {
	defer s.enter()()
	if st.State != s.status.State {
		s.states = append(s.states, st.State)
	}
	s.status = st
}

// await waits until ok holds for the sink, which is locked meanwhile.
func (s *sink) await(what string, ok func() bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	for {
		s.mu.Lock()
		done, next := ok(), s.changed
		s.mu.Unlock()
		if done {
			return
		}
		select {
		case <-next:
		case <-ctx.Done():
			s.mu.Lock()
			defer s.mu.Unlock()
			s.t.Fatalf("%s: not within %v; status %+v, services %v", what, patience, s.status, s.services())
		}
	}
}

// services are the endpoints by service: "orders.default_group.public.nacos" → "10.0.0.1:80 healthy 100". Called with mu held.
func (s *sink) services() map[string][]string {
	out := map[string][]string{}
	for _, o := range s.rows {
		switch o := o.(type) {
		case *model.Service:
			if _, ok := out[o.Source.Object.Name]; !ok {
				out[o.Source.Object.Name] = nil
			}
		case *model.Endpoints:
			for _, e := range o.Endpoints {
				text := fmt.Sprintf("%s %s", e.Addr.AddrPort, e.Health)
				if e.Weight != 1 {
					text += fmt.Sprint(" ×", e.Weight)
				}
				out[o.Source.Object.Name] = append(out[o.Source.Object.Name], text)
			}
		}
	}
	for _, e := range out {
		slices.Sort(e)
	}
	return out
}

// awaitServices waits until exactly these are there, as "key: endpoint, endpoint".
func (s *sink) awaitServices(want ...string) {
	s.t.Helper()
	want = slices.Sorted(slices.Values(want))
	s.await("services "+strings.Join(want, "; "), func() bool { return s.replaced > 0 && slices.Equal(s.lines(), want) })
}

// lines are the services as awaitServices takes them. Called with mu held.
func (s *sink) lines() []string {
	var out []string
	for n, e := range s.services() {
		out = append(out, strings.TrimSuffix(n+": "+strings.Join(e, ", "), ": "))
	}
	slices.Sort(out)
	return out
}

func (s *sink) awaitState(want model.State) {
	s.t.Helper()
	s.await("state "+string(want), func() bool { return s.status.State == want })
}

func (s *sink) awaitProblem(item, reason string) {
	s.t.Helper()
	s.await("problem of "+item, func() bool {
		return slices.ContainsFunc(s.status.Problems, func(p model.Problem) bool { return p.Item == item && strings.Contains(p.Reason, reason) })
	})
}

// spec is that of a fake server, changed by mods.
func (f *fake) spec(mods ...func(*api.RegistrySpec)) api.RegistrySpec {
	_, port := split(f.t, f.addr)
	s := api.RegistrySpec{
		Provider: api.Nacos, Addresses: []string{f.httpAddr},
		Nacos:  &api.NacosSpec{GRPCPort: port, DiscoveryInterval: &metav1.Duration{Duration: 10 * time.Millisecond}},
		Limits: &api.Limits{RequestsPerSecond: 100_000},
	}
	for _, mod := range mods {
		mod(&s)
	}
	return s.Effective("ns")
}

func split(t *testing.T, addr string) (host string, port uint16) {
	t.Helper()
	s, err := parseServer(addr, 0)
	if err != nil {
		t.Fatal(err)
	}
	return s.host, s.http
}

// quickly makes a registry that is in a hurry.
func quickly(o Options, mods ...func(*timing)) (*Registry, error) {
	if o.Backoff == nil {
		o.Backoff = func(int) time.Duration { return time.Millisecond }
	}
	if o.Name == "" {
		o.Name = "trade"
	}
	r, err := New(o)
	if err != nil {
		return nil, err
	}
	r.timing = quick
	for _, mod := range mods {
		mod(&r.timing)
	}
	return r, nil
}

// start starts a registry, which ends with the test.
func start(t *testing.T, o Options, mods ...func(*timing)) *sink {
	t.Helper()
	r, err := quickly(o, mods...)
	if err != nil {
		t.Fatal(err)
	}
	return run(t, r)
}

func run(t *testing.T, r model.Registry) *sink {
	t.Helper()
	out := newSink(t)
	t.Cleanup(begin(r, out))
	return out
}

// begin runs a registry until stop is called, which waits for its end.
func begin(r model.Registry, out model.Sink) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		_ = r.Run(ctx, out) // until ctx ends
		close(done)
	}()
	return func() {
		cancel()
		<-done
	}
}

func public(name string) serviceName { return serviceName{publicNamespace, defaultGroup, name} }

func host(addr string, mods ...func(*instance)) instance {
	ip, port, _ := strings.Cut(addr, ":")
	h := instance{IP: ip, Weight: 1, Healthy: true, Enabled: true, Ephemeral: true, Cluster: "DEFAULT"}
	_, _ = fmt.Sscan(port, &h.Port)
	h.ID = fmt.Sprintf("%s#%d#DEFAULT", ip, h.Port)
	for _, mod := range mods {
		mod(&h)
	}
	return h
}

func reader(password string) foreign.Access {
	return foreign.Access{Username: "reader", Password: password}
}

// series counts those of a metric.
func series(t *testing.T, reg *prometheus.Registry, metric string) (n int) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == metric {
			n += len(f.GetMetric())
		}
	}
	return n
}
