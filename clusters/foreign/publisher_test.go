package foreign

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/dns"
	"github.com/isthmus-mesh/isthmus/clusters/memory"
)

// sink remembers what is true, and what it was told.
type sink struct {
	memory.Sink
	mu   sync.Mutex
	puts []string // "+key" or "-key" of each event
}

func (s *sink) Replace(st *model.ShardState) {
	s.take()
	s.Sink.Replace(st)
}

func (s *sink) Put(evs ...model.Event) {
	s.Sink.Put(evs...)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ev := range evs {
		word := "+"
		if ev.Obj == nil {
			word = "-"
		}
		s.puts = append(s.puts, word+ev.Row.Kind.String()+" "+ev.Row.Key)
	}
}

func (s *sink) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.puts
	s.puts = nil
	return out
}

// shown are the services and endpoints that are true, as lines.
func (s *sink) shown() []string {
	return shown(converted{rows: s.Rows()})
}

func publisher(spec api.RegistrySpec) (*Publisher, *sink) {
	out := &sink{}
	return NewPublisher(Options{Shard: shard, Spec: spec.Effective("shop")}, out), out
}

func named(key string, in ...Instance) Service {
	return Service{Key: key, Name: key, Suffix: "dc1.consul", Instances: in}
}

// TestEqualContentIsNotPutAgain: neither another order nor another revision is news.
func TestEqualContentIsNotPutAgain(t *testing.T) {
	t.Parallel()
	p, out := publisher(api.RegistrySpec{})
	a, b := up("10.0.0.1", 80), up("10.0.0.2", 80)
	p.Replace([]Service{named("orders", a, b)})
	s := named("orders", b, a)
	s.Revision = "2"
	p.Put(s)
	if got := out.take(); got != nil {
		t.Errorf("put %v", got)
	}
	b.Health = model.Unhealthy
	s = named("orders", b, a)
	s.Revision = "3"
	p.Put(s)
	want := []string{"+endpoints Service/shop/orders", "+workload Instance/shop/orders/10.0.0.2:80"}
	if d := cmp.Diff(want, out.take()); d != "" {
		t.Error(d)
	}
	if e := out.Rows()[model.RowKey{Kind: model.RowEndpoints, Key: "Service/shop/orders"}].(*model.Endpoints); e.Source.Revision != "3" || e.Endpoints[0].Source.Revision != "3" {
		t.Errorf("%+v", e.Source)
	}
}

// TestReplaceAgain: a full read puts what differs, and one snapshot has all of it.
func TestReplaceAgain(t *testing.T) {
	t.Parallel()
	p, out := publisher(api.RegistrySpec{})
	p.Replace([]Service{named("a", up("10.0.0.1", 80)), named("b", up("10.0.0.2", 80))})
	p.Replace([]Service{named("b", up("10.0.0.2", 80)), named("c", up("10.0.0.3", 80))})
	want := []string{"-service Service/shop/a", "-endpoints Service/shop/a", "-workload Instance/shop/a/10.0.0.1:80",
		"+service Service/shop/c", "+endpoints Service/shop/c", "+workload Instance/shop/c/10.0.0.3:80"}
	if d := cmp.Diff(want, out.take()); d != "" || out.Replaces() != 1 {
		t.Errorf("%d replaces, %s", out.Replaces(), d)
	}
}

// TestPortsStayWithoutInstances: a service that loses its last instance keeps its ports, so that nothing but its endpoints change.
func TestPortsStayWithoutInstances(t *testing.T) {
	t.Parallel()
	p, out := publisher(api.RegistrySpec{})
	p.Replace([]Service{named("a", up("10.0.0.1", 8080))})
	p.Put(named("a"))
	want := []string{"+endpoints Service/shop/a", "-workload Instance/shop/a/10.0.0.1:8080"}
	if d := cmp.Diff(want, out.take()); d != "" {
		t.Error(d)
	}
}

