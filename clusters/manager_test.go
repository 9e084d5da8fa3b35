package clusters_test

import (
	"fmt"
	"testing"
	"time"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters"
	"github.com/isthmus-mesh/isthmus/secrets"
)

// TestIncident1RotationKeepsEndpoints: the end of the old registry takes nothing from the new one, not even if it
// writes to the last.
func TestIncident1RotationKeepsEndpoints(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "k1")})
		w.want("c1/10.0.0.1")
		mark, old := len(w.every), w.last()
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "k2")})
		w.want("c1/10.0.0.1")
		old.Late(model.Event{Row: model.RowKey{Kind: model.RowEndpoints, Key: "endpoints"}})
		w.want("c1/10.0.0.1")
		w.neverFewer(mark, 1)
	})
}

// TestIncident2OldCredentialStops: after the swap nothing runs with the old credential, and what changes later is
// seen with the new one; also if the Secret was deleted and made again.
func TestIncident2OldCredentialStops(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "k1")})
		w.want("c1/10.0.0.1")
		for i, recreate := range []bool{false, true} {
			old := w.last()
			if recreate {
				w.Set("s", nil)
			}
			w.Set("s", []secrets.Claim{claim("c1", "a", i, fmt.Sprint("next", i))})
			w.want("c1/10.0.0.1")
			if old.Running() > 0 {
				t.Error("the old registry runs on")
			}
			if old.sync("10.0.0.66"); w.last().Running() != 1 {
				t.Error("the new registry does not run")
			}
			w.last().sync("10.0.0.2")
			w.want("c1/10.0.0.2")
			w.last().sync("10.0.0.1")
		}
	})
}

// TestIncident4SlowReplacement: however long a replacement takes to list, the old one serves.
func TestIncident4SlowReplacement(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "k1")})
		w.want("c1/10.0.0.1")
		mark := len(w.every)
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "dead slow")})
		w.pass(time.Hour)
		w.want("c1/10.0.0.1")
		w.last().sync("10.0.0.2")
		w.want("c1/10.0.0.2")
		w.state("c1", model.StateLive, "")
		w.neverFewer(mark, 1)
	})
}

// TestIncident6Removal: a cluster that is not claimed any more takes with it what it brought, and nothing else.
func TestIncident6Removal(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "k1"), claim("c2", "b", 0, "k2")})
		w.want("c1/10.0.0.1", "c2/10.0.0.1")
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "k1")})
		w.want("c1/10.0.0.1")
		w.Set("s", nil)
		w.want()
		if w.hub.Current().Service(model.ServiceKey{Namespace: "ns", Host: "shop"}) != nil {
			t.Error("the service is still there")
		}
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "k1")})
		w.want("c1/10.0.0.1")
	})
}

// TestIncident20UnusableReplacement: a credential that can't be used leaves the cluster as it is, says why, and a
// usable one takes over again.
func TestIncident20UnusableReplacement(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "k1")})
		w.want("c1/10.0.0.1")
		mark := len(w.every)
		w.Set("s", []secrets.Claim{bad("c1", "a", 0, "exec is refused")})
		w.want("c1/10.0.0.1")
		w.state("c1", model.StateDegraded, "exec is refused")
		w.members("+c1 a: exec is refused")
		w.Set("s", []secrets.Claim{bad("c1", "a", 0, "tokenFile is refused")})
		w.state("c1", model.StateDegraded, "tokenFile is refused")
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "k2")})
		w.want("c1/10.0.0.1")
		w.state("c1", model.StateLive, "")
		w.neverFewer(mark, 1)
	})
}

// TestNewButRefused: a cluster that never had a usable credential is listed with the reason.
func TestNewButRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Set("s", []secrets.Claim{bad("c1", "a", 0, "exec is refused"), {Cluster: "", Source: "f", Err: errTest}, {Cluster: "-x", Source: "g"}})
		w.pass(time.Minute)
		w.state("c1", model.StateTimeout, "exec is refused")
		w.members(" f: no id in it", "-x g: not a cluster id", "+c1 a: exec is refused")
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "k1")})
		w.want("c1/10.0.0.1")
	})
}

