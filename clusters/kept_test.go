package clusters_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters"
	"github.com/isthmus-mesh/isthmus/clusters/lastgood"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/secrets"
)

// inKeptWorld runs hubs one after the other in one folder.
func inKeptWorld(t *testing.T, hubs ...func(*world)) {
	t.Helper()
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		for _, f := range hubs {
			w := &world{t: t, done: make(chan error, 1)}
			w.hub = pushcontext.NewHub(func(pc *pushcontext.PushContext, _ *pushcontext.Delta) { w.every = append(w.every, len(endpoints(pc))) })
			w.ctl = aggregate.New(aggregate.Options{Hub: w.hub})
			store, err := lastgood.Open(lastgood.Options{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			keep := func(r model.Registry, first bool) model.Registry {
				return store.Wrap(r, lastgood.Terms{Restore: first})
			}
			w.Manager = clusters.NewManager(clusters.Options{
				Lifecycle: w.ctl, New: w.make, Sources: []string{"s"}, Keep: keep, Forget: store.Forget, Known: store.Clusters(),
			})
			ctx, cancel := context.WithCancel(t.Context())
			go func() { w.done <- w.ctl.Run(ctx) }()
			w.Configure(clusters.Settings{})
			f(w)
			cancel()
			if err := <-w.done; err != nil {
				t.Error(err)
			}
		}
	})
}

func lived(w *world) {
	w.Set("s", []secrets.Claim{claim("c1", "a", 0, "k1"), claim("c2", "b", 0, "k2")})
	w.want("c1/10.0.0.1", "c2/10.0.0.1")
	w.pass(time.Minute)
}

// TestRestartWhileRemoteIsDown: the hub opens with what it knew of the cluster that is down, as stale, and not with
// less; the cluster joins when it can be read.
func TestRestartWhileRemoteIsDown(t *testing.T) {
	inKeptWorld(t, lived, func(w *world) {
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "k1"), claim("c2", "b", 0, "dead")})
		w.pass(time.Minute)
		w.want("c1/10.0.0.1", "c2/10.0.0.1")
		w.state("c2", model.StateStale, "served as it was kept")
		w.neverFewer(0, 2)
		w.last().sync("10.0.0.7")
		w.want("c1/10.0.0.1", "c2/10.0.0.7")
		w.state("c2", model.StateLive, "")
	})
}

// TestRestartWithRefusedCredential: a hub that was degraded before it was restarted serves on.
func TestRestartWithRefusedCredential(t *testing.T) {
	inKeptWorld(t, lived, func(w *world) {
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "k1"), bad("c2", "b", 0, "exec is refused")})
		w.want("c1/10.0.0.1", "c2/10.0.0.1")
		w.state("c2", model.StateStale, "exec is refused")
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "k1"), claim("c2", "b", 0, "k3")})
		w.want("c1/10.0.0.1", "c2/10.0.0.1")
		w.state("c2", model.StateLive, "")
	})
}

// TestRestartWithoutClaims: while nobody can say which clusters there are, those that there were are served, and
// those that are gone go as soon as that is known, for good.
func TestRestartWithoutClaims(t *testing.T) {
	inKeptWorld(t, lived, func(w *world) {
		w.pass(time.Minute)
		w.want("c1/10.0.0.1", "c2/10.0.0.1")
		w.state("c1", model.StateStale, "its credential has not been read yet")
		w.Set("s", []secrets.Claim{claim("c2", "b", 0, "k2")})
		w.want("c2/10.0.0.1")
		w.state("c1", "", "")
		w.state("c2", model.StateLive, "")
	}, func(w *world) {
		w.pass(time.Minute)
		w.want("c2/10.0.0.1")
	})
}

// TestRestartInGoodOrder: what was kept is not served when the clusters answer.
func TestRestartInGoodOrder(t *testing.T) {
	inKeptWorld(t, lived, func(w *world) {
		synctest.Wait()
		if w.ctl.Ready() {
			t.Error("the gate is open before the claims are known")
		}
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "k1"), claim("c2", "b", 0, "k2")})
		synctest.Wait()
		w.made[0].sync("10.0.0.8")
		w.want("c1/10.0.0.8", "c2/10.0.0.1")
		w.state("c1", model.StateLive, "")
		w.neverFewer(0, 2)
	})
}

// TestReplacementIsNotRestored: a rotation to a credential that does not work is not covered up by what was kept.
func TestReplacementIsNotRestored(t *testing.T) {
	inKeptWorld(t, func(w *world) {
		lived(w)
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "dead"), claim("c2", "b", 0, "k2")})
		w.pass(time.Hour)
		w.state("c1", model.StateDegraded, "not synced in time")
		w.made[0].sync("10.0.0.9")
		w.want("c1/10.0.0.9", "c2/10.0.0.1")
	})
}
