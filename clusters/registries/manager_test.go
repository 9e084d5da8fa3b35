package registries_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/memory"
	"github.com/isthmus-mesh/isthmus/clusters/registries"
	"github.com/isthmus-mesh/isthmus/secrets"
)

// Registries come and go with their declarations.
func TestDeclaredIsAttached(t *testing.T) {
	inWorld(t, func(w *world) {
		w.declare(registry(t, "a", "a:1", ""), registry(t, "b", "b:1", ""))
		w.want("a.consul", "b.consul")
		w.declare(registry(t, "b", "b:1", ""))
		w.want("b.consul")
		if s := w.state(key("a")); s != "" || !slices.Equal(w.forgot, []model.ShardKey{key("a")}) {
			t.Errorf("a is %q, forgot %v", s, w.forgot)
		}
		c := registry(t, "c", "c:1", "")
		w.config.Put(c.Source.Object.String(), c)
		w.want("b.consul", "c.consul")
		w.config.Delete(model.RowKey{Kind: model.RowConfig, Key: c.Source.Object.String()})
		w.want("b.consul")
		if len(w.made) != 3 {
			t.Errorf("%d registries were made: those that did not change are to be left alone", len(w.made))
		}
	})
}

// An object that is replaced by deleting and creating it is changed, not gone.
func TestReplacedObject(t *testing.T) {
	inWorld(t, func(w *world) {
		a := registry(t, "a", "a:1", "")
		w.declare(a)
		w.want("a.consul")
		mark, row := len(w.hosts), model.RowKey{Kind: model.RowConfig, Key: a.Source.Object.String()}
		w.config.Delete(row)
		time.Sleep(200 * time.Millisecond)
		w.config.Put(row.Key, a)
		w.want("a.consul")
		w.config.Delete(row)
		time.Sleep(200 * time.Millisecond)
		w.config.Put(row.Key, registry(t, "a", "b:1", ""))
		w.want("a.consul")
		w.always(mark, "a.consul")
		if len(w.made) != 2 || len(w.forgot) > 0 {
			t.Errorf("%d made, forgot %v", len(w.made), w.forgot)
		}
	})
}

// The serving gate waits for registries that are declared, as it does for clusters.
func TestServingWaitsForDeclared(t *testing.T) {
	inWorld(t, func(w *world) {
		b := model.NewShardBuilder()
		c := registry(t, "a", "dead:1", "")
		w.config.Replace(b.Add(c.Source.Object.String(), c).Build())
		w.pass()
		if w.ctl.Ready() {
			t.Fatal("ready before the registry has delivered, or had its time")
		}
		w.of("a").sync("a.consul")
		w.pass()
		if !w.ctl.Ready() {
			t.Error("not ready after it has")
		}
	})
}

// TestIncident43OneBadRegistryHurtsNobody: whatever is wrong with one, others are attached, serve and change, and what is wrong shows.
func TestIncident43OneBadRegistryHurtsNobody(t *testing.T) {
	inWorld(t, func(w *world) {
		w.declare(registry(t, "bad", "bad:1", ""), registry(t, "odd", "odd:1", ""), registry(t, "dead", "dead:1", ""), registry(t, "good", "good:1", ""),
			row(t, `{kind: Registry, metadata: {name: mcp}, spec: {provider: mcp, addresses: ["a:1"]}}`), registry(t, "poor", "poor:1", ", credentials: {secretName: poor}"))
		time.Sleep(time.Minute) // serving waits for those that may still come, so long
		w.want("good.consul")
		w.wantState(key("bad"), "timeout", "bad address bad:1")
		w.wantState(key("odd"), "timeout", "it can't be made: odd address")
		w.wantState(key("dead"), "timeout")
		w.wantState(model.ShardKey{Provider: model.ProviderMCP, Cluster: "mcp"}, "not served")
		w.wantState(key("poor"), "the Secret istio-system/poor has not been read yet")
		w.wantState(key("good"), "live")
		w.of("good").sync("good.consul", "more.consul")
		w.want("good.consul", "more.consul")
		w.of("dead").sync("late.consul")
		w.want("good.consul", "late.consul", "more.consul")
	})
}

// A registry that gives up, or flaps, is that one's business.
func TestFlappingRegistry(t *testing.T) {
	inWorld(t, func(w *world) {
		w.declare(registry(t, "a", "a:1", ""), registry(t, "b", "b:1", ""))
		w.want("a.consul", "b.consul")
		mark := len(w.hosts)
		for i := range 50 {
			w.of("a").Status(model.Status{State: model.StateStale, Err: "connection refused"})
			w.of("a").sync("a.consul", fmt.Sprintf("a%d.consul", i))
		}
		w.of("a").Fail(errors.New("it gave up"))
		w.pass()
		w.always(mark, "b.consul")
		w.wantState(key("b"), "live")
	})
}