// TestOneHostTwice: the naming of Higress makes one host of two names: the first has it, the other is said to be left out, and has
// it when the first goes.
func TestOneHostTwice(t *testing.T) {
	t.Parallel()
	p, out := publisher(api.RegistrySpec{Hosts: &api.HostNaming{Mode: api.NamingHigress}})
	a, b := named("A_B@@s", up("10.0.0.1", 80)), named("A-B@@s", up("10.0.0.2", 80))
	a.Name, a.Suffix, b.Name, b.Suffix = "s", "A_B.public.nacos", "s", "A-B.public.nacos"
	p.Status(model.Status{State: model.StateLive})
	p.Replace([]Service{a})
	p.Put(b)
	first := []string{"service s.A-B.public.nacos http:80/http", "endpoint 10.0.0.2:80 http healthy weight=1 "}
	if d := cmp.Diff(first, out.shown()); d != "" {
		t.Error(d)
	}
	if ps := out.Last().Problems; len(ps) != 1 || ps[0].Item != "Service/shop/A_B@@s" || !strings.Contains(ps[0].Reason, "A-B@@s") {
		t.Errorf("%+v", ps)
	}
	p.Delete("A-B@@s")
	second := []string{"service s.A-B.public.nacos http:80/http", "endpoint 10.0.0.1:80 http healthy weight=1 "}
	if d := cmp.Diff(second, out.shown()); d != "" || len(out.Last().Problems) > 0 {
		t.Errorf("%v %s", out.Last().Problems, d)
	}
}

// TestOtherNameTwice: the other name of a service, which is a DNS name, may be the host or the other name of another one. A host goes before it; of two,
// the first has it. Which is told, and the service is served by its host.
func TestOtherNameTwice(t *testing.T) {
	t.Parallel()
	p, out := publisher(api.RegistrySpec{Hosts: &api.HostNaming{Mode: api.NamingHigress}})
	p.Status(model.Status{State: model.StateLive})
	p.Replace([]Service{named("my_s"), named("My_S")})
	expect := func(step string, want ...string) {
		t.Helper()
		var got []string
		for _, o := range out.Rows() {
			if s, ok := o.(*model.Service); ok && s.AliasOf != "" {
				got = append(got, s.Host+" "+s.AliasOf)
			}
		}
		for _, p := range out.Last().Problems {
			got = append(got, p.Item+": "+p.Reason)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(step, d)
		}
	}
	const alias, suffix = "my-x5fs.dc1.consul", ".dc1.consul"
	expect("of two", alias+" My_S"+suffix, "Service/shop/my_s: its other name "+alias+" is left out: it is that of My_S")
	p.Put(named("my-x5fs"))
	expect("a host", "my-x2dx5fs"+suffix+" "+alias, "Service/shop/My_S: its other name "+alias+" is left out: it is that of my-x5fs", "Service/shop/my_s: its other name "+alias+" is left out: it is that of my-x5fs")
	p.Delete("My_S")
	p.Delete("my-x5fs")
	expect("the last", alias+" my_s"+suffix)
}

// TestProblemsAreBounded: a registry full of odd names does not make a status of megabytes.
func TestProblemsAreBounded(t *testing.T) {
	t.Parallel()
	p, out := publisher(api.RegistrySpec{})
	p.Status(model.Status{State: model.StateLive})
	var all []Service
	for i := range 300 {
		all = append(all, named(fmt.Sprint(strings.Repeat("x", 70), i)))
	}
	p.Replace(all)
	if ps := out.Last().Problems; len(ps) != maxProblems+1 || ps[maxProblems].Reason != "200 more problems are not listed" {
		t.Errorf("%d problems, at last %+v", len(ps), ps[len(ps)-1])
	}
	if s := len(p.services); s != 300 {
		t.Errorf("%d services", s)
	}
	scope := []model.Problem{{Item: "limits.maxServices", Reason: "5 services are not read", Broad: true}, {Item: "peer:west", Reason: "refused", Broad: true}}
	p.Status(model.Status{State: model.StateLive, Problems: slices.Concat(scope, []model.Problem{{Item: "Service/shop/zz"}, {Reason: "30 more", More: 30}})})
	ps := out.Last().Problems
	if len(ps) != maxProblems+1 || ps[0].Item != scope[0].Item || ps[1].Item != scope[1].Item || ps[maxProblems].Reason != "233 more problems are not listed" {
		t.Errorf("%d problems: %+v, %+v, at last %+v", len(ps), ps[0], ps[1], ps[len(ps)-1])
	}
	told := len(out.Statuses())
	p.Put(all[:250]...)
	if n := len(out.Statuses()); n != told {
		t.Errorf("%d statuses that say the same", n-told)
	}
	for i := range 280 {
		p.Delete(all[i].Key)
	}
	if ps := out.Last().Problems; len(ps) != 24 || ps[23].More != 30 || model.CountProblems(ps) != 53 {
		t.Errorf("%d problems, at last %+v", len(ps), ps[len(ps)-1])
	}
}

