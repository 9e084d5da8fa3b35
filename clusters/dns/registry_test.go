package dns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// fake is a resolver that a test scripts.
type fake struct {
	mu      sync.Mutex
	answers map[string]Answer // by "4 name" or "6 name"; others have none for an hour
	errs    map[string]error
	asked   map[string]int
	gate    chan struct{} // if not nil, every lookup takes one
	active  int
	most    int
}

func newFake() *fake {
	return &fake{answers: map[string]Answer{}, errs: map[string]error{}, asked: map[string]int{}}
}

func (f *fake) Lookup(ctx context.Context, name string, fam Family) (Answer, error) {
	key := fmt.Sprint([]string{"4 ", "6 "}[fam], name)
	f.mu.Lock()
	f.asked[key]++
	f.active++
	f.most = max(f.most, f.active)
	gate := f.gate
	f.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.active--
	a, ok := f.answers[key]
	if !ok {
		a = Answer{TTL: MaxTTL}
	}
	return a, f.errs[key]
}

// set scripts an answer: addresses, or an error.
func (f *fake) set(key string, ttl time.Duration, what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.errs, key)
	a := Answer{TTL: ttl}
	for _, w := range strings.Fields(what) {
		addr, err := netip.ParseAddr(w)
		if err != nil {
			f.errs[key] = errors.New(what)
			return
		}
		a.Addrs = append(a.Addrs, addr)
	}
	f.answers[key] = a
}

func (f *fake) count(key string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[key]
}

// sink records what is reported, a line each.
type sink struct {
	mu    sync.Mutex
	lines []string
}

func (s *sink) add(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

func (s *sink) Replace(st *model.ShardState) { s.add("replace %d", st.Len()) }

func (s *sink) Put(evs ...model.Event) {
	for _, e := range evs {
		if e.Obj == nil {
			s.add("delete %s", e.Row.Key)
			continue
		}
		c := e.Obj.(*model.Config)
		s.add("put %s %s %v", e.Row.Key, c.Name, c.Spec.(*model.ResolvedHost).Addrs)
	}
}

func (s *sink) Status(st model.Status) {
	text := string(st.State)
	for _, p := range st.Problems {
		text += " " + p.Item + ": " + p.Reason
	}
	s.add("%s", text)
}

// take gives the lines since the last call.
func (s *sink) take() []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.lines
	s.lines = nil
	return out
}

// inBubble runs a registry with fake time.
func inBubble(t *testing.T, f func(*testing.T, *Registry, *fake, *sink)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		names, out := newFake(), &sink{}
		r := New(Options{Cluster: "c1", Resolver: names})
		if r.Key() != (model.ShardKey{Provider: model.ProviderDNS, Cluster: "c1"}) {
			t.Errorf("key %v", r.Key())
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx, out) }()
		f(t, r, names, out)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
}

func expect(t *testing.T, out *sink, want ...string) {
	t.Helper()
	if d := cmp.Diff(want, out.take()); d != "" {
		t.Errorf("reported (-want +got):\n%s", d)
	}
}

// Incident 61: a name that can't be resolved is tried again; an answer holds for the lower of both families'
// times; what is the same is not reported twice.
func TestIncident61NamesAreResolvedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, r *Registry, f *fake, out *sink) {
		f.set("4 gw.example", 0, "SERVFAIL")
		f.set("6 gw.example", 0, "SERVFAIL")
		r.Want([]string{"GW.example."})
		expect(t, out, "replace 0", "live", "live gw.example: not resolved: IPv4: SERVFAIL; IPv6: SERVFAIL")
		time.Sleep(20 * time.Second) // tried after 5 and 15 s
		expect(t, out)
		if n := f.count("4 gw.example"); n != 3 {
			t.Errorf("asked %d times", n)
		}
		f.set("4 gw.example", 2*time.Minute, "192.0.2.2 192.0.2.1")
		f.set("6 gw.example", time.Minute, "2001:db8::1")
		time.Sleep(time.Minute)
		expect(t, out, "put ResolvedHost//gw.example gw.example [192.0.2.1 192.0.2.2 2001:db8::1]", "live")
		f.set("4 gw.example", 2*time.Minute, "192.0.2.1 192.0.2.2")
		asked := f.count("4 gw.example")
		time.Sleep(61 * time.Second)
		expect(t, out)
		if n := f.count("4 gw.example") - asked; n != 1 {
			t.Errorf("asked %d times in a minute", n)
		}
		f.set("4 gw.example", 2*time.Minute, "192.0.2.3")
		time.Sleep(time.Minute)
		expect(t, out, "put ResolvedHost//gw.example gw.example [192.0.2.3 2001:db8::1]")
	})
}

func TestTimeToLiveHasBounds(t *testing.T) {
	inBubble(t, func(t *testing.T, r *Registry, f *fake, _ *sink) {
		f.set("4 short.example", time.Second, "192.0.2.1")
		f.set("6 short.example", 0, "")
		f.set("4 long.example", 100*time.Hour, "192.0.2.1")
		f.set("6 long.example", 100*time.Hour, "")
		r.Want([]string{"short.example", "long.example"})
		time.Sleep(time.Hour + time.Second)
		if a, b := f.count("4 short.example"), f.count("4 long.example"); a != 121 || b != 2 {
			t.Errorf("asked %d and %d times in an hour", a, b)
		}
	})
}

