package consul

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/foreign"
)

// many is a registry that watches none of its services.
func many(t *testing.T, n int, test func(*world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		for i := range n {
			f.set(fmt.Sprintf("s%03d", i), at("10.0.0.1"))
		}
		w := start(t, onDemand(), f)
		time.Sleep(time.Minute)
		test(w)
		w.end()
	})
}

func onPort(port int) func(*entry) { return func(e *entry) { e.Service.Port = port } }

func (w *world) wantPort(name string, port int) {
	w.t.Helper()
	synctest.Wait()
	if line := fmt.Sprintf("%s.dc1.consul [%d/http]: 10.0.0.1:%d healthy 1", name, port, port); !strings.Contains(w.content(), line) {
		w.t.Errorf("%s is not on port %d", name, port)
	}
}

// A registration that no check shows is known soon, whichever service it is.
func TestRegistrationIsKnownSoon(t *testing.T) {
	many(t, 100, func(w *world) {
		for _, i := range []int{99, 50, 0, 1} {
			name := fmt.Sprintf("s%03d", i)
			w.register(name, at("10.0.0.1", onPort(81)))
			time.Sleep(soon)
			w.wantPort(name, 81)
		}
	})
}

// So it is while others change all the time: no service waits for ever, or is passed by because its turn was just over.
func TestRegistrationsThatNeverRest(t *testing.T) {
	many(t, 100, func(w *world) {
		want := map[string]int{}
		asked := w.count("/v1/health/service/")
		for i := range 120 {
			name := fmt.Sprintf("s%03d", i*37%100)
			want[name] = 100 + i
			w.register(name, at("10.0.0.1", onPort(want[name])))
			time.Sleep(time.Second)
			if old := fmt.Sprintf("s%03d", (i-12)*37%100); i >= 12 {
				w.wantPort(old, want[old])
			}
		}
		if n := w.count("/v1/health/service/") - asked; n > 100+120*fewEnough/int(soon.Seconds())+2*maxReaders {
			w.t.Errorf("%d requests in two minutes", n)
		}
		time.Sleep(2 * soon)
		for name, port := range want {
			w.wantPort(name, port)
		}
	})
}

// A slow limit bounds it, and does not end it.
func TestSweepWithinALowLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.set("a", at("10.0.0.1"))
		f.set("b", at("10.0.0.1"))
		w := start(t, onDemand(func(s *api.RegistrySpec) { s.Limits.RequestsPerSecond = 1 }), f)
		time.Sleep(2 * time.Minute)
		for i := range 60 { // the list and the tables take what there is
			w.register("a", at("10.0.0.1", onPort(100+i)))
			time.Sleep(time.Second)
		}
		w.register("b", at("10.0.0.1", onPort(81)))
		time.Sleep(time.Minute)
		w.wantPort("a", 159)
		w.wantPort("b", 81)
		w.end()
	})
}

// After contact was lost everything is read, even if the indexes are those of before: it may be another server's.
func TestServerThatCountsAnew(t *testing.T) {
	pair(t, onDemand(), func(w *world) {
		w.script(func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") })
		w.do(func() { w.lists++; w.checks++; w.nodes++ })
		time.Sleep(2 * time.Minute)
		w.wantState("stale: consul.test:8500: connection refused")
		w.locked(func() {
			w.lists--
			w.checks--
			w.nodes--
			w.fake.services["b"] = []entry{at("10.0.0.2", onPort(81))}
			w.mangle = nil
		})
		w.after(45*time.Second, one, "b.dc1.consul [81/http]: 10.0.0.2:81 healthy 1")
		w.wantState("live")
	})
}

// A server that is behind the leader does not know yet why it is asked.
func TestServerBehindTheLeader(t *testing.T) {
	o := onDemand(func(s *api.RegistrySpec) { s.Consul = &api.ConsulSpec{Consistency: "stale"} })
	pair(t, o, func(w *world) {
		time.Sleep(time.Minute)
		var changed time.Time
		w.script(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/v1/health/service/a" && time.Since(changed) < 2*time.Second {
				return respond(200, []entry{at("10.0.0.1")}, w.index-1, http.Header{"X-Consul-Lastcontact": {"1900"}}), nil
			}
			return nil, nil
		})
		changed = time.Now()
		w.setHealth("a", at("10.0.0.1", checked("critical")))
		w.want("a.dc1.consul [80/http]: 10.0.0.1:80 unhealthy 1", two)
	})
}

// Of a service that is followed by now an answer that was under way tells nothing.
func TestAnswerThatComesTooLate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		index uint64
		err   error
		want  string
	}{
		"older": {index: 9, want: "new"},
		"error": {err: &failure{result: foreign.RequestFailed, text: "reset"}, want: "new"},
		"newer": {index: 11, want: "late"},
	} {
		o := onDemand()
		o.Name = "legacy"
		reg, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		r := newRun(reg, newSink())
		r.wake.Stop()
		scope := &scopeState{convert: newConverter(reg.key, &o.Spec, scope{}, false, "dc1")}
		r.scopes = []*scopeState{scope}
		r.know(scope, "a")
		s := r.services[serviceKey{scope, "a"}]
		s.watcher, s.asked, scope.busy = &task{}, true, 1
		say := func(what string, index uint64) reading {
			return reading{of: s, value: &foreign.Service{Key: "a", Name: what}, answer: answer{index: index}}
		}
		say("new", 10).apply(t.Context(), r)
		late := say("late", tc.index)
		late.onDemand, late.err = true, tc.err
		late.apply(t.Context(), r)
		if s.last.Name != tc.want || s.asked || scope.busy != 0 {
			t.Errorf("%s: known as %q, asked %v, busy %d", name, s.last.Name, s.asked, scope.busy)
		}
	}
}

// Rights that come back change no index.
func TestTokenThatSeesMoreAgain(t *testing.T) {
	t.Parallel()
	for name, most := range map[string]int32{"watched": 128, "on demand": 1} {
		t.Run(name, func(t *testing.T) {
			o := scripted(func(s *api.RegistrySpec) { s.Limits.Concurrency = most })
			pair(t, o, func(w *world) {
				part := func(r *http.Request) (*http.Response, error) {
					if r.URL.Path == "/v1/health/service/a" {
						return respond(200, []entry{at("10.0.0.1")}, w.index, http.Header{"X-Consul-Results-Filtered-By-Acls": {"true"}}), nil
					}
					return nil, nil
				}
				w.set("a", at("10.0.0.1"), at("10.0.0.3"))
				w.want("a.dc1.consul [80/http]: 10.0.0.1:80 healthy 1; 10.0.0.3:80 healthy 1", two)
				w.script(part)
				w.setHealth("a", at("10.0.0.1"), at("10.0.0.3", checked("critical")))
				w.want(one, two)
				w.script(nil)
				w.after(6*time.Minute, "a.dc1.consul [80/http]: 10.0.0.1:80 healthy 1; 10.0.0.3:80 unhealthy 1", two)
			})
		})
	}
}

// What is not watched is read for the first sync, and once more when the tables tell what changes from then on.
func TestReadsAfterTheFirstSync(t *testing.T) {
	many(t, 100, func(w *world) {
		time.Sleep(time.Minute)
		if n := w.count("/v1/health/service/"); n > 2*100+maxReaders {
			w.t.Errorf("%d requests", n)
		}
	})
}
