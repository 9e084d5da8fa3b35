package foreign

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/dns"
)

// maxProblems bounds how many problems a status has: what concerns the registry first, then items.
const maxProblems = 100

// Options configure a Publisher.
type Options struct {
	Shard    model.ShardKey
	Spec     api.RegistrySpec // with defaults, as Effective gives it
	Resolver dns.Resolver     // of instances that have DNS names; that of the machine if nil. A *Resolver also says what it said before
	Log      *slog.Logger     // discards if nil
	Now      func() time.Time // time.Now if nil
}

// Publisher turns a registry's services into rows, and puts those that differ from what it put last. It is safe for
// use by several goroutines. One is made for each run of a registry.
type Publisher struct {
	convert converter
	out     model.Sink
	names   *dns.Registry
	last    func(name string) []netip.Addr // what a DNS name is known to have had, if anything
	now     func() time.Time

	mu       sync.Mutex
	services map[string]*published // guarded by mu: by key
	hosts    map[string][]string   // guarded by mu: the keys that would have a host, sorted; the first one has it
	aliases  map[string][]string   // guarded by mu: likewise of other names; one that is a host is nobody's
	using    map[string]set        // guarded by mu: the keys that use a DNS name
	resolved resolved              // guarded by mu
	faulty   []trouble             // guarded by mu: services with which something is wrong, by key
	news     bool                  // guarded by mu: there may be other problems than were reported
	synced   bool                  // guarded by mu: Replace was called
	status   model.Status          // guarded by mu: as the registry gave it
	unnamed  []model.Problem       // guarded by mu: names that are not resolved, as many as are told
	reported []model.Problem       // guarded by mu: the items of the last status
}

type set map[string]struct{}

// trouble is what is wrong with a service.
type trouble struct {
	key     string
	problem model.Problem
}

// published is a service and what was last said of it.
type published struct {
	service Service
	rows    map[model.RowKey]model.Object
	ports   []model.Port // the last that there were
	names   []string     // DNS names of its instances, sorted
}

// NewPublisher gives a publisher that has said nothing yet.
func NewPublisher(o Options, out model.Sink) *Publisher {
	p := &Publisher{
		convert: newConverter(o), out: out, now: o.Now,
		names:    dns.New(dns.Options{Cluster: o.Shard.Cluster, Resolver: o.Resolver, Log: o.Log}),
		services: map[string]*published{}, hosts: map[string][]string{}, aliases: map[string][]string{}, using: map[string]set{}, resolved: resolved{},
	}
	if p.now == nil {
		p.now = time.Now
	}
	p.last = func(string) []netip.Addr { return nil }
	if r, ok := o.Resolver.(*Resolver); ok {
		p.last = r.addresses
	}
	return p
}

// Run resolves the DNS names of instances until ctx ends.
func (p *Publisher) Run(ctx context.Context) { _ = p.names.Run(ctx, namesSink{p}) }

// Replace gives the whole truth: the first sync, and every full read.
func (p *Publisher) Replace(services []Service) {
	p.mu.Lock()
	defer p.mu.Unlock()
	keep := set{}
	for i := range services {
		keep[services[i].Key] = struct{}{}
	}
	t := &turn{Publisher: p, dirty: set{}}
	for key := range p.services {
		if _, ok := keep[key]; !ok {
			t.remove(key)
		}
	}
	for i := range services {
		t.set(services[i])
	}
	t.end()
	if !p.synced {
		p.synced = true
		b := model.NewShardBuilder()
		for _, s := range p.services {
			for k, o := range s.rows {
				b.Add(k.Key, o)
			}
		}
		p.out.Replace(b.Build())
		p.report(false)
	}
}

// Put gives the complete new values of services.
func (p *Publisher) Put(services ...Service) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &turn{Publisher: p, dirty: set{}}
	for i := range services {
		t.set(services[i])
	}
	t.end()
}

// Delete takes services away, by their keys.
func (p *Publisher) Delete(keys ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &turn{Publisher: p, dirty: set{}}
	for _, k := range keys {
		t.remove(k)
	}
	t.end()
}

// Status passes on what is known of the contact with the registry; items that can't be used are added to its problems.
func (p *Publisher) Status(s model.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status = s
	if after := p.convert.spec.StaleAfter; after != nil {
		p.status.StaleAfter = after.Duration
	}
	p.report(true)
}

// report gives the status if it is news, or anyway; it is called with mu held.
func (p *Publisher) report(anyway bool) {
	if p.status.State == "" || !anyway && !p.news {
		return
	}
	p.news = false
	problems := slices.Concat(p.status.Problems, p.unnamed)
	told := min(len(p.faulty), maxProblems)
	for _, f := range p.faulty[:told] {
		problems = append(problems, f.problem)
	}
	if more := len(p.faulty) - told; more > 0 {
		problems = append(problems, model.Problem{More: more})
	}
	problems = model.ListProblems(p.now(), problems, p.reported, maxProblems)
	if !anyway && slices.Equal(problems, p.reported) {
		return
	}
	p.reported = problems
	s := p.status
	s.Problems = problems
	p.out.Status(s)
}

// fault notes what is wrong with a service; "" if nothing is.
func (p *Publisher) fault(key, reason string) {
	i, had := slices.BinarySearchFunc(p.faulty, key, func(f trouble, key string) int { return strings.Compare(f.key, key) })
	switch {
	case !had && reason == "" || had && p.faulty[i].problem.Reason == reason:
		return
	case reason == "":
		p.faulty = slices.Delete(p.faulty, i, i+1)
	default:
		if !had {
			p.faulty = slices.Insert(p.faulty, i, trouble{key: key})
		}
		p.faulty[i].problem = model.Problem{Item: p.convert.object(kindService, key).String(), Reason: reason, Since: p.now()}
	}
	p.news = true
}

