package clusters_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters"
	"github.com/isthmus-mesh/isthmus/clusters/memory"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/secrets"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// born is the time of the oldest claim.
var born = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// claim is a claim with a usable credential; credentials of one text are the same.
func claim(cluster, source string, minute int, credential string) secrets.Claim {
	return secrets.Claim{
		Cluster: cluster, Source: source, Created: born.Add(time.Duration(minute) * time.Minute), Hash: credential,
		Config: &rest.Config{Host: "https://" + credential},
	}
}

// bad is a claim whose credential is refused.
func bad(cluster, source string, minute int, why string) secrets.Claim {
	c := claim(cluster, source, minute, "bad "+why)
	c.Config, c.Err = nil, errors.New(why)
	return c
}

func key(c model.ClusterID) model.ShardKey {
	return model.ShardKey{Provider: model.ProviderKubernetes, Cluster: c}
}

// world is a Manager with a real controller. API servers are registries in memory, one for each time that a
// registry was made; a credential that starts with "dead" leads to one that never answers.
type world struct {
	*clusters.Manager
	t     *testing.T
	hub   *pushcontext.Hub
	ctl   *aggregate.Controller
	stop  context.CancelFunc
	done  chan error
	made  []*server
	every []int // endpoints of the service "shop" in each snapshot
}

// server is a registry that was made with a credential.
type server struct {
	*memory.Registry
	plan   clusters.Plan
	serves []string
	uid    string
}

// inWorld runs f with fake time and settings in place.
func inWorld(t *testing.T, f func(*world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, done: make(chan error, 1)}
		w.hub = pushcontext.NewHub(func(pc *pushcontext.PushContext, _ *pushcontext.Delta) { w.every = append(w.every, len(endpoints(pc))) })
		w.ctl = aggregate.New(aggregate.Options{Hub: w.hub})
		w.Manager = clusters.NewManager(clusters.Options{Lifecycle: w.ctl, New: w.make, Config: "home"})
		ctx, cancel := context.WithCancel(t.Context())
		w.stop = cancel
		go func() { w.done <- w.ctl.Run(ctx) }()
		w.Configure(clusters.Settings{TrustDomain: "td"})
		f(w)
		cancel()
		if err := <-w.done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if n := w.running(); n > 0 {
			t.Errorf("%d registries run on", n)
		}
	})
}

func (w *world) make(p clusters.Plan) clusters.Instance {
	s := &server{Registry: memory.New(key(p.Cluster)), plan: p}
	w.made = append(w.made, s)
	if !strings.HasPrefix(p.Config.Host, "https://dead") {
		s.sync("10.0.0.1")
	}
	return clusters.Instance{Registry: s, Serves: func() []string { return s.serves }, UID: func() string { return s.uid }}
}

// last is the registry that was made last.
func (w *world) last() *server { return w.made[len(w.made)-1] }

// running is how many registries run.
func (w *world) running() (n int) {
	for _, s := range w.made {
		n += s.Running()
	}
	return n
}

// sync makes the server answer with the service "shop" at the addresses.
func (s *server) sync(ips ...string) {
	b := model.NewShardBuilder()
	for _, o := range shop(s.Key(), ips...) {
		b.Add(o.RowKind().String(), o)
	}
	s.Replace(b.Build())
	s.serves = append([]string{}, s.plan.Needs...)
}

func shop(k model.ShardKey, ips ...string) []model.Object {
	source := model.Source{Shard: k, Object: model.ObjectKey{Kind: "Service", Namespace: "ns", Name: "shop"}}
	svc := &model.Service{Host: "shop", Namespace: "ns", Name: "shop", Ports: []model.Port{{Name: "http", Number: 80, Protocol: model.ProtocolHTTP}}, Source: source}
	eps := &model.Endpoints{Host: "shop", Namespace: "ns", Source: source}
	for _, ip := range ips {
		eps.Endpoints = append(eps.Endpoints, model.Endpoint{
			Addr: model.Addr{Cluster: k.Cluster, AddrPort: netip.AddrPortFrom(netip.MustParseAddr(ip), 80)}, PortName: "http", Health: model.Healthy, Source: &eps.Source,
		})
	}
	return []model.Object{svc, eps}
}

// pass lets time pass, an imagined second at least, until everything is published.
func (w *world) pass(d time.Duration) {
	time.Sleep(max(d, 3*time.Second))
	synctest.Wait()
}

// want compares what is served of "shop", as "cluster/ip".
func (w *world) want(want ...string) {
	w.t.Helper()
	w.pass(0)
	if got := endpoints(w.hub.Current()); !slices.Equal(got, want) {
		w.t.Errorf("serves %v, want %v", got, want)
	}
}

func endpoints(pc *pushcontext.PushContext) (out []string) {
	if pc == nil {
		return nil
	}
	v := pc.Service(model.ServiceKey{Namespace: "ns", Host: "shop"})
	if v == nil {
		return nil
	}
	for _, l := range v.Port("http") {
		for _, e := range l.Endpoints {
			out = append(out, fmt.Sprintf("%s/%s", e.Addr.Cluster, e.Addr.AddrPort.Addr()))
		}
	}
	slices.Sort(out)
	return out
}

// neverFewer fails if a snapshot since the mark had fewer endpoints.
func (w *world) neverFewer(mark, n int) {
	w.t.Helper()
	for i, got := range w.every[mark:] {
		if got < n {
			w.t.Errorf("snapshot %d after the change has %d endpoints of %d", i, got, n)
		}
	}
}

// state compares what is shown of a cluster.
func (w *world) state(c model.ClusterID, want model.State, why string) {
	w.t.Helper()
	w.pass(0)
	for _, i := range w.ctl.Shards() {
		if i.Key != key(c) {
			continue
		}
		if i.Status.State != want || !strings.Contains(i.Status.Err, why) || why == "" && i.Status.Err != "" {
			w.t.Errorf("cluster %s is %s (%q), want %s (%q)", c, i.Status.State, i.Status.Err, want, why)
		}
		return
	}
	if want != "" {
		w.t.Errorf("cluster %s is not attached, want %s", c, want)
	}
}

// members compares the claims, as "cluster source" with "+" before owners and the reason after.
func (w *world) members(want ...string) {
	w.t.Helper()
	if got := describe(w.Members()); !slices.Equal(got, want) {
		w.t.Errorf("members\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func describe(members []clusters.Member) (out []string) {
	for _, m := range members {
		s := string(m.Cluster) + " " + m.Source
		if m.Owner {
			s = "+" + s
		}
		if m.Reason != "" {
			s += ": " + m.Reason
		}
		out = append(out, s)
	}
	return out
}