// A change is make-before-break: the one in force serves until the new one has delivered everything.
func TestChangeSwaps(t *testing.T) {
	inWorld(t, func(w *world) {
		w.declare(registry(t, "a", "a:1", ""))
		w.want("a.consul")
		mark, old := len(w.hosts), w.of("a")
		w.declare(registry(t, "a", "dead:1", ""))
		old.sync("a.consul", "a2.consul")
		w.want("a.consul", "a2.consul")
		if w.of("a").Running() != 1 || old.Running() != 1 {
			t.Errorf("old and new do not run side by side")
		}
		w.of("a").sync("a.consul", "new.consul")
		w.want("a.consul", "new.consul")
		w.always(mark, "a.consul")
		if old.Running() != 0 {
			t.Error("the old one runs on")
		}
	})
}

// TestIncident20BadChangeKeepsTheOldOne: a change that can't work leaves what there is, degraded, and shows why; mending it, or taking it back, ends that.
func TestIncident20BadChangeKeepsTheOldOne(t *testing.T) {
	for _, address := range []string{"bad:1", "odd:1", "dead:1"} {
		t.Run(address, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.declare(registry(t, "a", "a:1", ""))
				w.want("a.consul")
				mark, old := len(w.hosts), w.of("a")
				w.declare(registry(t, "a", address, ""))
				if address != "dead:1" {
					w.wantState(key("a"), "degraded", address[:3]+" address")
				}
				w.declare(registry(t, "a", "a:1", "")) // taken back
				w.wantState(key("a"), "live")
				if old.Running() != 1 || len(w.made) > 2 {
					t.Errorf("the old one does not serve on")
				}
				w.declare(registry(t, "a", address, ""))
				w.declare(registry(t, "a", "b:1", "")) // mended
				w.wantState(key("a"), "live")
				w.always(mark, "a.consul")
				if old.Running() != 0 {
					t.Error("the old one runs on")
				}
			})
		})
	}
}

// TestIncident44ScopeChangeTakesEffect: other namespaces or groups make a new registry, and what only the old scope had goes with it.
func TestIncident44ScopeChangeTakesEffect(t *testing.T) {
	inWorld(t, func(w *world) {
		declare := func(group string) {
			w.declare(row(t, fmt.Sprintf(`{kind: Registry, metadata: {name: trade}, spec: {provider: nacos, addresses: ["n:1"], nacos: {groups: [%s]}}}`, group)))
		}
		declare("a")
		w.of("trade").sync("one.a.nacos")
		w.want("one.a.nacos")
		declare("b")
		w.of("trade").sync("one.b.nacos")
		w.want("one.b.nacos")
		if got := w.of("trade").plan.Spec.Nacos.Groups; !slices.Equal(got, []string{"b"}) {
			t.Errorf("made with %v", got)
		}
	})
}

// TestIncident47EachRegistryKeepsItsOwn: two registries with one host: the end of one leaves what the other has.
func TestIncident47EachRegistryKeepsItsOwn(t *testing.T) {
	inWorld(t, func(w *world) {
		w.declare(registry(t, "a", "a:1", ""), registry(t, "b", "b:1", ""))
		w.of("a").sync("both")
		w.of("b").sync("both")
		w.want("both")
		mark := len(w.hosts)
		w.declare(registry(t, "b", "b:1", ""))
		w.want("both")
		w.always(mark, "both")
	})
}

// TestIncident32NothingLeaks: declaring what never answers again and again leaves one instance behind, and none in the end.
func TestIncident32NothingLeaks(t *testing.T) {
	inWorld(t, func(w *world) {
		for i := range 50 {
			w.declare(registry(t, "a", fmt.Sprintf("dead%d:1", i), ""))
		}
		if n := w.running(); n > 2 {
			t.Errorf("%d run", n)
		}
		w.declare()
		if n := w.running(); n != 0 {
			t.Errorf("%d run on", n)
		}
	})
}

// TestIncident45StopInEveryState: a registry is ended before it has delivered, while it is replaced, and twice.
func TestIncident45StopInEveryState(t *testing.T) {
	inWorld(t, func(w *world) {
		w.declare(registry(t, "a", "dead:1", ""))
		w.declare()
		w.declare(registry(t, "a", "a:1", ""))
		w.declare(registry(t, "a", "dead:2", ""))
		w.declare()
		w.declare()
		w.life.Detach(home)
		w.life.Detach(home)
		w.pass()
		if n := w.running(); n != 0 || w.state(key("a")) != "" {
			t.Errorf("%d run on", n)
		}
	})
}