// A failure keeps what is known, of one family or of both; nothing is an answer.
func TestIncident61FailureKeepsLastAddresses(t *testing.T) {
	inBubble(t, func(t *testing.T, r *Registry, f *fake, out *sink) {
		f.set("4 gw.example", time.Minute, "192.0.2.1")
		f.set("6 gw.example", time.Minute, "2001:db8::1")
		r.Want([]string{"gw.example"})
		expect(t, out, "replace 0", "live", "put ResolvedHost//gw.example gw.example [192.0.2.1 2001:db8::1]")
		f.set("6 gw.example", 0, "timeout")
		time.Sleep(time.Minute)
		expect(t, out, "live gw.example: not resolved: IPv6: timeout")
		f.set("4 gw.example", 0, "timeout")
		time.Sleep(10 * time.Minute)
		expect(t, out, "live gw.example: not resolved: IPv4: timeout; IPv6: timeout")
		f.set("4 gw.example", time.Minute, "")
		time.Sleep(2 * time.Minute)
		expect(t, out, "put ResolvedHost//gw.example gw.example [2001:db8::1]", "live gw.example: not resolved: IPv6: timeout")
		f.set("6 gw.example", time.Minute, "")
		time.Sleep(2 * time.Minute)
		expect(t, out, "put ResolvedHost//gw.example gw.example []", "live")
	})
}

// Names that are not wanted any more are forgotten, also while they are looked up.
func TestNamesComeAndGo(t *testing.T) {
	inBubble(t, func(t *testing.T, r *Registry, f *fake, out *sink) {
		f.set("4 a.example", time.Minute, "192.0.2.1")
		f.set("4 b.example", time.Minute, "192.0.2.2")
		r.Want([]string{"c.example"})
		r.Want([]string{"a.example", "b.example", "a.example."})
		synctest.Wait()
		got := out.take()
		if len(got) != 4 || f.count("4 c.example") != 0 {
			t.Errorf("reported %q", got)
		}
		gate := make(chan struct{})
		f.mu.Lock()
		f.gate = gate
		f.mu.Unlock()
		time.Sleep(time.Minute)
		r.Want([]string{"b.example"})
		synctest.Wait()
		f.set("4 a.example", time.Minute, "192.0.2.9")
		f.mu.Lock()
		f.gate = nil
		f.mu.Unlock()
		close(gate)
		expect(t, out, "delete ResolvedHost//a.example")
		time.Sleep(time.Hour)
		expect(t, out)
	})
}

// What can't be looked up is named, and there are bounds on how much is.
func TestNamesAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, r *Registry, f *fake, out *sink) {
		gate := make(chan struct{})
		f.gate = gate
		var many []string
		for i := range maxNames + 1 {
			many = append(many, fmt.Sprintf("n%04d.example", i))
		}
		r.Want(append(many, "no..name", strings.Repeat("x.", 200)+"example"))
		synctest.Wait()
		f.mu.Lock()
		if f.active != 2*maxParallel {
			t.Errorf("%d lookups under way", f.active)
		}
		f.mu.Unlock()
		close(gate)
		got := out.take()
		last := got[0]
		for _, l := range got {
			if strings.HasPrefix(l, "live ") {
				last = l
			}
		}
		want := "live n1000.example: not resolved: only 1000 names are resolved no..name: not resolved: it is not a DNS name "
		if !strings.HasPrefix(last, want) || f.most != 2*maxParallel || len(f.asked) != 2*maxNames {
			t.Errorf("status %q, %d at once, %d asked", last, f.most, len(f.asked))
		}
	})
}

func TestTooManyAddresses(t *testing.T) {
	inBubble(t, func(t *testing.T, r *Registry, f *fake, out *sink) {
		var many []string
		for i := range 100 {
			many = append(many, fmt.Sprintf("192.0.2.%d", i))
		}
		f.set("4 gw.example", time.Minute, strings.Join(many, " "))
		r.Want([]string{"gw.example"})
		got := out.take()
		if put := got[len(got)-1]; strings.Count(put, "192.0.2.") != maxAddrs {
			t.Error(put)
		}
	})
}

// puts passes on what is put.
type puts struct {
	sink
	rows chan *model.Config
}

func (p *puts) Put(evs ...model.Event) { p.rows <- evs[0].Obj.(*model.Config) }

// The registry with a real client and a real server.
func TestRegistryAsksServers(t *testing.T) {
	t.Parallel()
	s := serve(t, zone(map[string][]string{
		"A gw.example.":    {"gw.example. 60 IN CNAME lb.example.", "lb.example. 60 IN A 192.0.2.1"},
		"AAAA gw.example.": {"gw.example. 60 IN CNAME lb.example.", "lb.example. 60 IN AAAA 2001:db8::1"},
	}))
	r, out := New(Options{Cluster: "c1", Resolver: s.client(t, "")}), &puts{rows: make(chan *model.Config, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx, out) }()
	r.Want([]string{"gw.example"})
	row := <-out.rows
	if got := fmt.Sprintf("%s %s %v %s", row.Kind, row.Name, row.Spec.(*model.ResolvedHost).Addrs, row.Source.Shard); got != "ResolvedHost gw.example [192.0.2.1 2001:db8::1] dns/c1" {
		t.Error(got)
	}
	cancel()
	<-done
}
