package nacos

import (
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/foreign"
	"github.com/isthmus-mesh/isthmus/clusters/holdback"
)

// The last instance leaves, and the mesh knows.
func TestIncident33LastInstanceLeaves(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.set(public("orders"), []instance{host("10.0.0.1:80")})
	out := start(t, Options{Spec: f.spec()})
	out.awaitServices("DEFAULT_GROUP@@orders: 10.0.0.1:80 healthy")
	f.set(public("orders"), []instance{})
	out.awaitServices("DEFAULT_GROUP@@orders")
	f.set(public("orders"), nil)
	out.awaitServices()
}

// A server that restarts says of every service that it is empty: that is held. One service that empties alone is really empty.
func TestIncident35RestartWithEmptyLists(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	for _, name := range []string{"a", "b", "c"} {
		f.set(public(name), []instance{host("10.0.0.1:80"), host("10.0.0.2:80")})
	}
	r, err := quickly(Options{Spec: f.spec()})
	if err != nil {
		t.Fatal(err)
	}
	out := run(t, holdback.Wrap(r, holdback.Options{Policy: *f.spec().Empty}))
	const all = ": 10.0.0.1:80 healthy, 10.0.0.2:80 healthy"
	out.awaitServices("DEFAULT_GROUP@@a"+all, "DEFAULT_GROUP@@b"+all, "DEFAULT_GROUP@@c"+all)
	f.down()
	out.awaitState(model.StateStale)
	f.clear()
	f.up()
	out.awaitState(model.StateLive)
	f.await("it asks whether they are gone", func() bool { return f.calls[classSubscribe] >= 6 })
	f.set(public("d"), []instance{host("10.0.0.3:80")}) // what comes is served meanwhile
	out.awaitServices("DEFAULT_GROUP@@a"+all, "DEFAULT_GROUP@@b"+all, "DEFAULT_GROUP@@c"+all, "DEFAULT_GROUP@@d: 10.0.0.3:80 healthy")
}

// After a server's restart changes arrive, whatever the server says of subscriptions: a read finds those that are not notified.
func TestIncident36SubscriptionsAreVerified(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.set(public("orders"), []instance{host("10.0.0.1:80")})
	reg := prometheus.NewRegistry()
	out := start(t, Options{Spec: f.spec(), Metrics: foreign.NewMetrics(reg)}, func(q *timing) { q.settle, q.reconcile = 5*time.Millisecond, 5*time.Millisecond })
	out.awaitServices("DEFAULT_GROUP@@orders: 10.0.0.1:80 healthy")
	f.change(func(x *faults) { x.silent = true })
	f.down()
	out.awaitState(model.StateStale)
	f.up()
	out.awaitState(model.StateLive)
	f.set(public("orders"), []instance{host("10.0.0.2:80")})
	out.awaitServices("DEFAULT_GROUP@@orders: 10.0.0.2:80 healthy")
	f.await("it subscribes anew", func() bool { return f.calls[classSubscribe] >= 3 })
	if n := series(t, reg, "isthmus_registry_repaired_services_total"); n != 1 {
		t.Errorf("%d series of repairs", n)
	}
	f.change(func(x *faults) { x.silent = false })
	f.set(public("orders"), []instance{host("10.0.0.3:80")})
	out.awaitServices("DEFAULT_GROUP@@orders: 10.0.0.3:80 healthy")
}

// A subscription that failed is tried again.
func TestIncident36FailedSubscriptionIsRetried(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.set(public("orders"), []instance{host("10.0.0.1:80")})
	f.set(public("stock"), []instance{host("10.0.0.2:80")})
	f.faults.answer = func(class string, n request) int {
		if class == classSubscribe && n.Service == "orders" {
			return 500
		}
		return 0
	}
	out := start(t, Options{Spec: f.spec()})
	out.awaitServices("DEFAULT_GROUP@@stock: 10.0.0.2:80 healthy")
	out.awaitProblem("DEFAULT_GROUP@@orders", "can't be read")
	f.change(func(x *faults) { x.answer = nil })
	out.awaitServices("DEFAULT_GROUP@@stock: 10.0.0.2:80 healthy", "DEFAULT_GROUP@@orders: 10.0.0.1:80 healthy")
	out.await("no problem", func() bool { return len(out.status.Problems) == 0 })
}

// Nothing is kept on disk, so nothing old is served from there. This test is alone in changing the working directory.
func TestIncident38NothingOnDisk(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("HOME", t.TempDir())
	f := newFake(t)
	f.set(public("orders"), []instance{host("10.0.0.1:80")})
	out := start(t, Options{Spec: f.spec()})
	out.awaitServices("DEFAULT_GROUP@@orders: 10.0.0.1:80 healthy")
	for _, dir := range []string{".", os.Getenv("HOME")} {
		if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
			t.Errorf("files in %s: %v (%v)", dir, files, err)
		}
	}
}

