package clusters_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters"
	"github.com/isthmus-mesh/isthmus/clusters/memory"
	"github.com/isthmus-mesh/isthmus/secrets"
)

// ledger is a Lifecycle that remembers. The texts of attached registries are "credential/trust domain", or "refused".
type ledger struct {
	mu       sync.Mutex
	attached map[model.ClusterID][]string // guarded by mu; since the last detach
	made     map[model.Registry]string    // guarded by mu
	first    map[model.Registry]bool      // guarded by mu
	again    map[model.Registry]bool      // guarded by mu: was attached before
	faults   []string                     // guarded by mu
}

func newLedger() *ledger {
	return &ledger{attached: map[model.ClusterID][]string{}, made: map[model.Registry]string{}, first: map[model.Registry]bool{}, again: map[model.Registry]bool{}}
}

func (l *ledger) make(p clusters.Plan) clusters.Instance {
	r := memory.New(key(p.Cluster))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made[r] = p.Config.Host + "/" + p.TrustDomain
	return clusters.Instance{Registry: r, Serves: func() []string { return nil }}
}

func (l *ledger) keep(r model.Registry, first bool) model.Registry {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.first[r] = first
	return r
}

// Attach implements model.Lifecycle.
func (l *ledger) Attach(r model.Registry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text, ok := l.made[r]
	if !ok {
		text = "refused"
	}
	c := r.Key().Cluster
	first := !slices.ContainsFunc(l.attached[c], func(t string) bool { return t != "refused" })
	if l.first[r] != first && !l.again[r] {
		l.faults = append(l.faults, fmt.Sprintf("%s: first is %v", c, l.first[r]))
	}
	l.again[r] = true
	l.attached[c] = append(l.attached[c], text)
}

// Detach implements model.Lifecycle.
func (l *ledger) Detach(k model.ShardKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.attached[k.Cluster]) == 0 {
		l.faults = append(l.faults, fmt.Sprintf("%s: detached without being attached", k.Cluster))
	}
	delete(l.attached, k.Cluster)
}

// oracle says what must be attached: for each cluster the newest text. It looks at every claim for each cluster.
func oracle(sources map[string][]secrets.Claim, settings clusters.Settings) map[model.ClusterID]string {
	out := map[model.ClusterID]string{}
	for _, id := range ids {
		var best *secrets.Claim
		bestPrimary := false
		for _, name := range slices.Sorted(maps.Keys(sources)) {
			for _, c := range sources[name] {
				primary := name == clusters.Primary
				if c.Cluster != id || !secrets.ValidCluster(id) || id == "home" && !primary {
					continue
				}
				better := best == nil || primary && !bestPrimary ||
					primary == bestPrimary && (c.Created.Before(best.Created) || c.Created.Equal(best.Created) && c.Source < best.Source)
				if better {
					best, bestPrimary = &c, primary
				}
			}
		}
		switch {
		case best == nil:
		case best.Err != nil:
			out[model.ClusterID(id)] = "refused"
		default:
			out[model.ClusterID(id)] = best.Config.Host + "/" + settings.TrustDomain
		}
	}
	return out
}

// ids are the cluster ids that claims are made to.
var ids = []string{"c1", "c2", "c3", "home", "-bad", ""}

// randomClaims gives a set of claims of one source.
func randomClaims(r *rand.Rand, source string) (out []secrets.Claim) {
	for i := range r.IntN(5) {
		id := ids[r.IntN(len(ids))]
		from := fmt.Sprintf("%s-%d", source, i)
		if r.IntN(4) == 0 {
			out = append(out, bad(id, from, r.IntN(3), fmt.Sprint("why", r.IntN(2))))
		} else {
			out = append(out, claim(id, from, r.IntN(3), fmt.Sprint("k", r.IntN(4))))
		}
	}
	return out
}

