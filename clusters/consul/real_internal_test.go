package consul

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/foreign"
	"github.com/isthmus-mesh/isthmus/test/env"
)

// patience is how long a real server and the registry may take.
const patience = 2 * time.Minute

// await waits until ok holds for what the sink has been told.
func (s *sink) await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		s.mu.Lock()
		next := s.changed
		s.mu.Unlock()
		if ok() {
			return
		}
		select {
		case <-next:
		case <-late.C:
			t.Fatalf("%s: not within %v; %s, problems %q, known:\n%.3000s", what, patience, s.state(), s.problems(), s.content())
		}
	}
}

func (s *sink) awaitContent(t testing.TB, want string) {
	t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		s.mu.Lock()
		next := s.changed
		s.mu.Unlock()
		got := s.content()
		if got == want {
			return
		}
		select {
		case <-next:
		case <-late.C:
			t.Fatalf("not within %v; %s, problems %q, known:\n%.3000s\nwant:\n%.3000s", patience, s.state(), s.problems(), got, want)
		}
	}
}

func (s *sink) awaitState(t testing.TB, want string) {
	t.Helper()
	s.await(t, "state "+want, func() bool { return strings.HasPrefix(s.state(), want) })
}

// follow runs a registry of a real server for the length of a test.
func follow(t testing.TB, o Options) *sink {
	t.Helper()
	o.Name = "legacy"
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	s := newSink()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx, s) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
	return s
}

func at8500(url string, more ...func(*api.RegistrySpec)) Options {
	return scripted(append([]func(*api.RegistrySpec){func(s *api.RegistrySpec) { s.Addresses = []string{url} }}, more...)...)
}

// registered is an instance as the test has registered it.
type registered struct {
	node, id, address string
	port              int
	passing, warning  int
	status            string
}

func (r registered) register(t testing.TB, c *env.Consul, service string) {
	t.Helper()
	c.Put(t, "/v1/catalog/register", map[string]any{
		"Node": r.node, "Address": "192.0.2.1", "Service": map[string]any{
			"ID": r.id, "Service": service, "Address": r.address, "Port": r.port, "Weights": map[string]int{"Passing": r.passing, "Warning": r.warning},
		},
		"Checks": []any{map[string]any{"Node": r.node, "CheckID": "c-" + r.id, "Status": r.status, "ServiceID": r.id}},
	}, nil)
}

func (r registered) check(t testing.TB, c *env.Consul) {
	t.Helper()
	c.Put(t, "/v1/catalog/register", map[string]any{
		"Node": r.node, "Address": "192.0.2.1", "SkipNodeUpdate": true,
		"Check": map[string]any{"Node": r.node, "CheckID": "c-" + r.id, "Status": r.status, "ServiceID": r.id},
	}, nil)
}

// text is what is to be known of it.
func (r registered) text() string {
	health, weight := "healthy", r.passing
	switch r.status {
	case "critical":
		health = "unhealthy"
	case "warning":
		weight = r.warning
	}
	if weight == 0 {
		return fmt.Sprintf("-%s:%d ZeroWeight", r.address, r.port)
	}
	return fmt.Sprintf("%s:%d %s %d", r.address, r.port, health, weight)
}

// catalog is what a test has registered, by service and id.
type catalog map[string]map[string]registered

func (c catalog) text() string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if len(c[name]) == 0 {
			continue
		}
		var all []string
		for _, r := range c[name] {
			all = append(all, r.text())
		}
		slices.Sort(all)
		lines = append(lines, fmt.Sprintf("%s.dc1.consul [8080/http]: %s", name, strings.Join(all, "; ")))
	}
	return strings.Join(lines, "\n")
}

// churn changes something at random.
func (c catalog) churn(t testing.TB, server *env.Consul, rng *rand.Rand) {
	name, id := fmt.Sprintf("s%02d", rng.IntN(12)), fmt.Sprintf("i%d", rng.IntN(4))
	full := name + "-" + id
	if c[name] == nil {
		c[name] = map[string]registered{}
	}
	r, has := c[name][full]
	status := []string{"passing", "passing", "warning", "critical"}[rng.IntN(4)]
	switch n := rng.IntN(10); {
	case has && n < 2:
		server.Put(t, "/v1/catalog/deregister", map[string]any{"Node": r.node, "ServiceID": r.id}, nil)
		delete(c[name], full)
	case has && n < 6:
		r.status = status
		r.check(t, server)
		c[name][full] = r
	default:
		r = registered{node: "n" + id, id: full, address: fmt.Sprintf("10.0.%d.%d", rng.IntN(4), rng.IntN(250)+1), port: 8080, passing: rng.IntN(5) + 1, warning: rng.IntN(3), status: status}
		for _, other := range c[name] {
			if other.address == r.address {
				return
			}
		}
		r.register(t, server, name)
		c[name][full] = r
	}
}