// Healthy and unhealthy instances are both known, as what they are.
func TestIncident39AllInstances(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.set(public("orders"), []instance{host("10.0.0.1:80"), host("10.0.0.2:80", func(h *instance) { h.Healthy = false })})
	out := start(t, Options{Spec: f.spec()})
	out.awaitServices("DEFAULT_GROUP@@orders: 10.0.0.1:80 healthy, 10.0.0.2:80 unhealthy")
}

// Weights are shares of traffic, also in fractions; 0 and disabled are no traffic.
func TestIncident40Weights(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	weigh := func(w float64) func(*instance) { return func(h *instance) { h.Weight = w } }
	f.set(public("whole"), []instance{host("10.0.0.1:80", weigh(1)), host("10.0.0.2:80", weigh(5)), host("10.0.0.3:80", weigh(0))})
	f.set(public("fraction"), []instance{host("10.0.0.1:80", weigh(0.5)), host("10.0.0.2:80", weigh(1)), host("10.0.0.3:80", weigh(0.001))})
	f.set(public("disabled"), []instance{host("10.0.0.1:80"), host("10.0.0.2:80", func(h *instance) { h.Enabled = false })})
	out := start(t, Options{Spec: f.spec()})
	out.awaitServices(
		"DEFAULT_GROUP@@whole: 10.0.0.1:80 healthy, 10.0.0.2:80 healthy ×5",
		"DEFAULT_GROUP@@fraction: 10.0.0.1:80 healthy ×0.5, 10.0.0.2:80 healthy, 10.0.0.3:80 healthy ×0.01",
		"DEFAULT_GROUP@@disabled: 10.0.0.1:80 healthy",
	)
}

// A service that is registered just after a list is found by the next one, or told of, and the delay is known.
func TestIncident41NewService(t *testing.T) {
	t.Parallel()
	for name, fuzzy := range map[string]bool{"lists": false, "fuzzy watch": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.faults.fuzzy = fuzzy
			spec := f.spec()
			if fuzzy {
				spec.Nacos.DiscoveryInterval.Duration = time.Hour
			}
			reg := prometheus.NewRegistry()
			out := start(t, Options{Spec: spec, Metrics: foreign.NewMetrics(reg)})
			out.awaitServices()
			if fuzzy {
				f.await("names are watched", func() bool { return f.calls[classFuzzyWatch] == 1 })
			}
			out.awaitState(model.StateLive)
			f.set(public("orders"), []instance{host("10.0.0.1:80")})
			out.awaitServices("DEFAULT_GROUP@@orders: 10.0.0.1:80 healthy")
			if n := series(t, reg, "isthmus_registry_discovery_delay_seconds"); n != 1 {
				t.Errorf("%d series of the delay", n)
			}
		})
	}
}

// A typing error in an address is found before anything is asked.
func TestIncident43BadAddress(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"127.0.0,1", "127.0.0,1:8848", "a b", "", "nacos:0", "nacos:99999", "127.0.1:8848", "ftp://nacos", "-a.b", "nacos:65000", "http://"} {
		spec := api.RegistrySpec{Provider: api.Nacos, Addresses: []string{"10.0.0.1", address}}.Effective("ns")
		if r, err := New(Options{Name: "x", Spec: spec}); err == nil {
			t.Errorf("address %q gives %v", address, r.servers)
		}
	}
}

// Another group is another registry, which reads that group and no other.
func TestIncident44ScopeChanges(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.set(serviceName{publicNamespace, "B", "orders"}, []instance{host("10.0.0.1:80")})
	group := func(g string) func(*api.RegistrySpec) {
		return func(s *api.RegistrySpec) { s.Nacos.Groups = []string{g} }
	}
	empty := start(t, Options{Spec: f.spec(group("A"))})
	empty.awaitServices()
	filled := start(t, Options{Spec: f.spec(group("B"))})
	filled.awaitServices("B@@orders: 10.0.0.1:80 healthy")
	empty.awaitServices()
}

// A registry ends in whatever state it is, without harm.
func TestIncident45EndsInEveryState(t *testing.T) {
	t.Parallel()
	for _, class := range []string{classServerCheck, classHealthCheck, classList, classSubscribe, classFuzzyWatch, "login"} {
		t.Run(class, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.set(public("orders"), []instance{host("10.0.0.1:80")})
			never := make(chan struct{})
			f.faults.fuzzy = true
			o := Options{Spec: f.spec()}
			if class == "login" {
				f.faults.password, f.faults.hangLogin = "p", true
				o.Access = reader("p")
			}
			f.faults.block = func(c string, _ request) <-chan struct{} {
				if c == class {
					return never
				}
				return nil
			}
			r, err := quickly(o)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // one after the other
				stop := begin(r, newSink(t))
				f.await("it is asked", func() bool { return f.calls[class] > 0 })
				stop()
				f.mu.Lock()
				f.calls[class] = 0
				f.mu.Unlock()
			}
		})
	}
}
