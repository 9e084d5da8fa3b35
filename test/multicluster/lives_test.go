package multicluster_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/test/env"
)

// A hundred rotations, amid changes: no set of endpoints ever shrinks, and nothing piles up.
func TestHundredRotations(t *testing.T) {
	m, p, _ := started(t)
	p.forget()
	c1 := m.c("c1")
	rotate := func(i int) {
		t.Helper()
		synced := m.entryWhere("c1", "live", func(c debug.Cluster) bool { return c.State == "live" && c.Replacement == "" }).SyncedAt
		m.rotate(c1.Token(t, reader, int64(100+i)))
		if i%10 == 0 {
			c1.link.DropConnections()
		}
		extra := fmt.Sprintf("10.1.1.%d", i)
		m.apply("c1", env.Slice("shop/foo", 8080, "10.1.0.1", extra))
		m.entryWhere("c1", "swapped", func(c debug.Cluster) bool {
			return c.SyncedAt.After(synced) && c.State == "live" && c.Replacement == ""
		})
		p.has("foo.shop", "10.0.0.1", "10.1.0.1", extra)
	}
	for i := range 10 {
		rotate(i)
	}
	before := m.quiet()
	for i := 10; i < 100; i++ {
		rotate(i)
	}
	p.always("foo.shop", "10.0.0.1", "10.1.0.1")
	m.eventually("goroutines and heap as before", func() error {
		if now := m.quiet(); now.goroutines > before.goroutines+5 || now.heap > 1.5*before.heap+8<<20 {
			return fmt.Errorf("%+v, after ten rotations %+v", now, before)
		}
		return nil
	})
}

// load is what a hub process takes.
type load struct{ goroutines, heap float64 }

func (m *mesh) quiet() (l load) {
	m.Helper()
	for name, to := range map[string]*float64{"go_goroutines": &l.goroutines, "go_memstats_heap_inuse_bytes": &l.heap} {
		v, err := m.hub.Metric(m.Context(), name)
		if err != nil {
			m.Fatal(err)
		}
		*to = v
	}
	return l
}

// Twenty clusters that join, die, return and leave in random order, with credentials good and bad, while
// what they hold changes: after each step the hub holds, for each of them, what its API server holds, or
// held when contact was lost. Several of them share an API server, so they have equal names and
// addresses in everything but their ids.
func TestTwentyClustersInRandomOrder(t *testing.T) {
	const steps = 60
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := newLives(t, rand.New(rand.NewPCG(seed, 0)), 4, 20)
	w.m.serve("--sync-timeout=1s")
	p := w.m.proxy("client.life")
	for i := range steps {
		w.step()
		w.compare(i)
	}
	for _, l := range w.all {
		w.restore(l)
	}
	w.compare(steps)
	for i := range lifeServices {
		p.has(fmt.Sprintf("svc-%d.life", i), w.union(i)...)
	}
}

const lifeServices = 4

// lives is a mesh with what its clusters should be known to hold.
type lives struct {
	m     *mesh
	rand  *rand.Rand
	apis  []*env.Cluster
	all   []*life
	steps []string
}

// life is one cluster.
type life struct {
	id     string
	api    *env.Cluster
	link   *env.Link
	serial int64

	joined, cut bool
	bad         bool            // its newest credential is refused
	known       map[string]bool // what the hub should hold of it: "host address"; nil if nothing was read
}

func newLives(t *testing.T, r *rand.Rand, apis, n int) *lives {
	t.Helper()
	w := &lives{m: newMesh(t, apis), rand: r}
	w.m.apply(primary, w.services())
	for i := range apis {
		c := w.m.c(fmt.Sprint("c", i+1)).Cluster
		c.Apply(t, w.services())
		w.apis = append(w.apis, c)
	}
	for i := range n {
		api := w.apis[i%apis]
		w.all = append(w.all, &life{id: fmt.Sprint("life-", i), api: api, link: api.Link(t)})
	}
	return w
}

func (w *lives) services() (out []any) {
	for i := range lifeServices {
		out = append(out, env.Service(fmt.Sprint("life/svc-", i), 80))
	}
	return out
}

