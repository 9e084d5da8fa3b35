package consul

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
)

// hiding has answers leave out services as for a token that may see none of their instances, nor their names unless they are listed.
func hiding(f *fake, listed bool, services ...string) func(*http.Request) (*http.Response, error) {
	filtered := http.Header{"X-Consul-Results-Filtered-By-Acls": {"true"}}
	return func(r *http.Request) (*http.Response, error) {
		name, is := strings.CutPrefix(r.URL.Path, "/v1/health/service/")
		f.mu.Lock()
		defer f.mu.Unlock()
		switch {
		case is && slices.Contains(services, name) && len(f.services[name]) > 0:
			return respond(200, "[]", f.indexes[name], filtered), nil
		case r.URL.Path == "/v1/catalog/services" && r.URL.Query().Get("index") == "":
			names := map[string][]string{}
			for n := range f.services {
				if listed || !slices.Contains(services, n) {
					names[n] = nil
				}
			}
			return respond(200, names, f.lists, filtered), nil
		}
		return nil, nil
	}
}

// A registry whose token was changed for one that may see less takes over with all that the other knew, and says what it can't see.
func TestRotatedTokenSeesLess(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*fake) func(*http.Request) (*http.Response, error){
		"instances": func(f *fake) func(*http.Request) (*http.Response, error) { return hiding(f, true, "b") },
		"names":     func(f *fake) func(*http.Request) (*http.Response, error) { return hiding(f, false, "b") },
		"refused": func(*fake) func(*http.Request) (*http.Response, error) {
			return refuse("/v1/health/service/b", 403, "Permission denied")
		},
		"garbage": func(*fake) func(*http.Request) (*http.Response, error) {
			return refuse("/v1/health/service/b", 200, "<html>")
		},
	} {
		for way, most := range map[string]int32{"watched": 128, "on demand": 1} {
			t.Run(name+"/"+way, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					o := scripted(func(s *api.RegistrySpec) { s.Limits.Concurrency = most })
					o.Before = &Memory{}
					f := newFake()
					f.set("a", at("10.0.0.1"))
					f.set("b", at("10.0.0.2"))
					old := start(t, o, f)
					old.want(one, two)
					f.script(fault(f))
					next := start(t, o, f)
					next.want(one, two)
					old.end()
					if n := next.told(); n != 1 {
						t.Errorf("told %d times", n)
					}
					if name != "garbage" {
						next.wantState("stale: the token may not see 1 services that were seen before: what was known of them stays")
					}
					if p := next.problems(); !strings.HasPrefix(p, "b: not read: ") {
						t.Errorf("problems %q", p)
					}
					next.after(10*time.Minute, one, two)
					f.script(nil)
					next.set("b", at("10.0.0.3"))
					next.do(func() { next.lists -= 50 }) // the list is read again
					next.after(time.Minute, one, "b.dc1.consul [80/http]: 10.0.0.3:80 healthy 1")
					next.wantState("live")
					if p := next.problems(); p != "" {
						t.Errorf("problems %q", p)
					}
					next.end()
				})
			})
		}
	}
}

// What a list lacks since the token may not see all, and has gone as far as can be seen, is gone.
func TestRotatedTokenSeesWhatHasGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := scripted()
		o.Before = &Memory{}
		f := newFake()
		for _, name := range []string{"a", "b", "dead"} {
			f.set(name, at("10.0.0.1"))
		}
		start(t, o, f).end()
		f.remove("dead")
		f.script(hiding(f, false, "b"))
		for range 2 {
			w := start(t, o, f)
			w.want(one, "b.dc1.consul [80/http]: 10.0.0.1:80 healthy 1")
			if p := w.problems(); strings.Contains(p, "dead") {
				t.Errorf("problems %q", p)
			}
			w.end()
		}
		f.remove("b")
		f.script(hiding(f, false, "b"))
		w := start(t, o, f)
		w.want(one)
		w.wantState("live")
		w.end()
	})
}

// What went while nobody looked is not known again when its datacenter can't be read any more.
func TestReplacementForgetsWhatHasGone(t *testing.T) {
	eachSilence(t, func(t *testing.T, o Options, fault func(*http.Request) (*http.Response, error)) {
		synctest.Test(t, func(t *testing.T) {
			o.Before = &Memory{}
			f := newFake()
			f.set("a", at("10.0.0.1"))
			f.set("dead", at("10.0.0.9"))
			first := start(t, o, f)
			all := []string{dc("a", "dc1", "10.0.0.1"), dc("a", "dc2", "10.0.0.1")}
			first.want(all[0], all[1], dc("dead", "dc1", "10.0.0.9"), dc("dead", "dc2", "10.0.0.9"))
			first.end() // as if its contact were lost: it sees nothing of what follows
			f.remove("dead")
			second := start(t, o, f)
			second.want(all...)
			f.script(fault)
			third := start(t, o, f)
			third.after(slack+time.Second, all...)
			second.end()
			third.end()
		})
	})
}

// What is known again is no more than there is room for.
func TestReplacementHasTheSameLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := twoDatacenters(128)
		o.Spec.Limits.MaxServices = 4
		o.Before = &Memory{}
		f := newFake()
		f.set("c", at("10.0.0.1"))
		f.set("d", at("10.0.0.1"))
		start(t, o, f).end()
		f.set("a", at("10.0.0.1"))
		f.set("b", at("10.0.0.1"))
		f.script(in("dc2", refuse("/", 403, "Permission denied")))
		w := start(t, o, f)
		time.Sleep(slack + time.Second)
		synctest.Wait()
		if n := strings.Count(w.content(), "healthy"); n != 4 {
			t.Errorf("%d services:\n%s", n, w.content())
		}
		if p := fmt.Sprint(w.problems()); !strings.Contains(p, "dc2: what is known of it stays") {
			t.Errorf("problems %q", p)
		}
		w.end()
	})
}