// Whatever is registered, changed and deregistered, and however services are read, what is known in the end is what there is.
func TestRealChurn(t *testing.T) {
	t.Parallel()
	server := env.StartConsul(t, env.ConsulOptions{})
	quick := func(s *api.RegistrySpec) { s.Consul = &api.ConsulSpec{RefreshInterval: ptr(2 * time.Second)} }
	sinks := map[string]*sink{
		"watched":  follow(t, at8500(server.URL, quick)),
		"some":     follow(t, at8500(server.URL, quick, func(s *api.RegistrySpec) { s.Limits.Concurrency = 10 })),
		"none":     follow(t, at8500(server.URL, quick, func(s *api.RegistrySpec) { s.Limits.Concurrency = 1 })),
		"stale":    follow(t, at8500(server.URL, quick, func(s *api.RegistrySpec) { s.Consul.Consistency = "stale" })),
		"strictly": follow(t, at8500(server.URL, quick, func(s *api.RegistrySpec) { s.Consul.Consistency = "consistent" })),
	}
	rng := rand.New(rand.NewPCG(6, 31))
	known := catalog{}
	for range 6 {
		for range 60 {
			known.churn(t, server, rng)
		}
		for name, s := range sinks {
			t.Log(name)
			s.awaitContent(t, known.text())
		}
	}
	for name, s := range sinks {
		if s.replaces != 1 || s.state() != "live" || s.problems() != "" {
			t.Errorf("%s: %d full truths, %s, %s", name, s.replaces, s.state(), s.problems())
		}
	}
}