// TestIncident96WhereFromAndHow: it can be told what declares each registry, with which settings, and how it is.
func TestIncident96WhereFromAndHow(t *testing.T) {
	inWorld(t, func(w *world) {
		w.declare(registry(t, "a", "a:1", ", credentials: {secretName: s}"), row(t, `{kind: McpBridge, metadata: {name: default}, spec: {registries: [{type: static, name: billing, domain: "10.9.0.4:7001", port: 80}]}}`))
		list := w.List()
		if len(list) != 2 || list[0].Declared() != "Registry/istio-system/a" || list[0].Effective.Limits.Concurrency != 96 || list[0].Refused == "" || !slices.Equal(list[0].Secrets, []string{"s"}) {
			t.Fatalf("%+v", list)
		}
		if b := list[1]; b.Declared() != "McpBridge/istio-system/default registries[0]" || b.Static.Host != "billing.static" {
			t.Errorf("%+v", b)
		}
		w.Secret("s", token("t"))
		w.want("a.consul", "billing.static")
	})
}

// Secrets rotate while the registry serves; what is missing is told and tried again.
func TestSecretRotates(t *testing.T) {
	inWorld(t, func(w *world) {
		w.declare(registry(t, "a", "a:1", ", credentials: {secretName: s}"))
		if !slices.Equal(w.wanted, []string{"s"}) {
			t.Fatalf("wanted: %v", w.wanted)
		}
		w.wantState(key("a"), "syncing", "has not been read yet")
		w.Secret("s", secrets.Secret{Err: "forbidden"})
		w.wantState(key("a"), "syncing", "the Secret istio-system/s: forbidden")
		w.Secret("s", secrets.Secret{})
		w.wantState(key("a"), "timeout", "the Secret istio-system/s does not exist")
		w.Secret("s", secrets.Secret{Data: map[string][]byte{"tokn": []byte("x")}})
		w.wantState(key("a"), "timeout", "it has no key token")
		w.Secret("s", token("first\n"))
		w.wantState(key("a"), "live")
		first := w.of("a")
		if first.plan.Access.Token != "first" {
			t.Error("the token is not that of the Secret")
		}
		mark := len(w.hosts)
		w.Secret("s", token("second"))
		w.want("a.consul")
		if w.of("a").plan.Access.Token != "second" || first.Running() != 0 || w.of("a").Running() != 1 {
			t.Error("the new token is not in use, or the old one is")
		}
		w.Secret("s", token("second"))
		w.Secret("s", secrets.Secret{Err: "the API server does not answer"})
		w.wantState(key("a"), "live")
		if len(w.made) != 2 {
			t.Errorf("%d were made: nothing has changed", len(w.made))
		}
		w.always(mark, "a.consul")
	})
}

// A Secret that vanishes, or loses a key, costs nothing that works.
func TestSecretVanishes(t *testing.T) {
	inWorld(t, func(w *world) {
		w.declare(registry(t, "a", "a:1", ", credentials: {secretName: s}"))
		w.Secret("s", token("first"))
		w.wantState(key("a"), "live")
		mark, one := len(w.hosts), w.of("a")
		w.Secret("s", secrets.Secret{})
		w.wantState(key("a"), "live", "| the Secret istio-system/s is gone; what it held last is used")
		if got := w.List()[0].Problems; len(got) != 1 {
			t.Errorf("%v", got)
		}
		w.Secret("s", token("first"))
		w.pass()
		if s := w.state(key("a")); s != "live" || w.of("a") != one {
			t.Errorf("after it came back: %s", s)
		}
		w.Secret("s", secrets.Secret{Data: map[string][]byte{}})
		w.wantState(key("a"), "degraded", "it has no key token")
		w.Secret("s", token("first"))
		w.wantState(key("a"), "live")
		if one.Running() != 1 || len(w.made) != 1 {
			t.Error("the registry was made anew")
		}
		w.always(mark, "a.consul")
	})
}

// What is wrong shows as well while a new instance is tried.
func TestSecretVanishesWhileTrying(t *testing.T) {
	inWorld(t, func(w *world) {
		w.declare(registry(t, "a", "dead:1", ", credentials: {secretName: s}"))
		w.Secret("s", token("first"))
		w.Secret("s", token("second"))
		w.Secret("s", secrets.Secret{})
		w.wantState(key("a"), "syncing", "| the Secret istio-system/s is gone")
	})
}

