package consul

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/conformance"
)

const (
	one = "a.dc1.consul [80/http]: 10.0.0.1:80 healthy 1"
	two = "b.dc1.consul [80/http]: 10.0.0.2:80 healthy 1"
)

// pair is a registry that knows two services.
func pair(t *testing.T, o Options, test func(*world)) {
	t.Helper()
	inBubble(t, o, func(w *world) {
		w.set("a", at("10.0.0.1"))
		w.set("b", at("10.0.0.2"))
		w.want(one, two)
		w.wantState("live")
		test(w)
	})
}

func TestIndexOfAnswers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ sent, got, want uint64 }{
		{0, 5, 5}, {5, 5, 5}, {5, 6, 6}, {5, 4, 0}, {5, 0, 1}, {0, 0, 1}, {0, 1, 1},
	} {
		if got := next(tc.sent, tc.got); got != tc.want {
			t.Errorf("after %d for %d: %d, want %d", tc.got, tc.sent, got, tc.want)
		}
	}
}

// A server that was restored has lower indexes: what it says is taken, and no query waits for an index that is far ahead.
func TestIndexGoesBack(t *testing.T) {
	pair(t, scripted(), func(w *world) {
		w.do(func() {
			w.index, w.lists = 10, 10
			w.services = map[string][]entry{"a": {at("10.0.0.7")}, "c": {at("10.0.0.3")}}
			w.indexes = map[string]uint64{"a": 9, "b": 10, "c": 8}
		})
		w.want("a.dc1.consul [80/http]: 10.0.0.7:80 healthy 1", "c.dc1.consul [80/http]: 10.0.0.3:80 healthy 1")
		asked := w.count("")
		time.Sleep(time.Minute)
		if n := w.count("") - asked; n > 10 {
			w.t.Errorf("%d requests in a minute", n)
		}
		w.set("a", at("10.0.0.8"))
		w.want("a.dc1.consul [80/http]: 10.0.0.8:80 healthy 1", "c.dc1.consul [80/http]: 10.0.0.3:80 healthy 1")
	})
}

// Answers without index are no reason to ask again at once.
func TestAnswersWithoutIndexDoNotSpin(t *testing.T) {
	pair(t, scripted(), func(w *world) {
		w.do(func() { w.header.Set("X-Consul-Index", "0") })
		w.set("a", at("10.0.0.3"))
		asked := w.count("")
		w.after(time.Minute, "a.dc1.consul [80/http]: 10.0.0.3:80 healthy 1", two)
		if n := w.count("") - asked; n > 3*60+4*burst {
			w.t.Errorf("%d requests in a minute", n)
		}
	})
}

// bare is a status without its text.
func bare(status int) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		resp, err := refuse("/", status, "")(r)
		if resp != nil {
			resp.Status = fmt.Sprint(status, " ")
		}
		return resp, err
	}
}

// Faults of contact and of rights: nothing is taken for gone, the status says why, and what has happened is known soon after.
func TestLostContactKeepsWhatIsKnown(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fault func(w *world)
		want  string // state while it lasts
	}{
		"reset": {func(w *world) {
			w.script(func(*http.Request) (*http.Response, error) { return nil, errors.New("connection reset by peer") })
		}, "stale: consul.test:8500: connection reset by peer"},
		"no leader": {func(w *world) { w.locked(func() { w.header.Set("X-Consul-KnownLeader", "false") }) },
			"stale: consul.test:8500: the server knows no leader"},
		"old": {func(w *world) { w.locked(func() { w.header.Set("X-Consul-LastContact", "10001") }) },
			"stale: consul.test:8500: the server is behind the leader for more than 10s"},
		"error": {func(w *world) { w.script(refuse("/", 500, "No cluster leader\nmore")) },
			"stale: consul.test:8500: 500 Internal Server Error: No cluster leader"},
		"busy": {func(w *world) { w.script(refuse("/", 429, "")) }, "stale: consul.test:8500: 429 Too Many Requests"},
		"token": {func(w *world) { w.script(refuse("/", 403, "ACL not found: secret-token")) },
			"stale: consul.test:8500: 403 Forbidden: ACL not found: …"},
		"garbage": {func(w *world) { w.script(refuse("/", 200, "<html>")) },
			"stale: its answer can't be read: invalid character '<' looking for beginning of value"},
		"null":    {func(w *world) { w.script(refuse("/", 200, "null")) }, "stale: its answer can't be read: it is null"},
		"no text": {func(w *world) { w.script(bare(403)) }, "stale: consul.test:8500: 403"},
	} {
		t.Run(name, func(t *testing.T) {
			o := scripted(func(s *api.RegistrySpec) { s.Consul = &api.ConsulSpec{Consistency: "stale"} })
			pair(t, o, func(w *world) {
				tc.fault(w)
				// What it says now is not to be believed.
				w.do(func() { w.services = map[string][]entry{}; w.index += 10; w.lists, w.indexes["a"] = w.index, w.index })
				w.after(10*time.Minute, one, two)
				w.wantState(tc.want)
				asked := w.count("")
				time.Sleep(10 * time.Minute)
				if n := w.count("") - asked; n > 3*2*10*60/15 {
					w.t.Errorf("%d requests in ten minutes", n)
				}
				w.locked(func() { w.mangle, w.header = nil, http.Header{} })
				w.set("b", at("10.0.0.4"))
				w.after(35*time.Second, "b.dc1.consul [80/http]: 10.0.0.4:80 healthy 1")
				w.wantState("live")
				if p := w.problems(); p != "" {
					w.t.Errorf("problems %q", p)
				}
			})
		})
	}
}