// names answers for DNS names; what fails gives no answer.
type names struct {
	mu    sync.Mutex
	addrs map[string]string
	fail  bool
}

func (n *names) Lookup(_ context.Context, name string, f dns.Family) (dns.Answer, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fail {
		return dns.Answer{}, errors.New("no server answers")
	}
	if a, ok := n.addrs[name]; ok && f == dns.IPv4 {
		return dns.Answer{Addrs: []netip.Addr{netip.MustParseAddr(a)}, TTL: time.Minute}, nil
	}
	return dns.Answer{TTL: time.Minute}, nil
}

// TestIncident28NameKeepsItsLastAddresses: a failure of DNS does not remove an instance with a name, and another answer is served.
func TestIncident28NameKeepsItsLastAddresses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := &sink{}
		server := &names{addrs: map[string]string{"db.internal": "10.0.0.8"}}
		p := NewPublisher(Options{Shard: shard, Spec: api.RegistrySpec{}.Effective("shop"), Resolver: server}, out)
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { p.Run(ctx) })
		p.Status(model.Status{State: model.StateLive})
		p.Replace([]Service{named("db", up("db.internal", 80)), named("other", up("10.0.0.1", 80))})
		synctest.Wait()
		const service, other = "service db.dc1.consul http:80/http", "service other.dc1.consul http:80/http"
		expect := func(addr string) {
			t.Helper()
			want := []string{service, other, "endpoint " + addr + ":80 http healthy weight=1 ", "endpoint 10.0.0.1:80 http healthy weight=1 "}
			if d := cmp.Diff(want, out.shown()); d != "" {
				t.Error(d)
			}
		}
		expect("10.0.0.8")
		set := func(fail bool, addr string) {
			server.mu.Lock()
			server.fail, server.addrs["db.internal"] = fail, addr
			server.mu.Unlock()
			time.Sleep(2 * time.Minute) // of the fake clock
			synctest.Wait()
		}
		set(true, "10.0.0.9")
		expect("10.0.0.8")
		if ps := out.Last().Problems; len(ps) != 1 || ps[0].Item != "db.internal" {
			t.Errorf("%+v", ps)
		}
		set(false, "10.0.0.9")
		expect("10.0.0.9")
		if len(out.Last().Problems) > 0 {
			t.Errorf("%+v", out.Last().Problems)
		}
		p.Put(named("db", up("10.0.0.5", 80)))
		expect("10.0.0.5")
		cancel()
		run.Wait()
	})
}

// TestStepsAddUp: whatever the order of calls, what is true in the end is what one full read gives, and nothing is put that is already so.
func TestStepsAddUp(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 6))
		p, out := publisher(api.RegistrySpec{Hosts: &api.HostNaming{Mode: api.NamingHigress}})
		p.now = func() time.Time { return time.Time{} }
		truth := map[string]Service{}
		for range 60 {
			step(r, p, truth)
			if at := out.take(); len(at) > len(slices.Compact(slices.Sorted(slices.Values(at)))) {
				t.Fatalf("seed %d: a row twice in one call: %v", seed, at)
			}
		}
		fresh, want := publisher(api.RegistrySpec{Hosts: &api.HostNaming{Mode: api.NamingHigress}})
		fresh.now = p.now
		fresh.Replace(slices.Collect(maps.Values(truth)))
		p.Replace(slices.Collect(maps.Values(truth)))
		if d := cmp.Diff(want.shown(), out.shown()); d != "" {
			t.Fatalf("seed %d: %s", seed, d)
		}
		if len(want.Rows()) != len(out.Rows()) {
			t.Fatalf("seed %d: %d rows, want %d", seed, len(out.Rows()), len(want.Rows()))
		}
	}
}

// step makes a random change and tells of it.
func step(r *rand.Rand, p *Publisher, truth map[string]Service) {
	s := named(string(rune('a' + r.IntN(6))))
	s.Suffix = []string{"A_B.nacos", "A-B.nacos", "C.nacos"}[r.IntN(3)]
	s.Name = string(rune('s' + r.IntN(2)))
	for range 1 + r.IntN(3) {
		s.Instances = append(s.Instances, with(up(fmt.Sprint("10.0.0.", r.IntN(5)), 80), func(i *Instance) {
			i.Weight, i.Disabled = float64(r.IntN(3))/2, r.IntN(5) == 0
		}))
	}
	switch r.IntN(5) {
	case 0:
		p.Delete(s.Key)
		delete(truth, s.Key)
	case 1:
		truth[s.Key] = s
		p.Replace(slices.Collect(maps.Values(truth)))
	default:
		truth[s.Key] = s
		p.Put(s)
	}
}