// TestModel compares what is attached, after every step of random histories, with what an oracle says.
func TestModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		l := newLedger()
		m := clusters.NewManager(clusters.Options{Lifecycle: l, New: l.make, Keep: l.keep, Config: "home"})
		settings := clusters.Settings{}
		m.Configure(settings)
		sources := map[string][]secrets.Claim{}
		for step := range 40 {
			before := l.counts()
			was := oracle(sources, settings)
			if r.IntN(6) == 0 {
				settings.TrustDomain = fmt.Sprint("td", r.IntN(2))
				m.Configure(settings)
			} else {
				name := []string{clusters.Primary, "secrets", "folder"}[r.IntN(3)]
				sources[name] = randomClaims(r, name)
				m.Set(name, sources[name])
			}
			if why := check(l, m, sources, settings, before, was); why != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, why)
			}
		}
	}
}

// counts is how many registries were attached to each cluster.
func (l *ledger) counts() map[model.ClusterID]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[model.ClusterID]int{}
	for c, texts := range l.attached {
		out[c] = len(texts)
	}
	return out
}

func check(l *ledger, m *clusters.Manager, sources map[string][]secrets.Claim, s clusters.Settings, before map[model.ClusterID]int, was map[model.ClusterID]string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	want := oracle(sources, s)
	newest := map[model.ClusterID]string{}
	for c, texts := range l.attached {
		newest[c] = texts[len(texts)-1]
		switch more := len(texts) - before[c]; {
		case newest[c] == was[c] && newest[c] != "refused" && more != 0:
			return fmt.Errorf("%s was attached again although nothing has changed", c)
		case more > 1:
			return fmt.Errorf("%s was attached %d times", c, more)
		}
	}
	if !maps.Equal(newest, want) {
		return fmt.Errorf("attached %v, want %v", newest, want)
	}
	return errors.Join(checkMembers(m.Members(), sources, want), faults(l.faults))
}

func faults(texts []string) error {
	if len(texts) == 0 {
		return nil
	}
	return fmt.Errorf("%v", texts)
}

// checkMembers makes sure that every claim is listed, and one owner for each cluster.
func checkMembers(members []clusters.Member, sources map[string][]secrets.Claim, want map[model.ClusterID]string) error {
	n, owners := 0, map[model.ClusterID]int{}
	for _, claims := range sources {
		n += len(claims)
	}
	for i, mb := range members {
		if mb.Owner {
			owners[mb.Cluster]++
		}
		if !mb.Owner && mb.Reason == "" {
			return fmt.Errorf("%v has no reason", mb)
		}
		if i > 0 && (members[i-1].Cluster > mb.Cluster || mb.Owner && mb.Cluster != "home" && members[i-1].Cluster == mb.Cluster) {
			return fmt.Errorf("%v is not in its place", mb)
		}
	}
	if len(members) != n || len(owners) != len(want) {
		return fmt.Errorf("%d members and %d owners, want %d and %d", len(members), len(owners), n, len(want))
	}
	for c, n := range owners {
		if n != 1 {
			return fmt.Errorf("%s has %d owners", c, n)
		}
	}
	return nil
}

// TestConcurrentSources: sources that speak at once lose nothing, and attaching is never out of order.
func TestConcurrentSources(t *testing.T) {
	t.Parallel()
	l := newLedger()
	m := clusters.NewManager(clusters.Options{Lifecycle: l, New: l.make, Keep: l.keep})
	var wg sync.WaitGroup
	for s := range 4 {
		name := fmt.Sprint("s", s)
		wg.Go(func() {
			for i := range 200 {
				m.Set(name, []secrets.Claim{claim(name, name, 0, fmt.Sprint("k", i)), claim("shared", name, s, fmt.Sprint(name, i))})
				m.Members()
			}
		})
	}
	wg.Go(func() {
		for i := range 50 {
			m.Configure(clusters.Settings{TrustDomain: fmt.Sprint(i)})
		}
	})
	wg.Wait()
	want := map[model.ClusterID]string{"shared": "https://s0199/49"}
	for s := range 4 {
		want[model.ClusterID(fmt.Sprint("s", s))] = "https://k199/49"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for c, texts := range l.attached {
		if got := texts[len(texts)-1]; got != want[c] {
			t.Errorf("%s has %s in the end, want %s", c, got, want[c])
		}
	}
	if len(l.attached) != len(want) || len(l.faults) > 0 {
		t.Errorf("%d clusters, want %d; %v", len(l.attached), len(want), l.faults)
	}
}
