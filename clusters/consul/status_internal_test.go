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

// crowd sets many services.
func crowd(f *fake, n int) {
	for i := range n {
		name := fmt.Sprintf("s%04d", i)
		f.services[name], f.indexes[name] = []entry{at("10.0.0.1")}, 2
	}
}

// hidden has a token that may see no instance of a service whose name ends in one of the digits.
func hidden(digits string) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		path := r.URL.Path
		if strings.HasPrefix(path, "/v1/health/service/") && strings.Contains(digits, path[len(path)-1:]) {
			return respond(200, "[]", 3, http.Header{"X-Consul-Results-Filtered-By-Acls": {"true"}}), nil
		}
		return nil, nil
	}
}

// Where much is in trouble it is not looked through for each service that is read: all of it is told soon, the first by name.
func TestMuchTroubleIsToldAtAPace(t *testing.T) {
	t.Parallel()
	const n, all, odd = 1600, "0123456789", "13579"
	reset := func(*http.Request) (*http.Response, error) { return nil, errors.New("connection reset by peer") }
	for name, tc := range map[string]struct {
		first, then string // what is hidden
		more        int
	}{
		"all from the start":  {all, all, n - maxListed},
		"half from the start": {odd, odd, n/2 - maxListed},
		"all later":           {"-", all, n - maxListed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				crowd(f, n)
				f.mangle = hidden(tc.first)
				w := start(t, scripted(), f)
				time.Sleep(10 * time.Second)
				w.script(hidden(tc.then))
				w.do(func() { w.lists++; w.index++ })
				time.Sleep(time.Minute)
				synctest.Wait()
				if most := int(70*time.Second/scan) + 50; w.count("") < n || w.statuses > most {
					t.Errorf("%d statuses, want at most %d", w.statuses, most)
				}
				p := w.status.Problems
				if len(p) != maxListed+1 || !strings.HasSuffix(p[0].Item, "s000"+tc.then[:1]) || p[maxListed].More != tc.more {
					t.Errorf("%d problems: %.500s", len(p), w.problems())
				}
				w.script(reset)
				w.do(func() { w.lists++; w.index++ })
				if synctest.Wait(); !strings.HasSuffix(w.state(), "connection reset by peer") {
					t.Errorf("that there is no contact waits: %s", w.state())
				}
				w.script(nil)
				w.do(func() { w.lists++; w.index++ })
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if w.state() != "live" || w.problems() != "" || strings.Count(w.content(), "healthy") != n {
					t.Errorf("%s, problems %.500q", w.state(), w.problems())
				}
				w.end()
			})
		})
	}
}

// What is of all services comes before what is of one, and is never left out.
func TestWhatIsOfAllComesFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		crowd(f, 600)
		f.mangle = in("dc1", hidden("13579"))
		o := scripted(func(s *api.RegistrySpec) {
			s.Consul = &api.ConsulSpec{Datacenters: []string{"dc1", "zone"}}
			s.Limits.MaxServices = 1190
		})
		w := start(t, o, f)
		time.Sleep(time.Minute)
		w.script(in("zone", refuse("/", 500, "No path to datacenter")))
		w.do(func() { w.lists++; w.index++ })
		synctest.Wait()
		var items []string
		for _, p := range w.status.Problems {
			if p.Broad {
				items = append(items, p.Item)
			}
		}
		if got := fmt.Sprint(items); got != "[limits.maxServices zone]" || len(w.status.Problems) != maxListed+1 || w.status.Problems[1].Item != "zone" {
			t.Errorf("of all: %s; all: %.300s", got, w.problems())
		}
		w.end()
	})
}