func ptr(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

// A server that is killed takes nothing with it; what changes when it is back is known.
func TestRealRestart(t *testing.T) {
	t.Parallel()
	server := env.StartConsul(t, env.ConsulOptions{})
	known := catalog{}
	for i := range 20 {
		r := registered{node: "n1", id: fmt.Sprint("i", i), address: fmt.Sprint("10.0.0.", i+1), port: 8080, passing: 1, warning: 1, status: "passing"}
		r.register(t, server, fmt.Sprint("s", i%5))
		if known[fmt.Sprint("s", i%5)] == nil {
			known[fmt.Sprint("s", i%5)] = map[string]registered{}
		}
		known[fmt.Sprint("s", i%5)][r.id] = r
	}
	sinks := []*sink{follow(t, at8500(server.URL)), follow(t, at8500(server.URL, func(s *api.RegistrySpec) { s.Limits.Concurrency = 1 }))}
	for _, s := range sinks {
		s.awaitContent(t, known.text())
	}
	for range 2 {
		server.Kill()
		for _, s := range sinks {
			s.awaitState(t, "stale: ")
			if got := s.content(); got != known.text() {
				t.Errorf("while it is down:\n%s", got)
			}
		}
		if err := server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		r := known["s1"]["i1"]
		r.passing++
		r.register(t, server, "s1")
		known["s1"]["i1"] = r
		for _, s := range sinks {
			s.awaitContent(t, known.text())
			s.awaitState(t, "live")
		}
	}
	server.Kill()
	server.Forget(t)
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range sinks {
		s.awaitContent(t, "") // what is done about that is the policy's affair
		s.awaitState(t, "live")
	}
}

// Rights that are taken away, in part or with the token, take nothing else away.
func TestRealRights(t *testing.T) {
	t.Parallel()
	const root = "2b778dd9-f5f1-6f29-b4b4-9a5fa948757a"
	server := env.StartConsul(t, env.ConsulOptions{Token: root})
	known := catalog{"shop-a": {}, "shop-b": {}, "other": {}}
	for name := range known {
		r := registered{node: "n1", id: name, address: "10.0.0.1", port: 8080, passing: 1, warning: 1, status: "passing"}
		r.register(t, server, name)
		known[name][name] = r
	}
	const everything = `node_prefix "" {policy="read"} service_prefix "" {policy="read"}`
	rule := func(rules string) {
		server.Put(t, "/v1/acl/policy", map[string]any{"Name": "reader", "Rules": rules}, nil)
	}
	rule(everything)
	var token struct{ SecretID, AccessorID string }
	server.Put(t, "/v1/acl/token", map[string]any{"Policies": []any{map[string]string{"Name": "reader"}}}, &token)
	var policy struct{ ID string }
	if err := server.Get(t.Context(), "/v1/acl/policy/name/reader", &policy); err != nil {
		t.Fatal(err)
	}
	change := func(rules string) {
		server.Put(t, "/v1/acl/policy/"+policy.ID, map[string]any{"Name": "reader", "Rules": rules}, nil)
	}
	quick := func(s *api.RegistrySpec) { s.Consul = &api.ConsulSpec{RefreshInterval: ptr(2 * time.Second)} }
	o := at8500(server.URL, quick)
	o.Access = foreign.Access{Token: token.SecretID}
	s := follow(t, o)
	s.awaitContent(t, known.text())
	s.awaitState(t, "live")

	none := at8500(server.URL, quick)
	none.Access.Token = ""
	nobody := follow(t, none)
	nobody.awaitState(t, "syncing: the token may see nothing")

	change(`node_prefix "" {policy="read"} service_prefix "shop" {policy="read"}`)
	s.awaitState(t, "stale: the token may not see 1 services")
	delete(known, "shop-a")
	server.Put(t, "/v1/catalog/deregister", map[string]any{"Node": "n1", "ServiceID": "shop-a"}, nil)
	s.awaitContent(t, known.text()) // what may be seen to be gone is gone

	change(everything)
	r := known["other"]["other"]
	r.passing = 7
	r.register(t, server, "other")
	known["other"]["other"] = r
	s.awaitContent(t, known.text())
	s.awaitState(t, "live")

	if err := server.Do(t.Context(), http.MethodDelete, "/v1/acl/token/"+token.AccessorID, nil, nil); err != nil {
		t.Fatal(err)
	}
	s.awaitState(t, "stale: ")
	if got := s.content(); got != known.text() || strings.Contains(s.state(), token.SecretID) {
		t.Errorf("%s, known:\n%s", s.state(), got)
	}
	if nobody.told() != 0 {
		t.Error("who may see nothing tells of an empty registry")
	}
}

// Incident 31: 300 services of a real server that do not change.
func TestIncident31RealServerIdle(t *testing.T) {
	t.Parallel()
	// What the first registry has left waiting counts for a minute.
	server := env.StartConsul(t, env.ConsulOptions{Config: map[string]any{"limits": map[string]any{"http_max_conns_per_client": 300}}})
	known := catalog{}
	var work sync.WaitGroup
	for i := range 300 {
		name := fmt.Sprintf("s%03d", i)
		r := registered{node: fmt.Sprint("n", i%10), id: name, address: fmt.Sprintf("10.0.%d.%d", i/100, i%100), port: 8080, passing: 1, warning: 1, status: "passing"}
		known[name] = map[string]registered{name: r}
		if i == 0 {
			r.register(t, server, name)
			continue
		}
		work.Go(func() { r.register(t, server, name) })
		if i%20 == 0 {
			work.Wait()
		}
	}
	work.Wait()
	for _, most := range []int32{64, 190} {
		t.Run(fmt.Sprint(most, " at once"), func(t *testing.T) { idle(t, server, most, known) })
	}
}

func idle(t *testing.T, server *env.Consul, most int32, known catalog) {
	front := env.NewFront(t, server.URL)
	s := follow(t, at8500(front.URL, func(s *api.RegistrySpec) { s.Limits.Concurrency = most }))
	s.awaitContent(t, known.text())
	s.awaitState(t, "live")
	told, first := s.told(), len(front.Asked())
	// While another service changes, nobody asks for these, but once for all if one is not watched: a registration has changed.
	for i := range 10 {
		r := registered{node: "n-busy", id: "busy", address: fmt.Sprint("10.9.0.", i+1), port: 8080, passing: 1, warning: 1, status: []string{"passing", "critical"}[i%2]}
		r.register(t, server, "zz-busy")
		s.await(t, "the change", func() bool { return strings.Contains(s.content(), r.address) })
	}
	perService := map[string]int{}
	for _, u := range front.Asked()[first:] {
		perService[u.Path]++
	}
	for path, n := range perService {
		if strings.HasPrefix(path, "/v1/health/service/s") && n > 4 {
			t.Errorf("%s was asked for %d times", path, n)
		}
	}
	if n := front.Most(); n > int(most) {
		t.Errorf("%d requests at once", n)
	}
	if s.told()-told > 3*11 {
		t.Errorf("rows told %d times", s.told()-told)
	}
	server.Put(t, "/v1/catalog/deregister", map[string]any{"Node": "n-busy", "ServiceID": "busy"}, nil)
	s.awaitContent(t, known.text())
}