// What was kept of a registry may be served while its Secret can't be read, and by nothing that replaces another.
func TestKept(t *testing.T) {
	var first []bool
	keep := func(r model.Registry, _ func() string, f bool) model.Registry {
		first = append(first, f)
		return r
	}
	inWorldWith(t, func(o *registries.Options) { o.Keep = keep }, func(w *world) {
		w.declare(registry(t, "a", "a:1", ", credentials: {secretName: s}"))
		w.Secret("s", token("one"))
		w.wantState(key("a"), "live")
		w.declare(registry(t, "a", "b:1", ", credentials: {secretName: s}"))
		w.declare(registry(t, "a", "bad:1", ", credentials: {secretName: s}"))
		w.declare(registry(t, "a", "c:1", ", credentials: {secretName: s}"))
		w.wantState(key("a"), "live")
		if !slices.Equal(first, []bool{true, false, false}) {
			t.Errorf("%v", first)
		}
	})
}

// How long a registry may be stale holds whatever it is that tells its status.
func TestStaleAfter(t *testing.T) {
	inWorld(t, func(w *world) {
		w.declare(registry(t, "a", "a:1", ", staleAfter: 7s"))
		w.want("a.consul")
		w.of("a").Status(model.Status{State: model.StateStale, Err: "gone"})
		w.pass()
		for _, s := range w.ctl.Shards() {
			if s.Key == key("a") && s.Status.StaleAfter != 7*time.Second {
				t.Errorf("%+v", s.Status)
			}
		}
	})
}

// Without any source of Secrets that is said.
func TestNoSecrets(t *testing.T) {
	inWorldWith(t, func(o *registries.Options) { o.Want = nil }, func(w *world) {
		w.declare(registry(t, "a", "a:1", ", credentials: {secretName: s}"))
		w.wantState(key("a"), "timeout", "--registry-secrets-dir")
	})
}

// What a run tells that has been replaced, or detached, declares nothing.
func TestLateRowsDeclareNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		a := registry(t, "a", "a:1", "")
		w.declare(a)
		w.want("a.consul")
		next := memory.New(home)
		next.Replace(model.NewShardBuilder().Build())
		w.life.Attach(next)
		w.want()
		late := model.Event{Row: model.RowKey{Kind: model.RowConfig, Key: a.Source.Object.String()}, Obj: a}
		w.config.Late(late)
		w.want()
		w.life.Detach(home)
		next.Late(late)
		w.pass()
		if list := w.List(); len(list) > 0 {
			t.Errorf("%+v", list)
		}
	})
}

// The same registry of the config cluster attached again is known to be the same.
func TestAttachedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.declare(registry(t, "a", "a:1", ""))
		replacement := memory.New(home)
		w.life.Attach(replacement) // never delivers
		w.pass()
		w.life.Attach(w.config)
		w.want("a.consul")
		if w.config.Running() != 1 || replacement.Running() != 0 || w.config.Started() != 1 {
			t.Errorf("running: %d, replacement: %d, started: %d", w.config.Running(), replacement.Running(), w.config.Started())
		}
	})
}

// Whoever makes a registry learns which one it is to replace: that in force, whatever else was to replace it and has not.
func TestInForceIsTold(t *testing.T) {
	inWorld(t, func(w *world) {
		const secret = ", credentials: {secretName: a}"
		after := func(step string, n, inForce int) {
			t.Helper()
			w.pass()
			if len(w.made) != n {
				t.Fatalf("%s: %d made, want %d", step, len(w.made), n)
			}
			var want model.Registry
			if inForce >= 0 {
				want = w.made[inForce]
			}
			if w.made[n-1].plan.InForce != want {
				t.Errorf("%s: it is not to replace number %d", step, inForce)
			}
		}
		w.declare(registry(t, "a", "a:1", secret)) // which waits for its Secret
		w.pass()
		w.Secret("a", token("one"))
		after("the first", 1, -1)
		w.want("a.consul")
		w.declare(registry(t, "a", "bad:1", secret))
		w.declare(registry(t, "a", "dead:1", secret))
		after("a typo, in place of one that can't be made", 2, 0)
		w.declare(registry(t, "a", "dead:2", secret))
		after("another typo", 3, 0)
		w.declare(registry(t, "a", "a:1", secret))
		after("it is taken back", 3, 0)
		w.Secret("a", token("two"))
		after("another credential", 4, 0)
		w.declare(registry(t, "a", "b:1", secret))
		after("another address, after that has delivered", 5, 3)
		w.declare()
		w.declare(registry(t, "a", "b:1", secret))
		w.Secret("a", token("two"))
		after("declared anew", 6, -1)
	})
}