// step does one random thing.
func (w *lives) step() {
	w.m.Helper()
	l := w.all[w.rand.IntN(len(w.all))]
	kinds := []struct {
		name string
		can  bool
		do   func(*life)
	}{
		{"change", true, func(l *life) { w.change(l.api) }},
		{"join", !l.joined, w.join},
		{"join", !l.joined, w.join}, // twice as likely
		{"leave", l.joined, w.leave},
		{"cut", !l.cut, w.cut},
		{"restore", l.cut, w.restore},
		{"restore", l.cut, w.restore},
		{"rotate", l.joined, w.rotate},
		// Which of two that never worked is in force is not said.
		{"rotate badly", l.joined && !l.cut && l.known != nil, w.rotateBadly},
	}
	for {
		if k := kinds[w.rand.IntN(len(kinds))]; k.can {
			w.steps = append(w.steps, k.name+" "+l.id)
			k.do(l)
			return
		}
	}
}

func (w *lives) change(api *env.Cluster) {
	w.m.Helper()
	id := fmt.Sprint("life/svc-", w.rand.IntN(lifeServices))
	var ips []string
	for range w.rand.IntN(4) {
		ips = append(ips, fmt.Sprintf("10.50.%d.%d", w.rand.IntN(4), w.rand.IntN(250)))
	}
	slices.Sort(ips)
	if ips = slices.Compact(ips); len(ips) == 0 {
		api.Delete(w.m, env.Slice(id, 8080))
		return
	}
	api.Apply(w.m, env.Slice(id, 8080, ips...))
}

func (w *lives) join(l *life) {
	w.m.Helper()
	l.joined = true
	w.rotate(l)
}

func (w *lives) rotate(l *life) {
	w.m.Helper()
	l.serial++
	l.bad = false
	w.m.secret("remote-"+l.id, l.id, l.link.Kubeconfig(l.api.Token(w.m, reader, 3600+l.serial)))
}

func (w *lives) rotateBadly(l *life) {
	w.m.Helper()
	l.serial++
	l.bad = true
	w.m.secret("remote-"+l.id, l.id, l.link.Kubeconfig(fmt.Sprint("bad-", l.serial)))
}

func (w *lives) leave(l *life) {
	w.m.Helper()
	l.joined, l.bad, l.known = false, false, nil
	w.m.remove(primary, kubeconfigs("remote-"+l.id))
}

func (w *lives) cut(l *life) {
	l.cut = true
	l.link.Cut()
}

func (w *lives) restore(l *life) {
	l.cut = false
	l.link.Restore()
}

// content is what an API server holds.
func (w *lives) content(api *env.Cluster) map[string]bool {
	w.m.Helper()
	list, err := api.Client.DiscoveryV1().EndpointSlices("life").List(w.m.Context(), metav1.ListOptions{})
	if err != nil {
		w.m.Fatal(err)
	}
	out := map[string]bool{}
	for _, s := range list.Items {
		for _, e := range s.Endpoints {
			out[strings.TrimSuffix(s.Name, "-1")+" "+e.Addresses[0]] = true
		}
	}
	return out
}

// compare waits until the hub holds what it should.
func (w *lives) compare(step int) {
	w.m.Helper()
	want := map[string]map[string]bool{}
	for _, l := range w.all {
		if l.joined && !l.cut && (!l.bad || l.known != nil) {
			l.known = w.content(l.api)
		}
		if len(l.known) > 0 {
			want["kubernetes/"+l.id] = l.known
		}
	}
	w.m.eventually(fmt.Sprintf("step %d, after %q", step, w.steps), func() error {
		got, err := w.held()
		if err != nil {
			return err
		}
		for shard := range want {
			if !maps.Equal(got[shard], want[shard]) {
				return fmt.Errorf("%s holds %v, want %v", shard, keys(got[shard]), keys(want[shard]))
			}
		}
		if len(got) != len(want) {
			return fmt.Errorf("the hub holds %v, want %v", keys(got), keys(want))
		}
		return nil
	})
}

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// held is what the hub holds, by shard.
func (w *lives) held() (map[string]map[string]bool, error) {
	var all map[string]map[string]debug.Shards
	if err := w.m.ask("/debug/endpointz", &all); err != nil {
		return nil, err
	}
	out := map[string]map[string]bool{}
	for host, spaces := range all {
		name, _, _ := strings.Cut(host, ".")
		for shard, list := range spaces["life"].Shards {
			if out[shard] == nil {
				out[shard] = map[string]bool{}
			}
			for _, e := range list {
				out[shard][name+" "+e.Address] = true
			}
		}
	}
	return out, nil
}

// union lists the addresses of a service in all clusters that are joined.
func (w *lives) union(service int) (ips []string) {
	for _, l := range w.all {
		for k := range l.known {
			if ip, ok := strings.CutPrefix(k, fmt.Sprintf("svc-%d ", service)); ok {
				ips = append(ips, ip)
			}
		}
	}
	slices.Sort(ips)
	return slices.Compact(ips)
}