// turn is one call: the services that it touches are converted once, at its end.
type turn struct {
	*Publisher
	dirty   set
	events  []model.Event
	renamed bool // other DNS names are in use
}

func (t *turn) set(s Service) {
	old := t.services[s.Key]
	if old == nil {
		old = &published{}
		t.services[s.Key] = old
	} else if t.convert.host(old.service) != t.convert.host(s) {
		t.unname(old.service)
	}
	old.service = s
	t.claim(t.hosts, t.convert.host(s), s.Key)
	if alias := t.convert.alias(s); alias != "" {
		t.claim(t.aliases, alias, s.Key)
	}
	t.touch(s.Key)
}

func (t *turn) remove(key string) {
	s := t.services[key]
	if s == nil {
		return
	}
	t.unname(s.service)
	t.use(s, nil)
	for _, row := range sortedRows(s.rows) {
		t.events = append(t.events, model.Event{Row: row})
	}
	delete(t.services, key)
	t.fault(key, "")
	delete(t.dirty, key)
}

func (t *turn) claim(names map[string][]string, name, key string) {
	if i, has := slices.BinarySearch(names[name], key); !has {
		names[name] = slices.Insert(names[name], i, key)
		t.contest(name)
	}
}

// unname has a service claim its names no more; one of another host has another alias.
func (t *turn) unname(s Service) {
	for name, of := range map[string]map[string][]string{t.convert.host(s): t.hosts, t.convert.alias(s): t.aliases} {
		rest := slices.DeleteFunc(slices.Clone(of[name]), func(k string) bool { return k == s.Key })
		if of[name] = rest; len(rest) == 0 {
			delete(of, name)
		}
		t.contest(name)
	}
}

// contest has all that would have a name converted: who had it may have it no more.
func (t *turn) contest(name string) {
	t.touch(t.hosts[name]...)
	t.touch(t.aliases[name]...)
}

// holders tells who has the names of a service.
func (t *turn) holders(s Service) holders {
	alias := t.convert.alias(s)
	return holders{t.hosts[t.convert.host(s)][0], slices.Concat(t.hosts[alias], t.aliases[alias], []string{""})[0]}
}

func (t *turn) touch(keys ...string) {
	for _, k := range keys {
		t.dirty[k] = struct{}{}
	}
}

// end converts what was touched, and puts what has changed.
func (t *turn) end() {
	for _, key := range slices.Sorted(maps.Keys(t.dirty)) {
		if s := t.services[key]; s != nil {
			t.refresh(s)
		}
	}
	if t.renamed {
		t.names.Want(slices.Sorted(maps.Keys(t.using)))
	}
	if t.synced {
		if len(t.events) > 0 {
			t.out.Put(t.events...)
		}
		t.report(false)
	}
}

// refresh makes the rows of a service; those that say what they said stay.
func (t *turn) refresh(s *published) {
	t.use(s, dnsNames(s.service.Instances))
	stamp := model.Source{Revision: s.service.Revision, Time: t.now()}
	fresh := t.convert.rows(s.service, s.ports, t.resolved, t.holders(s.service), stamp)
	for _, row := range sortedRows(fresh.rows) {
		if old := s.rows[row]; old != nil && model.SameRow(old, fresh.rows[row]) {
			fresh.rows[row] = old
		} else {
			t.events = append(t.events, model.Event{Row: row, Obj: fresh.rows[row]})
		}
	}
	for _, row := range sortedRows(s.rows) {
		if fresh.rows[row] == nil {
			t.events = append(t.events, model.Event{Row: row})
		}
	}
	s.rows, s.ports = fresh.rows, fresh.ports
	t.fault(s.service.Key, fresh.problem)
}

// use notes which DNS names a service has.
func (t *turn) use(s *published, names []string) {
	if slices.Equal(s.names, names) {
		return
	}
	t.renamed = true
	for _, n := range s.names {
		if delete(t.using[n], s.service.Key); len(t.using[n]) == 0 {
			delete(t.using, n)
		}
	}
	for _, n := range names {
		if t.using[n] == nil {
			t.using[n] = set{}
			if _, known := t.resolved[n]; !known {
				if addrs := t.last(n); len(addrs) > 0 {
					t.resolved[n] = addrs
				}
			}
		}
		t.using[n][s.service.Key] = struct{}{}
	}
	s.names = names
}

// namesSink takes what is known of DNS names.
type namesSink struct{ *Publisher }

// Replace implements model.Sink: nothing is known yet.
func (namesSink) Replace(*model.ShardState) {}

// Put implements model.Sink.
func (s namesSink) Put(events ...model.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &turn{Publisher: s.Publisher, dirty: set{}}
	for _, ev := range events {
		c, ok := ev.Obj.(*model.Config)
		if !ok { // no longer wanted. Not before: what is wanted all the time, if by others, is not told again
			maps.DeleteFunc(t.resolved, func(name string, _ []netip.Addr) bool { return t.using[name] == nil })
			continue
		}
		t.resolved[c.Name] = c.Spec.(*model.ResolvedHost).Addrs
		for key := range t.using[c.Name] {
			t.touch(key)
		}
	}
	t.end()
}

// Status implements model.Sink.
func (s namesSink) Status(st model.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unnamed, s.news = model.ListProblems(s.now(), slices.Clone(st.Problems), s.unnamed, maxProblems), true
	if s.synced {
		s.report(false)
	}
}

func sortedRows(rows map[model.RowKey]model.Object) []model.RowKey {
	return slices.SortedFunc(maps.Keys(rows), func(a, b model.RowKey) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), strings.Compare(a.Key, b.Key))
	})
}
