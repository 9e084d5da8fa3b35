package soak_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// TestClustersJoiningDyingAndReturning has clusters join, leave, die and return in
// random order, with credentials good and bad, while objects change in those that
// the hub reads and in those that it can't. After each round the hub, and the
// proxies, have exactly what a rebuild from the API servers gives.
func TestClustersJoiningDyingAndReturning(t *testing.T) {
	t.Parallel()
	began := time.Now()
	s := newStorm(t)
	t.Logf("%d API servers after %v", len(s.all()), time.Since(began).Round(time.Second))
	for i := range setting(t, "ROUNDS", 10) {
		s.round(i)
	}
	s.manyDead()
	s.allReturn()
	full := s.figures()
	s.allLeave()
	t.Logf("%v: %s", time.Since(began).Round(time.Second), s.tally())
	t.Logf("%d assignments checked at %d proxies; a change reached proxies within %v at the most while clusters were dead",
		s.guard.count(), len(s.proxies), s.slowest.Round(time.Millisecond))
	bare := s.still()
	s.allReturn()
	s.allLeave()
	t.Logf("with all: %v; after they left: %v; after they came and left again: %v", full, bare, s.flat(bare, len(s.remotes)*least))
	s.sound()
}

// storm is a mesh to which random things happen.
type storm struct {
	*mesh
	r       *rand.Rand
	events  map[string]int
	fences  int
	slowest time.Duration
}

func newStorm(t *testing.T) *storm {
	s := &storm{mesh: newMesh(t, setting(t, "CLUSTERS", 20)), r: chance(t), events: map[string]int{}}
	for _, x := range s.all() {
		s.furnish(s.r, x)
	}
	s.serve("--sync-timeout=30s")
	s.connect(primary, 4)
	for _, x := range s.remotes[:(len(s.remotes)+1)/2] {
		s.join(x)
	}
	s.compare()
	s.connect("c1", 2)
	return s
}