// TestIncident32UnreachableForLong: credentials that lead nowhere, one after the other, leave nothing behind.
func TestIncident32UnreachableForLong(t *testing.T) {
	inWorld(t, func(w *world) {
		for i := range 50 {
			w.Set("s", []secrets.Claim{claim("c1", "a", 0, fmt.Sprint("dead", i))})
			w.pass(time.Minute)
			if n := w.running(); n > 2 {
				t.Fatalf("%d registries run after %d rotations", n, i)
			}
		}
		w.Set("s", nil)
		w.pass(0)
		if n := w.running(); n > 0 {
			t.Errorf("%d registries run on", n)
		}
	})
}

// TestDefect3LoserTakesOver: of two claims to a cluster the older counts, the other is listed, and takes over
// without a gap.
func TestDefect3LoserTakesOver(t *testing.T) {
	inWorld(t, func(w *world) {
		older, younger := claim("c1", "b", 0, "k1"), claim("c1", "a", 1, "k2")
		w.Set("s", []secrets.Claim{younger})
		w.Set("t", []secrets.Claim{older})
		w.want("c1/10.0.0.1")
		w.members("+c1 b", "c1 a: the cluster is claimed by b, which comes first")
		if got := w.last().plan.Config.Host; got != "https://k1" {
			t.Errorf("in force is %s", got)
		}
		mark := len(w.every)
		w.Set("t", nil)
		w.want("c1/10.0.0.1")
		w.members("+c1 a")
		if got := w.last().plan.Config.Host; got != "https://k2" {
			t.Errorf("in force is %s", got)
		}
		w.neverFewer(mark, 1)
		if n := len(w.made); n != 3 {
			t.Errorf("%d registries were made", n)
		}
	})
}

// TestDefect5BadRotationShows: the cluster is degraded, not gone, and not simply fine.
func TestDefect5BadRotationShows(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "k1")})
		w.want("c1/10.0.0.1")
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "dead")})
		w.pass(0)
		w.last().Status(model.Status{State: model.StateStale, Err: "unauthorized"})
		w.state("c1", model.StateDegraded, "unauthorized")
		w.want("c1/10.0.0.1")
	})
}

// TestDefect14RemovalDuringRotation: removal ends all that runs for a cluster, whatever is pending.
func TestDefect14RemovalDuringRotation(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "k1")})
		w.want("c1/10.0.0.1")
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "dead")})
		w.pass(time.Minute)
		w.Set("s", nil)
		w.want()
		w.state("c1", "", "")
		if n := w.running(); n > 0 {
			t.Errorf("%d registries run on", n)
		}
		w.last().sync("10.0.0.9")
		w.want()
	})
}

// TestManyRotations: a hundred rotations, and no snapshot ever has fewer endpoints.
func TestManyRotations(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Set("s", []secrets.Claim{claim("c1", "a", 0, "k"), claim("c2", "b", 0, "k")})
		w.want("c1/10.0.0.1", "c2/10.0.0.1")
		mark := len(w.every)
		for i := range 100 {
			w.Set("s", []secrets.Claim{claim("c1", "a", 0, fmt.Sprint("k", i)), claim("c2", "b", 0, "k")})
			if i%3 == 0 {
				w.pass(0)
			}
		}
		w.want("c1/10.0.0.1", "c2/10.0.0.1")
		w.neverFewer(mark, 2)
		if n := w.running(); n != 2 {
			t.Errorf("%d registries run", n)
		}
	})
}

// TestConfigCluster: its id can be claimed by the hub's own credential only.
func TestConfigCluster(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Set("s", []secrets.Claim{claim("home", "thief", 0, "k1")})
		w.want()
		const reason = ": this is the id of the config cluster, which is read with the hub's own credential"
		w.members("home thief" + reason)
		w.Set(clusters.Primary, []secrets.Claim{claim("home", "own", 9, "k2")})
		w.want("home/10.0.0.1")
		w.members("+home own", "home thief"+reason)
		if got := w.last().plan.Config.Host; got != "https://k2" {
			t.Errorf("in force is %s", got)
		}
	})
}