func TestAccessKeepsItsSecrets(t *testing.T) {
	t.Parallel()
	a := Access{Token: "t0ken", Password: "t0ken", SecretKey: "t0ken", Key: []byte("t0ken")}
	if text := fmt.Sprintf("%v %+v %#v %s %v", a, a, a, a, &a); strings.Contains(text, "t0ken") {
		t.Error(text)
	}
}

// TestADNSNameMovesToAnotherService: who takes a name over in the moment in which its last user goes has its addresses, too. The
// resolver tells no news of a name that was wanted all the time.
func TestADNSNameMovesToAnotherService(t *testing.T) {
	t.Parallel()
	in := up("db.internal", 80)
	for name, move := range map[string]func(*Publisher){
		"in one turn": func(p *Publisher) { p.Put(named("a", up("10.0.0.1", 80)), named("b", in)) },
		"in two":      func(p *Publisher) { p.Delete("a"); p.Put(named("b", in)) },
		"in a list":   func(p *Publisher) { p.Replace([]Service{named("b", in)}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				out := &sink{}
				server := &names{addrs: map[string]string{"db.internal": "10.0.0.8"}}
				p := NewPublisher(Options{Shard: shard, Spec: api.RegistrySpec{}.Effective("shop"), Resolver: server}, out)
				ctx, cancel := context.WithCancel(t.Context())
				var run sync.WaitGroup
				run.Go(func() { p.Run(ctx) })
				p.Replace([]Service{named("a", in)})
				synctest.Wait()
				move(p)
				synctest.Wait()
				if got := out.shown(); !slices.Contains(got, "service b.dc1.consul http:80/http") || !slices.Contains(got, "endpoint 10.0.0.8:80 http healthy weight=1 ") {
					t.Error(got)
				}
				p.Delete("b")
				synctest.Wait()
				p.mu.Lock()
				if len(p.resolved) > 0 {
					t.Errorf("%v is remembered", p.resolved)
				}
				p.mu.Unlock()
				cancel()
				run.Wait()
			})
		})
	}
}

// TestIncident28AReplacementKnowsTheNames: new credentials make a new connection. That it has not asked for the names of instances yet, or
// can't, takes none away.
func TestIncident28AReplacementKnowsTheNames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &names{addrs: map[string]string{"db.internal": "10.0.0.8"}}
		remembers := Remember(server)
		start := func() (*Publisher, *sink, func()) {
			out := &sink{}
			p := NewPublisher(Options{Shard: shard, Spec: api.RegistrySpec{}.Effective("shop"), Resolver: remembers}, out)
			ctx, cancel := context.WithCancel(t.Context())
			var run sync.WaitGroup
			run.Go(func() { p.Run(ctx) })
			return p, out, func() { cancel(); run.Wait() }
		}
		expect := func(out *sink, addr string) {
			t.Helper()
			want := []string{"service db.dc1.consul http:80/http", "endpoint " + addr + ":80 http healthy weight=1 "}
			if d := cmp.Diff(want, out.shown()); d != "" {
				t.Error(d)
			}
		}
		p, out, end := start()
		p.Replace([]Service{named("db", up("db.internal", 80))})
		synctest.Wait()
		expect(out, "10.0.0.8")
		server.mu.Lock()
		server.fail = true
		server.mu.Unlock()
		next, out, endNext := start()
		next.Replace([]Service{named("db", up("db.internal", 80))})
		expect(out, "10.0.0.8") // at once
		end()
		time.Sleep(2 * time.Minute) // of the fake clock
		synctest.Wait()
		expect(out, "10.0.0.8")
		server.mu.Lock()
		server.fail, server.addrs["db.internal"] = false, "10.0.0.9"
		server.mu.Unlock()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		expect(out, "10.0.0.9")
		endNext()
	})
}

func TestTheResolverRemembersOnlySoMuch(t *testing.T) {
	t.Parallel()
	r := Remember(&names{addrs: map[string]string{"a": "10.0.0.8"}})
	for n := range maxRemembered {
		_, _ = r.Lookup(t.Context(), fmt.Sprint(n), dns.IPv4)
	}
	_, _ = r.Lookup(t.Context(), "a", dns.IPv4)
	if got := r.addresses("a"); len(got) != 1 || len(r.last) > maxRemembered || r.addresses("0") != nil {
		t.Errorf("%v, %d names", got, len(r.last))
	}
}
