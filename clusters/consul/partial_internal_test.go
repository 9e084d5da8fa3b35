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
)

// twoDatacenters are options of a registry of two, which have the same services.
func twoDatacenters(most int32) Options {
	return scripted(func(s *api.RegistrySpec) {
		s.Limits.Concurrency = most
		s.Consul = &api.ConsulSpec{Datacenters: []string{"dc1", "dc2"}}
	})
}

// in has a fault happen in one datacenter only.
func in(dc string, fault func(*http.Request) (*http.Response, error)) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		if r.URL.Query().Get("dc") != dc {
			return nil, nil
		}
		return fault(r)
	}
}

func hang(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// silences are the ways in which a datacenter can't be read.
var silences = map[string]func(*http.Request) (*http.Response, error){
	"no path": refuse("/", 500, "No path to datacenter"),
	"reset":   func(*http.Request) (*http.Response, error) { return nil, errors.New("connection reset by peer") },
	"hangs":   hang,
	"refused": refuse("/", 403, "Permission denied"),
	"limited": refuse("/", 429, ""),
	"garbage": refuse("/", 200, "<html>"),
}

func eachSilence(t *testing.T, test func(*testing.T, Options, func(*http.Request) (*http.Response, error))) {
	t.Helper()
	t.Parallel()
	for name, fault := range silences {
		for way, most := range map[string]int32{"watched": 128, "on demand": 1} {
			t.Run(name+"/"+way, func(t *testing.T) {
				t.Parallel()
				test(t, twoDatacenters(most), in("dc2", fault))
			})
		}
	}
}

// dc is a service of one instance.
func dc(name, dc, address string) string {
	return fmt.Sprintf("%s.%s.consul [80/http]: %s:80 healthy 1", name, dc, address)
}

// A datacenter that can't be read is its own trouble: it keeps what is known of it, the other is live and followed.
func TestSilentDatacenter(t *testing.T) {
	eachSilence(t, func(t *testing.T, o Options, fault func(*http.Request) (*http.Response, error)) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			f.set("a", at("10.0.0.1"))
			w := start(t, o, f)
			w.want(dc("a", "dc1", "10.0.0.1"), dc("a", "dc2", "10.0.0.1"))
			w.wantState("live")
			w.script(fault)
			w.do(func() { w.lists++; w.index++ })
			time.Sleep(3 * time.Minute) // what hangs is noticed late
			for i := 2; i < 6; i++ {
				address := fmt.Sprintf("10.0.0.%d", i)
				w.set("a", at(address))
				w.after(soon, dc("a", "dc1", address), dc("a", "dc2", "10.0.0.1"))
			}
			w.set("b", at("10.0.0.9")) // and none of dc2
			w.want(dc("a", "dc1", "10.0.0.5"), dc("a", "dc2", "10.0.0.1"), dc("b", "dc1", "10.0.0.9"))
			w.wantState("live")
			if p := w.problems(); !strings.HasPrefix(p, "dc2: what is known of it stays as it was: ") {
				t.Errorf("problems %q", p)
			}
			w.script(nil)
			w.after(2*time.Minute, dc("a", "dc1", "10.0.0.5"), dc("a", "dc2", "10.0.0.5"), dc("b", "dc1", "10.0.0.9"), dc("b", "dc2", "10.0.0.9"))
			w.wantState("live")
			if p := w.problems(); p != "" {
				t.Errorf("problems %q", p)
			}
			w.end()
		})
	})
}