// A server that says nothing is noticed by the list, which waits least.
func TestSlowAnswer(t *testing.T) {
	pair(t, scripted(), func(w *world) {
		w.script(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		time.Sleep(3 * time.Minute)
		w.wantState("stale: consul.test:8500: no answer in time")
		w.script(nil)
		w.set("a", at("10.0.0.3"))
		w.after(time.Minute+slack, "a.dc1.consul [80/http]: 10.0.0.3:80 healthy 1", two)
		w.wantState("live")
	})
}

// A token that sees less than it did, or none, takes nothing away; one that sees a part from the start does for that part.
func TestFilteredIsNotGone(t *testing.T) {
	hide := func(w *world, services ...string) { w.script(hiding(w.fake, false, services...)) }
	lose := func(w *world) { w.do(func() { w.lists -= 50 }) } // the list is read again
	pair(t, scripted(), func(w *world) {
		hide(w, "a")
		lose(w)
		w.after(time.Minute, one, two)
		w.wantState("stale: the token may not see 1 services that were seen before: what was known of them stays")
		w.remove("b") // this one may be seen, and is gone
		lose(w)
		w.after(time.Minute, one)
		w.script(nil)
		lose(w)
		w.set("a", at("10.0.0.3"))
		w.after(time.Minute, "a.dc1.consul [80/http]: 10.0.0.3:80 healthy 1")
		w.wantState("live")
	})
}

// A registry whose token may see nothing is not an empty one.
func TestTokenThatSeesNothing(t *testing.T) {
	t.Parallel()
	for name, header := range map[string]http.Header{
		"told":      {"X-Consul-Results-Filtered-By-Acls": {"true"}},
		"no token":  {"X-Consul-Default-Acl-Policy": {"deny"}},
		"no rights": {"X-Consul-Results-Filtered-By-Acls": {"true"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := scripted()
			if name == "no token" {
				o.Access.Token = ""
			}
			f := newFake()
			f.set("a", at("10.0.0.1"))
			f.mangle = func(r *http.Request) (*http.Response, error) {
				switch {
				case r.URL.Path == "/v1/catalog/services" && name != "no rights":
					return respond(200, "{}", 1, header), nil
				case strings.HasPrefix(r.URL.Path, "/v1/health/service/"):
					return respond(200, "[]", 1, header), nil
				}
				return nil, nil
			}
			synctest.Test(t, func(t *testing.T) {
				f.changed = make(chan struct{})
				w := start(t, o, f)
				time.Sleep(time.Minute)
				synctest.Wait()
				if s := w.state(); w.told() != 0 || !strings.HasPrefix(s, "syncing: the token may") {
					t.Errorf("told %d times, %s", w.told(), s)
				}
				w.script(nil)
				w.after(time.Minute, one)
				w.wantState("live")
				w.end()
			})
		})
	}
}

// An empty list is a truth if all may be seen.
func TestEmptyList(t *testing.T) {
	pair(t, scripted(), func(w *world) {
		w.remove("a")
		w.remove("b")
		w.want()
		w.wantState("live")
	})
}

// One service that can't be read holds up nothing, and keeps what is known of it.
func TestOneServiceCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*http.Request) (*http.Response, error){
		"garbage": refuse("/v1/health/service/b", 200, `{"no": "list"}`),
		"refused": refuse("/v1/health/service/b", 403, "Permission denied"),
		"request": refuse("/v1/health/service/b", 400, "bad"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				f.set("a", at("10.0.0.1"))
				f.set("b", at("10.0.0.2"))
				f.mangle = fault
				w := start(t, scripted(), f)
				w.want(one)
				if !strings.HasPrefix(w.problems(), "b: not read: ") {
					t.Errorf("problems %q", w.problems())
				}
				w.script(nil)
				w.after(31*time.Second, one, two)
				w.script(fault)
				w.set("b", at("10.0.0.3"))
				w.after(31*time.Second, one, two)
				if !strings.HasPrefix(w.problems(), "b: not read: ") {
					t.Errorf("problems %q", w.problems())
				}
				w.end()
			})
		})
	}
}