// TestSettings: nothing is read before they are there, all is read anew when they change, and nothing when they don't.
func TestSettings(t *testing.T) {
	inWorld(t, func(w *world) {
		selectors := func(v string) []*meshconfig.LabelSelector {
			return []*meshconfig.LabelSelector{{MatchLabels: map[string]string{"mesh": v}}}
		}
		m := clusters.NewManager(clusters.Options{Lifecycle: w.ctl, New: w.make})
		m.Set("s", []secrets.Claim{claim("c1", "a", 0, "k1"), claim("c2", "a", 0, "k2"), bad("c3", "a", 0, "no")})
		w.want()
		for i, step := range []struct {
			settings clusters.Settings
			made     int
		}{
			{clusters.Settings{}, 2},
			{clusters.Settings{}, 2},
			{clusters.Settings{TrustDomain: "a"}, 4},
			{clusters.Settings{TrustDomain: "a", DiscoverySelectors: selectors("x")}, 6},
			{clusters.Settings{TrustDomain: "a", DiscoverySelectors: selectors("x")}, 6},
			{clusters.Settings{TrustDomain: "a", DiscoverySelectors: selectors("y")}, 8},
		} {
			m.Configure(step.settings)
			w.want("c1/10.0.0.1", "c2/10.0.0.1")
			if len(w.made) != step.made || !w.last().plan.Settings.Equal(step.settings) {
				t.Errorf("step %d: %d registries were made, the last with %v", i, len(w.made), w.last().plan.Settings)
			}
		}
		if n := w.running(); n != 2 {
			t.Errorf("%d registries run", n)
		}
	})
}

// TestNeeds: a replacement is told what the registry in force can read, and not what one that never synced can.
func TestNeeds(t *testing.T) {
	inWorld(t, func(w *world) {
		needs := func(credential string, want ...string) *server {
			t.Helper()
			w.Set("s", []secrets.Claim{claim("c1", "a", 0, credential)})
			w.pass(0)
			if got := w.last().plan.Needs; fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s needs %v, want %v", credential, got, want)
			}
			return w.last()
		}
		first := needs("k1")
		first.serves = []string{"gateways"}
		needs("dead1", "gateways")
		first.serves = []string{"gateways", "exports"} // meanwhile
		second := needs("dead2", "gateways", "exports")
		second.sync("10.0.0.1")
		w.pass(0)
		second.serves = []string{"gateways"} // one was uninstalled
		needs("k3", "gateways")
		w.Set("s", nil)
		needs("k4")
	})
}

// TestKept: what was kept is served by the first registry of a cluster only, and forgotten with the cluster.
func TestKept(t *testing.T) {
	inWorld(t, func(w *world) {
		var log []string
		m := clusters.NewManager(clusters.Options{
			Lifecycle: w.ctl, New: w.make, Known: []model.ClusterID{"c1", "c9"}, Sources: []string{"s", "t"},
			Keep: func(r model.Registry, first bool) model.Registry {
				log = append(log, fmt.Sprintf("%s first=%v", r.Key().Cluster, first))
				return r
			},
			Forget: func(k model.ShardKey) { log = append(log, "forget "+string(k.Cluster)) },
		})
		step := func(want ...string) {
			t.Helper()
			w.pass(0)
			if fmt.Sprint(log) != fmt.Sprint(want) {
				t.Errorf("got %v, want %v", log, want)
			}
			log = nil
		}
		step("c1 first=true", "c9 first=true")
		w.state("c1", model.StateSyncing, "not been read yet")
		m.Configure(clusters.Settings{})
		step()
		m.Set("s", []secrets.Claim{claim("c1", "a", 0, "k1"), claim("c2", "a", 0, "k2")})
		step("c1 first=true", "c2 first=true")
		m.Set("s", nil)
		step("forget c2", "c1 first=false") // c1 may be of the other source
		m.Set("t", nil)
		step("forget c1", "forget c9")
		m.Set("s", []secrets.Claim{claim("c1", "a", 0, "k1")})
		step("c1 first=true")
		m.Set("s", nil)
	})
}

// TestWarning: what is unwise about a credential shows.
func TestWarning(t *testing.T) {
	inWorld(t, func(w *world) {
		insecure, plain := claim("c1", "a", 0, "k1"), claim("c2", "a", 0, "k1")
		insecure.Config.Insecure, plain.Config.Host = true, "http://h"
		insecure.Expires = born
		w.Set("s", []secrets.Claim{insecure, plain, claim("c3", "a", 0, "k1")})
		got := w.Members()
		if got[0].Warning == "" || got[1].Warning == "" || got[2].Warning != "" || !got[0].Expires.Equal(born) {
			t.Errorf("got %+v", got)
		}
		w.pass(0)
	})
}

var errTest = fmt.Errorf("no id in it")