// It holds up nobody's first sync for long, and joins when it can be read.
func TestFirstSyncWithoutADatacenter(t *testing.T) {
	eachSilence(t, func(t *testing.T, o Options, fault func(*http.Request) (*http.Response, error)) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			f.set("a", at("10.0.0.1"))
			f.mangle = fault
			w := start(t, o, f)
			time.Sleep(grace - time.Second)
			synctest.Wait()
			if w.told() != 0 {
				t.Error("it did not wait for the other datacenter")
			}
			w.after(slack-grace+2*time.Second, dc("a", "dc1", "10.0.0.1"))
			w.wantState("live")
			if p := w.problems(); !strings.HasPrefix(p, "dc2: what is known of it stays as it was: ") {
				t.Errorf("problems %q", p)
			}
			w.script(nil)
			w.after(time.Minute, dc("a", "dc1", "10.0.0.1"), dc("a", "dc2", "10.0.0.1"))
			w.wantState("live")
			if p := w.problems(); p != "" {
				t.Errorf("problems %q", p)
			}
			w.end()
		})
	})
}

// A datacenter that can be listed, and whose services can't be read, is no better.
func TestFirstSyncWithoutServicesOfADatacenter(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func() *http.Response{
		"error": func() *http.Response { return respond(500, "rpc error", 0, nil) },
		"hidden": func() *http.Response {
			return respond(200, "[]", 5, http.Header{"X-Consul-Results-Filtered-By-Acls": {"true"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				f.set("a", at("10.0.0.1"))
				f.mangle = in("dc2", func(r *http.Request) (*http.Response, error) {
					if strings.HasPrefix(r.URL.Path, "/v1/health/service/") {
						return answer(), nil
					}
					return nil, nil
				})
				w := start(t, twoDatacenters(128), f)
				w.after(time.Minute, dc("a", "dc1", "10.0.0.1"))
				if p := w.problems(); w.state() != "live" || !strings.Contains(p, "dc2/a: not read: ") {
					t.Errorf("%s, problems %q", w.state(), p)
				}
				w.script(nil)
				w.after(time.Minute, dc("a", "dc1", "10.0.0.1"), dc("a", "dc2", "10.0.0.1"))
				if p := w.problems(); w.state() != "live" || p != "" {
					t.Errorf("%s, problems %q", w.state(), p)
				}
				w.end()
			})
		})
	}
}

// Without any there is no first sync, and later no contact.
func TestAllDatacentersAreSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.set("a", at("10.0.0.1"))
		f.mangle = refuse("/", 500, "No path to datacenter")
		w := start(t, twoDatacenters(128), f)
		time.Sleep(10 * time.Minute)
		const text = "dc1: consul.test:8500: 500 Internal Server Error: No path to datacenter; dc2: consul.test:8500: 500 Internal Server Error: No path to datacenter"
		w.wantState("syncing: " + text)
		if w.told() != 0 {
			t.Error("told of nothing")
		}
		w.script(nil)
		w.after(time.Minute, dc("a", "dc1", "10.0.0.1"), dc("a", "dc2", "10.0.0.1"))
		w.wantState("live")
		w.script(refuse("/", 500, "No path to datacenter"))
		w.do(func() { w.lists++; w.index++ })
		w.after(2*time.Minute, dc("a", "dc1", "10.0.0.1"), dc("a", "dc2", "10.0.0.1"))
		w.wantState("stale: " + text)
		if p := w.problems(); p != "" {
			t.Errorf("problems %q", p)
		}
		w.end()
	})
}

// A peer is a scope like a datacenter: nothing of the agent's own waits for it.
func TestSilentPeer(t *testing.T) {
	t.Parallel()
	for way, most := range map[string]int32{"watched": 128, "on demand": 1} {
		t.Run(way, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				f.set("a", at("10.0.0.1"))
				east := func(known int) func(*http.Request) (*http.Response, error) {
					return func(r *http.Request) (*http.Response, error) {
						switch r.URL.Path {
						case "/v1/imported-services":
							return respond(known, []imported{{"web", "east"}}, 0, nil), nil
						case "/v1/health/service/web":
							return respond(200, []entry{at("10.2.0.1")}, 7, nil), nil
						}
						return nil, nil
					}
				}
				f.mangle = east(500)
				w := start(t, scripted(func(s *api.RegistrySpec) {
					s.Limits.Concurrency = most
					s.Consul = &api.ConsulSpec{Peers: []string{"east"}}
				}), f)
				w.after(grace+time.Second, one)
				w.wantState("live")
				if p := w.problems(); !strings.HasPrefix(p, "peer:east: what is known of it stays as it was: ") {
					t.Errorf("problems %q", p)
				}
				const web = "web.east.peer.consul [80/http]: 10.2.0.1:80 healthy 1"
				w.script(east(200))
				w.after(time.Minute, one, web)
				w.script(east(500))
				w.set("a", at("10.0.0.2"))
				w.after(time.Minute, "a.dc1.consul [80/http]: 10.0.0.2:80 healthy 1", web)
				w.wantState("live")
				w.end()
			})
		})
	}
}