func (s *storm) tally() string {
	var out []string
	for what, n := range s.events {
		out = append(out, fmt.Sprintf("%d %s", n, what))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// where draws a cluster for which cond holds; nil if there is none.
func (s *storm) where(cond func(*member) bool) *member {
	var some []*member
	for _, x := range s.remotes {
		if cond(x) {
			some = append(some, x)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return pick(s.r, some...)
}

// event is something that may happen to a cluster.
type event struct {
	name   string
	weight int
	to     func(*member) bool // to which clusters
	do     func(*storm, *member)
}

var events = []event{
	{"changes", 16, func(x *member) bool { return !x.down }, (*storm).alter},
	{"joins", 5, func(x *member) bool { return !x.joined && !x.down }, (*storm).join},
	{"leaves", 3, func(x *member) bool { return x.joined }, (*storm).leave},
	{"cuts", 3, func(x *member) bool { return x.contact() }, func(s *storm, x *member) { s.lose(x, func() { x.way = cut; x.link.Cut() }) }},
	{"hangs", 2, func(x *member) bool { return x.contact() }, func(s *storm, x *member) { s.lose(x, func() { x.way = hung; x.link.Hang() }) }},
	{"kills", 1, func(x *member) bool { return x.contact() }, func(s *storm, x *member) { s.lose(x, func() { x.down = true; x.Stop(s.T) }) }},
	{"returns", 5, func(x *member) bool { return !x.contact() }, (*storm).restore},
	{"re-watches", 2, func(x *member) bool { return x.contact() }, func(s *storm, x *member) { x.link.DropConnections() }},
	{"rotations", 4, func(x *member) bool { return x.joined && !x.down }, (*storm).renew},
	{"useless credentials", 2, func(x *member) bool { return x.joined }, (*storm).spoil},
}

// happen makes one event happen.
func (s *storm) happen() {
	s.Helper()
	sum := 0
	for _, e := range events {
		sum += e.weight
	}
	n := s.r.IntN(sum)
	for _, e := range events {
		if n -= e.weight; n >= 0 {
			continue
		}
		if x := s.where(e.to); x != nil {
			s.events[e.name]++
			e.do(s, x)
		}
		return
	}
}

func (s *storm) round(i int) {
	s.Helper()
	if i%4 == 3 {
		s.withoutConfigCluster()
	}
	for range 4 + len(s.remotes)/2 {
		s.happen()
	}
	s.change(s.r, s.config)
	s.configure(s.r, s.config)
	s.flow()
	s.compare()
	s.states()
	p := pick(s.r, s.proxies...)
	if !slices.ContainsFunc(s.remotes, func(x *member) bool { return x.id == p.cluster && !x.joined }) {
		s.reconnect(p) // a proxy of a cluster that is not there would be told so
	}
}

func (s *storm) alter(x *member) { s.change(s.r, x) }

func (s *storm) join(x *member) {
	s.Helper()
	if !x.contact() {
		// A Secret that goes and comes at once may look like one that changed, and then what is known of
		// the cluster stays.
		s.eventually(x.id+" being gone", func() error {
			all, err := s.entries()
			if _, there := all[x.id]; there {
				err = fmt.Errorf("%s is there", x.id)
			}
			return err
		})
	}
	x.joined, x.bad, x.known = true, false, []content{{}}
	s.secret(x, x.link.Kubeconfig(x.Token(s.T, reader, 3600)))
}

func (s *storm) leave(x *member) {
	s.Helper()
	s.guard.release("steady", s.stays(x))
	x.joined, x.known = false, nil
	s.config.Delete(s.T, x.secret())
}

// renew gives a new credential; the hub may not be able to use it yet.
func (s *storm) renew(x *member) {
	s.Helper()
	x.bad = false
	s.secret(x, x.link.Kubeconfig(x.Token(s.T, reader, 3600)))
}

// spoil gives a credential of no use. A cluster that was never read has none to go on with.
func (s *storm) spoil(x *member) {
	s.Helper()
	if x.contact() {
		s.settle(x)
	}
	if !x.contact() && len(x.known) == 1 && len(x.known[0].lines) == 0 {
		return
	}
	x.bad = true
	s.secret(x, pick(s.r, []byte(withExec), []byte("no kubeconfig"), x.link.Kubeconfig("wrong")))
}

// lose makes the hub lose contact, half of the time with a change on its way.
func (s *storm) lose(x *member, how func()) {
	s.Helper()
	if x.joined {
		x.known = []content{s.settle(x)[x]}
		if s.r.IntN(2) == 0 {
			s.steady(s.r, x)
			s.refresh(x)
			x.known = append(x.known, x.now)
		}
	}
	s.refresh(x)
	how()
}

func (s *storm) restore(x *member) {
	s.Helper()
	if x.down {
		x.Start(s.T)
	}
	x.link.Restore()
	x.down, x.way, x.known, x.dirty = false, open, nil, true
}

// withoutConfigCluster has things change while the config cluster is away.
func (s *storm) withoutConfigCluster() {
	s.Helper()
	s.events["outages of the config cluster"]++
	s.lose(s.config, func() { s.config.way = cut; s.config.link.Cut() })
	for range 3 {
		s.change(s.r, s.config)
		s.configure(s.r, s.config)
		if x := s.where(func(x *member) bool { return !x.down }); x != nil {
			s.change(s.r, x)
		}
	}
	s.compare()
	s.states()
	s.restore(s.config)
	s.settle(s.config)
}

// flowLimit bounds how long a change of a healthy cluster may take while others are dead.
const flowLimit = 10 * time.Second

// flow has a healthy cluster change something, which must soon be known.
func (s *storm) flow() {
	s.Helper()
	if s.where(func(x *member) bool { return x.joined && !x.contact() }) == nil {
		return
	}
	x := s.where(func(x *member) bool { return x.joined && x.contact() })
	if x == nil {
		x = s.config
	}
	s.settle(x)
	s.fences++
	for s.steady(s.r, x); s.same(x); s.steady(s.r, x) {
	}
	began := time.Now()
	s.refresh(x)
	want := x.now.usable[outbound("steady")]
	envoytest.Eventually(s, flowLimit, "a change of "+x.id+" at all proxies", func() error {
		for _, p := range s.proxies {
			all, err := p.endpoints()
			if err != nil {
				return err
			}
			for _, a := range want {
				if !slices.Contains(all[outbound("steady")], a) {
					return fmt.Errorf("%s has %q, not %s", p.ID(), all[outbound("steady")], a)
				}
			}
		}
		return nil
	})
	s.slowest = max(s.slowest, time.Since(began))
}

// same reports whether a change of steady changed nothing that proxies see.
func (m *mesh) same(x *member) bool {
	before := x.now
	m.refresh(x)
	return slices.Equal(before.lines, x.now.lines)
}

// states waits until the hub tells the state of each cluster, and nothing of those that left.
func (s *storm) states() {
	s.Helper()
	s.eventually("the states of the clusters", func() error {
		all, err := s.entries()
		if err != nil {
			return err
		}
		for _, x := range s.all() {
			e, there := all[x.id]
			if there != x.joined {
				return fmt.Errorf("%s is there: %t, joined: %t", x.id, there, x.joined)
			}
			if there && !slices.Contains(x.states(), e.State) {
				return fmt.Errorf("%s (way %s, down %t, useless credential %t): %+v, want %q", x.id, x.way, x.down, x.bad, e, x.states())
			}
			if e.State == "stale" && (e.Since.IsZero() || e.Error == "") {
				return fmt.Errorf("%s is stale without since when and why: %+v", x.id, e)
			}
		}
		return s.metrics(all)
	})
}

// states are those that a cluster may be in.
func (x *member) states() []string {
	never := len(x.known) == 1 && len(x.known[0].lines) == 0
	switch {
	case x.contact() && x.bad:
		return []string{"degraded"}
	case x.contact():
		return []string{"live"}
	case never:
		return []string{"syncing", "timeout"}
	case x.way == hung && !x.down: // not noticed at once
		return []string{"stale", "degraded", "live"}
	}
	return []string{"stale", "degraded"}
}

// metrics checks that those of the contact agree with the page.
func (s *storm) metrics(all map[string]debug.Cluster) error {
	for _, x := range s.remotes {
		label := fmt.Sprintf("cluster=%q", x.id)
		rows, err := s.hub.Metric(s.Context(), "isthmus_shard_state", label)
		if err != nil {
			return err
		}
		if e, there := all[x.id]; there != (rows > 0) {
			return fmt.Errorf("%s is in clusterz: %t (%s), and in isthmus_shard_state: %v", x.id, there, e.State, rows)
		}
		age, err := s.hub.Metric(s.Context(), "isthmus_shard_stale_seconds", label)
		if err != nil {
			return err
		}
		if stale := all[x.id].State == "stale"; stale && age <= 0 || all[x.id].State == "live" && age > 0 {
			return fmt.Errorf("%s is %s, and stale for %v s", x.id, all[x.id].State, age)
		}
	}
	return nil
}

// manyDead has every second cluster that is joined die at once, in all ways; the others go on.
func (s *storm) manyDead() {
	s.Helper()
	var dead []*member
	for _, x := range s.remotes {
		if x.joined && x.contact() && len(dead) < (len(s.remotes)+1)/2 {
			dead = append(dead, x)
		}
	}
	for i, x := range dead[:(len(dead)+1)/2] {
		switch i % 2 {
		case 0:
			s.lose(x, func() { x.way = hung; x.link.Hang() })
		default:
			s.lose(x, func() { x.way = cut; x.link.Cut() })
		}
	}
	s.flow()
	s.compare()
	s.eventually("every dead cluster to be known as such", func() error {
		all, err := s.entries()
		for _, x := range s.remotes {
			if e := all[x.id]; x.joined && !x.contact() && e.State == "live" {
				err = fmt.Errorf("%s is %s, way %s", x.id, e.State, x.way)
			}
		}
		return err
	})
	s.flow()
	s.compare()
}

// allReturn brings every cluster back, with good credentials.
func (s *storm) allReturn() {
	s.Helper()
	for _, x := range s.remotes {
		if !x.contact() {
			s.restore(x)
		}
		if !x.joined {
			s.join(x)
		} else if x.bad {
			s.renew(x)
		}
	}
	s.compare()
	s.states()
}

// allLeave leaves the hub with the config cluster alone.
func (s *storm) allLeave() {
	s.Helper()
	for _, x := range s.remotes {
		s.leave(x)
	}
	s.part(func(p *proxy) bool { return p.cluster != primary })
	s.compare()
	s.states()
}