// A server that answers for all services but a few holds up the first sync for no more than some tries; one that fails for
// many does.
func TestFirstSyncWithoutAFew(t *testing.T) {
	t.Parallel()
	for broken, want := range map[int]int{1: 1, 2: 1, 3: 0} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			for i := range 20 {
				f.set(fmt.Sprintf("s%02d", i), at("10.0.0.1"))
			}
			f.mangle = func(r *http.Request) (*http.Response, error) {
				for i := range broken {
					if strings.HasSuffix(r.URL.Path, fmt.Sprintf("/s%02d", i)) {
						return respond(500, "rpc error", 0, nil), nil
					}
				}
				return nil, nil
			}
			w := start(t, scripted(), f)
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			if got := w.told(); got != want {
				t.Errorf("%d broken: told %d times, want %d", broken, got, want)
			}
			w.script(nil)
			time.Sleep(time.Minute)
			synctest.Wait()
			if n := strings.Count(w.content(), "healthy"); n != 20 || w.state() != "live" || w.problems() != "" {
				t.Errorf("%d broken: %d services, %s, %s", broken, n, w.state(), w.problems())
			}
			w.end()
		})
	}
}

// Another server is asked at once if one does not answer, and stays the one that is asked.
func TestServersAreTriedInTurn(t *testing.T) {
	o := scripted(func(s *api.RegistrySpec) { s.Addresses = []string{"one.test:8500", "two.test:8500"} })
	pair(t, o, func(w *world) {
		var first atomic.Int32
		w.script(func(r *http.Request) (*http.Response, error) {
			if r.URL.Host == "one.test:8500" {
				first.Add(1)
				return nil, errors.New("connection refused")
			}
			return nil, nil
		})
		w.set("a", at("10.0.0.3")) // ends queries of the first one
		w.set("b", at("10.0.0.4"))
		w.want("a.dc1.consul [80/http]: 10.0.0.3:80 healthy 1", "b.dc1.consul [80/http]: 10.0.0.4:80 healthy 1")
		w.wantState("live")
		was := first.Load()
		time.Sleep(10 * time.Minute)
		w.set("a", at("10.0.0.1"))
		w.want(one, "b.dc1.consul [80/http]: 10.0.0.4:80 healthy 1")
		if n := first.Load() - was; n > 0 {
			w.t.Errorf("the first was asked %d times more", n)
		}
		w.script(func(r *http.Request) (*http.Response, error) { return nil, errors.New(r.URL.Host + " refuses") })
		w.do(func() { w.lists++; w.index++ })
		time.Sleep(time.Minute)
		w.wantState("stale: two.test:8500: two.test:8500 refuses; one.test:8500: one.test:8500 refuses")
	})
}

func TestMostServices(t *testing.T) {
	o := scripted(func(s *api.RegistrySpec) { s.Limits.MaxServices = 2 })
	pair(t, o, func(w *world) {
		w.set("c", at("10.0.0.3"))
		w.set("d", at("10.0.0.3"))
		w.want(one, two)
		if p := w.problems(); p != "limits.maxServices: 2 services are not read: there are more than that" {
			w.t.Errorf("problems %q", p)
		}
		w.remove("a")
		w.want(two, "c.dc1.consul [80/http]: 10.0.0.3:80 healthy 1")
	})
}

