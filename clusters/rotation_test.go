package clusters_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters"
	"github.com/isthmus-mesh/isthmus/secrets"
)

// TestRotationAfterARightWasTaken: a replacement needs what the one in force can read now, not what it once could.
func TestRotationAfterARightWasTaken(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "k1")})
		w.want("c1/10.0.0.1")
		w.last().serves = []string{"ServiceEntry", "WorkloadEntry"}
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "dead")})
		w.pass(0)
		if got := w.last().plan.Needs; !slices.Equal(got, []string{"ServiceEntry", "WorkloadEntry"}) {
			t.Errorf("needs %v", got)
		}
		w.made[0].serves = []string{"ServiceEntry"}
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "k2")})
		w.pass(0)
		if got := w.last().plan.Needs; !slices.Equal(got, []string{"ServiceEntry"}) {
			t.Errorf("after a right was taken it needs %v", got)
		}
	})
}

// TestTrying: until a new credential has proved to work its claim says so.
func TestTrying(t *testing.T) {
	inWorld(t, func(w *world) {
		trying := func(want bool) {
			t.Helper()
			w.pass(0)
			if got := w.Members()[0]; got.Trying != want {
				t.Errorf("%s is tried: %v", got.Hash, got.Trying)
			}
		}
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "k1")})
		trying(false)
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "dead")})
		trying(true)
		w.last().sync("10.0.0.1")
		trying(false)
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "dead2")})
		trying(true)
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "dead")})
		trying(false)
	})
}

// TestRotationBack: going back to the credential in force ends the replacement that fails.
func TestRotationBack(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "k1")})
		w.want("c1/10.0.0.1")
		mark := len(w.every)
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "dead")})
		w.pass(time.Minute)
		dead := w.last()
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "k1")})
		w.state("c1", model.StateLive, "")
		if dead.Running() > 0 {
			t.Error("the replacement that failed runs on")
		}
		w.neverFewer(mark, 1)
		if n := len(w.made); n != 2 {
			t.Errorf("%d registries were made, of one credential that works and one that does not", n)
		}
	})
}

// TestSettingsBack: settings that come and go before a registry has synced with them cost no registry more.
func TestSettingsBack(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "dead")})
		w.last().sync("10.0.0.1")
		w.want("c1/10.0.0.1")
		w.Configure(clusters.Settings{TrustDomain: "other"})
		w.pass(time.Second)
		w.Configure(clusters.Settings{TrustDomain: "td"})
		w.state("c1", model.StateLive, "")
		w.Set("s", []secrets.Claim{bad("c1", "a", 0, "exec is refused")})
		w.state("c1", model.StateDegraded, "exec is refused")
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "dead")})
		w.state("c1", model.StateLive, "")
		if len(w.made) != 2 || w.made[0].Running() != 1 || w.made[1].Running() != 0 {
			t.Errorf("%d registries were made", len(w.made))
		}
		w.made[0].sync("10.0.0.1", "10.0.0.2")
		w.want("c1/10.0.0.1", "c1/10.0.0.2")
	})
}

// TestDefect17RotationsInARow: several replacements that fail leave the healthy one in force, and the one that
// works ends them all.
func TestDefect17RotationsInARow(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "k1")})
		w.want("c1/10.0.0.1")
		mark, healthy := len(w.every), w.last()
		for i := range 3 {
			w.Set("s", []secrets.Claim{claim("c1", "a", 0, fmt.Sprint("dead", i))})
			w.pass(time.Minute)
		}
		if healthy.Running() != 1 || w.running() != 2 {
			t.Errorf("the healthy registry runs %d times, of %d", healthy.Running(), w.running())
		}
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "k2")})
		w.want("c1/10.0.0.1")
		if healthy.Running() != 0 || w.running() != 1 {
			t.Errorf("the old registry runs %d times, of %d", healthy.Running(), w.running())
		}
		w.neverFewer(mark, 1)
	})
}

// TestInForce: what else uses credentials is told of those that clusters are read with, and of none that is tried.
func TestInForce(t *testing.T) {
	inWorld(t, func(w *world) {
		want := func(hosts ...string) {
			t.Helper()
			w.pass(0)
			var got []string
			for cluster, cfg := range w.InForce() {
				got = append(got, string(cluster)+" "+cfg.Host)
			}
			if slices.Sort(got); !slices.Equal(got, hosts) {
				t.Errorf("in force are %v, want %v", got, hosts)
			}
		}
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "dead"), bad("c2", "a", 0, "no good")})
		want()
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "k1")})
		want("c1 https://k1")
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "dead-2")})
		want("c1 https://k1")
		w.Set("s", []secrets.Claim{bad("c1", "a", 0, "no good")})
		want("c1 https://k1")
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "dead-3")})
		want("c1 https://k1")
		w.last().sync("10.0.0.1")
		want("c1 https://dead-3")
		w.Set("s", nil)
		want()
	})
}