// Services of a datacenter that hangs take no reader from those of another.
func TestHangingDatacenterTakesNoReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		for i := range 40 {
			f.set(fmt.Sprintf("s%02d", i), at("10.0.0.1"))
		}
		w := start(t, twoDatacenters(12), f)
		time.Sleep(time.Minute)
		w.script(in("dc2", hang))
		w.do(func() { w.lists++; w.checks++; w.index++ })
		for i := range 40 {
			name := fmt.Sprintf("s%02d", i)
			w.set(name, at("10.0.0.1", onPort(81)))
			time.Sleep(soon)
			w.wantPort(name, 81)
		}
		w.end()
	})
}

// One that replaces another has of a datacenter that can't be read what the other knew.
func TestReplacementWithoutADatacenter(t *testing.T) {
	eachSilence(t, func(t *testing.T, o Options, fault func(*http.Request) (*http.Response, error)) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			f.set("a", at("10.0.0.1"))
			f.set("b", at("10.0.0.2"))
			f.set("gone", at("10.0.0.3"))
			o.Before = &Memory{}
			old := start(t, o, f)
			old.remove("gone")
			all := []string{dc("a", "dc1", "10.0.0.1"), dc("a", "dc2", "10.0.0.1"), dc("b", "dc1", "10.0.0.2"), dc("b", "dc2", "10.0.0.2")}
			old.want(all...)
			f.script(fault)
			next := start(t, o, f)
			next.after(slack+time.Second, all...)
			next.wantState("live")
			if p := next.problems(); !strings.HasPrefix(p, "dc2: what is known of it stays as it was: ") || strings.Count(p, "\n") > 0 {
				t.Errorf("problems %q", p)
			}
			old.end()
			next.set("a", at("10.0.0.4"))
			next.want(dc("a", "dc1", "10.0.0.4"), dc("a", "dc2", "10.0.0.1"), all[2], all[3])
			f.script(nil)
			next.remove("b")
			next.after(time.Minute, dc("a", "dc1", "10.0.0.4"), dc("a", "dc2", "10.0.0.4"))
			next.wantState("live")
			if p := next.problems(); p != "" {
				t.Errorf("problems %q", p)
			}
			next.end()
			// One that is declared otherwise has its own memory.
			f.script(fault)
			o.Before = &Memory{}
			other := start(t, o, f)
			other.after(slack+time.Second, dc("a", "dc1", "10.0.0.4"))
			other.end()
		})
	})
}

// A service that could not be read for itself is read again after contact was lost, too.
func TestRefusedServiceAfterSilence(t *testing.T) {
	pair(t, onDemand(), func(w *world) {
		w.script(refuse("/v1/health/service/b", 403, "Permission denied"))
		w.set("b", at("10.0.0.3"))
		w.want(one, two)
		w.script(func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") })
		w.do(func() { w.lists++; w.index++ })
		time.Sleep(time.Hour)
		w.script(refuse("/v1/health/service/b", 403, "Permission denied"))
		w.after(2*time.Minute, one, two)
		w.wantState("stale: the token may not see 1 services that were seen before: what was known of them stays")
		w.script(nil)
		w.after(40*time.Second, one, "b.dc1.consul [80/http]: 10.0.0.3:80 healthy 1")
		w.wantState("live")
	})
}