// The health of services that are not watched is told by the few checks that fail, however long all of them take to read.
func TestHealthDoesNotWaitForAllChecks(t *testing.T) {
	o := scripted(func(s *api.RegistrySpec) { s.Limits.Concurrency = 1 })
	pair(t, o, func(w *world) {
		w.script(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == tablePaths[tableChecks] {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return nil, nil
		})
		for status, want := range map[string]string{"critical": "unhealthy", "warning": "healthy", "passing": "healthy"} {
			w.setHealth("a", at("10.0.0.1", checked(status), func(e *entry) { e.Service.Weights = &weights{1, 2} }))
			weight := map[string]string{"critical": "1", "warning": "2", "passing": "1"}[status]
			w.want("a.dc1.consul [80/http]: 10.0.0.1:80 "+want+" "+weight, two)
		}
	})
}

// Watches go to services that are taken; sidecars are read on demand if not all can be watched.
func TestSidecarsAreWatchedLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.set("a-sidecar-proxy", at("10.0.0.1", func(e *entry) { e.Service.Kind = "connect-proxy" }))
		for i := range 9 {
			f.set(fmt.Sprintf("s%d", i), at("10.0.0.1"))
		}
		w := start(t, scripted(func(s *api.RegistrySpec) { s.Limits.Concurrency = 10 }), f) // 4 are watched
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := w.count("/v1/health/service/a-sidecar-proxy?1"); n > 0 {
			t.Errorf("the sidecar was waited for %d times", n)
		}
		for i := range 9 {
			if n := w.count(fmt.Sprintf("/v1/health/service/s%d?1", i)); (n > 0) != (i < 4) {
				t.Errorf("s%d was waited for %d times", i, n)
			}
		}
		w.end()
	})
}

// fakeSource is a fake as a source of the suite, in real time.
type fakeSource struct {
	*fake
	t     *testing.T
	id    model.ClusterID
	spec  api.RegistrySpec
	world conformance.World
}

// Registry implements conformance.Source.
func (s *fakeSource) Registry() model.Registry {
	r, err := New(Options{Name: s.id, Spec: s.spec, Timing: Timing{RetryMin: 10 * time.Millisecond, Spacing: 10 * time.Millisecond}})
	if err != nil {
		s.t.Fatal(err)
	}
	r.client.http.Transport = s.fake
	return r
}

// Set implements conformance.Source.
func (s *fakeSource) Set(w conformance.World) {
	for name, sv := range w {
		if old, had := s.world[name]; had && old.Port == sv.Port && slices.Equal(old.Addresses, sv.Addresses) {
			continue
		}
		var list []entry
		for _, a := range sv.Addresses {
			list = append(list, at(a, func(e *entry) { e.Service.Port = int(sv.Port) }))
		}
		if len(list) == 0 {
			list = append(list, at("192.0.2.1", func(e *entry) {
				e.Service.Port = int(sv.Port)
				e.Checks = []check{{CheckID: serviceMaintenance + name, Status: "critical"}}
			}))
		}
		s.set(name, list...)
	}
	for name := range s.world {
		if _, stays := w[name]; !stays {
			s.remove(name)
		}
	}
	s.world = maps.Clone(w)
}

// Cut implements conformance.Cutter: those who wait lose their answer.
func (s *fakeSource) Cut() {
	s.do(func() {
		s.mangle = func(*http.Request) (*http.Response, error) { return nil, errors.New("connection reset by peer") }
		s.lists++
		s.index++
	})
}

// Restore implements conformance.Cutter.
func (s *fakeSource) Restore() { s.script(nil) }

func TestConformanceOfFake(t *testing.T) {
	for _, most := range []int32{128, 1} {
		t.Run(fmt.Sprint(most, " at once"), func(t *testing.T) {
			conformance.Run(t, conformance.Harness{New: func(t *testing.T, id model.ClusterID) conformance.Source {
				s := &fakeSource{fake: newFake(), t: t, id: id}
				s.spec = spec(func(r *api.RegistrySpec) { r.Limits.Concurrency = most })
				s.spec.Namespace = conformance.Namespace
				return s
			}})
		})
	}
}
