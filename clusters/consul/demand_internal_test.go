package consul

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
)

func TestDiffOfTables(t *testing.T) {
	t.Parallel()
	key := func(c check) checkKey { return checkKey{c.Node, c.CheckID} }
	table := func(rows ...check) map[checkKey]check {
		out := map[checkKey]check{}
		for _, c := range rows {
			out[key(c)] = c
		}
		return out
	}
	web := check{Node: "n1", CheckID: "web", Status: "passing", ServiceName: "web"}
	failing, other, serf := web, web, check{Node: "n2", CheckID: "serf", Status: "passing"}
	failing.Status, other.ServiceName = "critical", "db"
	for name, tc := range map[string]struct {
		last, now map[checkKey]check
		want      string // services / nodes; "all" for the first table
	}{
		"first":           {nil, table(web), "all"},
		"same":            {table(web, serf), table(serf, web), "[] []"},
		"status":          {table(web, serf), table(failing, serf), "[web] []"},
		"another service": {table(web), table(other), "[db web] []"},
		"came":            {table(serf), table(web, serf), "[web] []"},
		"went":            {table(web, serf), table(web), "[] [n2]"},
		"all went":        {table(web, serf), table(), "[web] [n2]"},
	} {
		c := diff(tc.last, tc.now, noteCheck)
		got := fmt.Sprint(slices.Sorted(maps.Keys(c.services)), " ", slices.Sorted(maps.Keys(c.nodes)))
		if c.services == nil {
			got = "all"
		}
		if got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// onDemand are options of a registry that watches nothing.
func onDemand(more ...func(*api.RegistrySpec)) Options {
	return scripted(append(more, func(s *api.RegistrySpec) { s.Limits.Concurrency = 1 })...)
}

// What no check shows is found within the refresh interval, by reading each service once.
func TestRegistrationThatNoCheckShows(t *testing.T) {
	pair(t, onDemand(), func(w *world) {
		time.Sleep(time.Minute)
		for i := range 5 {
			asked := w.count("/v1/health/service/")
			w.register("a", at("10.0.0.1", func(e *entry) { e.Service.Port = 81 + i }))
			w.after(32*time.Second, fmt.Sprintf("a.dc1.consul [%d/http]: 10.0.0.1:%d healthy 1", 81+i, 81+i), two)
			if n := w.count("/v1/health/service/") - asked; n > 3 { // the other one may be of the sweep before
				w.t.Errorf("%d requests", n)
			}
		}
		time.Sleep(time.Minute)
		asked := w.count("/v1/health/service/")
		time.Sleep(time.Hour)
		if n := w.count("/v1/health/service/") - asked; n != 0 {
			w.t.Errorf("%d requests while nothing changes", n)
		}
	})
}

// A node that changes has its services read.
func TestNodeThatChanges(t *testing.T) {
	pair(t, onDemand(), func(w *world) {
		w.do(func() {
			w.index++
			e := at("10.0.0.1", func(e *entry) { e.Node.Meta = map[string]string{"zone": "z"}; e.Node.Address = "10.0.0.9" })
			w.fake.services["a"], w.indexes["a"], w.nodes, w.nodeIndex = []entry{e}, w.index, w.index, map[string]uint64{"n-10.0.0.1": w.index}
		})
		w.want("a.dc1.consul [80/http]: 10.0.0.9:80 healthy 1", two)
	})
}

// Where the tables may not be read everything is read once in each interval, and no more.
func TestTablesThatMayNotBeRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		for i := range 50 {
			f.set(fmt.Sprintf("s%02d", i), at("10.0.0.1"))
		}
		f.mangle = func(r *http.Request) (*http.Response, error) {
			if slices.Contains(tablePaths[:], r.URL.Path) {
				return respond(403, "Permission denied", 0, nil), nil
			}
			return nil, nil
		}
		w := start(t, onDemand(), f)
		time.Sleep(2 * time.Minute)
		asked := w.count("/v1/health/service/")
		time.Sleep(10 * time.Minute)
		if n := w.count("/v1/health/service/") - asked; n < 950 || n > 1050 {
			t.Errorf("%d requests in ten minutes, want 50 twice a minute", n)
		}
		w.setHealth("s07", at("10.0.0.1", checked("critical")))
		time.Sleep(61 * time.Second)
		synctest.Wait()
		if !strings.Contains(w.content(), "s07.dc1.consul [80/http]: 10.0.0.1:80 unhealthy 1") || w.state() != "live" {
			t.Errorf("%s, known:\n%s", w.state(), w.content())
		}
		w.end()
	})
}
