package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
)

// consulServer answers as a Consul agent does, as far as a registry is read.
type consulServer struct {
	*httptest.Server
	mu       sync.Mutex
	index    uint64              // guarded by mu, as is the rest
	changed  chan struct{}       // closed, and renewed, by changes
	services map[string][]string // addresses by service
	wan      map[string]string   // tagged addresses of them
	token    string              // that must be shown
	shown    map[string]bool     // tokens
	slow     chan struct{}       // answers wait until it is closed; nil: they do not
}

func newConsul(t *testing.T, services map[string][]string) *consulServer {
	t.Helper()
	c := &consulServer{index: 7, changed: make(chan struct{}), services: services, shown: map[string]bool{}}
	c.Server = httptest.NewServer(c)
	t.Cleanup(func() {
		c.CloseClientConnections()
		c.Close()
	})
	return c
}

func (c *consulServer) address() string { return strings.TrimPrefix(c.URL, "http://") }

// set makes a change.
func (c *consulServer) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	c.index++
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *consulServer) hasShown(token string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shown[token]
}

// ServeHTTP implements http.Handler.
func (c *consulServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	index, _ := strconv.ParseUint(r.URL.Query().Get("index"), 10, 64)
	for {
		c.mu.Lock()
		slow, changed, now := c.slow, c.changed, c.index
		c.shown[r.Header.Get("X-Consul-Token")] = true
		denied := c.token != "" && r.Header.Get("X-Consul-Token") != c.token
		body := c.body(r.URL.Path)
		c.mu.Unlock()
		wait := changed
		switch {
		case slow != nil:
			wait = slow
		case denied:
			http.Error(w, "ACL not found", http.StatusForbidden)
			return
		case index < now || body == nil:
			w.Header().Set("X-Consul-Index", strconv.FormatUint(now, 10))
			w.Header().Set("X-Consul-KnownLeader", "true")
			w.Header().Set("X-Consul-LastContact", "0")
			_ = json.NewEncoder(w).Encode(body) // an error means that the caller has gone
			return
		}
		select {
		case <-wait:
		case <-r.Context().Done():
			return
		}
	}
}

// body is called with mu held.
func (c *consulServer) body(path string) any {
	if name, ok := strings.CutPrefix(path, "/v1/health/service/"); ok {
		list := []any{}
		for i, a := range c.services[name] {
			list = append(list, map[string]any{
				"Node":    map[string]any{"Node": fmt.Sprint("n", i), "Address": a, "Datacenter": "dc1", "TaggedAddresses": map[string]string{"wan": c.wan[a]}},
				"Service": map[string]any{"ID": fmt.Sprint(name, i), "Service": name, "Address": a, "Port": 8080, "Weights": map[string]int{"Passing": 1, "Warning": 1}},
				"Checks":  []any{map[string]any{"CheckID": "c", "Status": "passing"}},
			})
		}
		return list
	}
	switch path {
	case "/v1/catalog/services":
		out := map[string][]string{"consul": {}}
		for name := range c.services {
			out[name] = []string{}
		}
		return out
	case "/v1/catalog/datacenters":
		return []string{"dc1"}
	case "/v1/agent/self":
		return map[string]any{"Config": map[string]any{"Datacenter": "dc1"}}
	}
	return []any{}
}

// addressesOf are those of the endpoints of a host.
func addressesOf(t *testing.T, r *running, host string) (out []string) {
	t.Helper()
	for _, x := range ask[[]debug.Explanation](t, r, "service explain "+host) {
		for _, e := range x.Endpoints {
			if e.Reason == "" {
				out = append(out, e.Address)
			}
		}
	}
	slices.Sort(out)
	return out
}

func (r *running) untilAddresses(t *testing.T, host string, want ...string) {
	t.Helper()
	r.log.until(t, fmt.Sprint(host, " at ", want), func() bool { return slices.Equal(addressesOf(t, r, host), want) })
}

// secretDir is a folder of Secrets, and what writes a token into one of them.
func secretDir(t *testing.T) (dir string, set func(name, token string)) {
	t.Helper()
	dir = t.TempDir()
	return dir, func(name, token string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "token"), []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestIncident43RegistriesAreIndependent: of five registries one refuses the password, one refuses connections, one never answers and one is
// declared with a mistake; the fifth is read, changes and goes as if they were not there.
func TestIncident43RegistriesAreIndependent(t *testing.T) {
	t.Parallel()
	good, denying, hanging := newConsul(t, map[string][]string{"web": {"10.7.0.1"}}), newConsul(t, nil), newConsul(t, nil)
	denying.set(func() { denying.token = "another" })
	hanging.set(func() { hanging.slow = make(chan struct{}) })
	secrets, set := secretDir(t)
	set("denied", "hush")
	r := startHub(t, map[string]string{
		"east/services.yaml": serviceYAML("east", "10.1.0.1"), "east/good.yaml": registryYAML("good", good.address(), ""),
		"east/denied.yaml": registryYAML("denied", denying.address(), ", credentials: {secretName: denied}"), "east/closed.yaml": registryYAML("closed", closedPort(t), ""),
		"east/hanging.yaml": registryYAML("hanging", hanging.address(), ""), "east/wrong.yaml": registryYAML("wrong", "127.0.0,1:8500", ""),
	}, "--cluster-id", "east", "--sync-timeout", "2s", "--registry-secrets-dir", secrets)
	r.untilReady(t)
	r.untilAddresses(t, "web.dc1.consul", "10.7.0.1:8080")
	good.set(func() { good.services["web"] = []string{"10.7.0.1", "10.7.0.2"} })
	r.untilAddresses(t, "web.dc1.consul", "10.7.0.1:8080", "10.7.0.2:8080")
	for name, why := range map[string]string{"denied": "403", "closed": "refused", "hanging": ""} {
		r.log.until(t, name+" is told", func() bool {
			x := registryOf(t, r, name)
			return (x.State == "timeout" || x.State == "syncing") && strings.Contains(x.Reason, why)
		})
	}
	r.log.until(t, "good is well", func() bool { return registryOf(t, r, "good").State == "live" })
	if x := registryOf(t, r, "good"); x.Services != 1 || x.Endpoints != 2 {
		t.Errorf("%+v", x)
	}
	if strings.Contains(r.log.String(), "hush") {
		t.Error("a credential is told")
	}
	denying.set(func() { denying.services = map[string][]string{"late": {"10.8.0.1"}} })
	set("denied", "another") // mended
	r.untilAddresses(t, "late.dc1.consul", "10.8.0.1:8080")
	if err := os.Remove(filepath.Join(r.dir, "east/good.yaml")); err != nil {
		t.Fatal(err)
	}
	r.log.until(t, "the end of good", func() bool { return len(addressesOf(t, r, "web.dc1.consul")) == 0 })
}

// TestRegistryRotates: another token, and another server, take over without a moment in which there is nothing; what can't work does not.
func TestRegistryRotates(t *testing.T) {
	t.Parallel()
	first, second := newConsul(t, map[string][]string{"web": {"10.7.0.1"}}), newConsul(t, map[string][]string{"web": {"10.7.0.1", "10.7.0.9"}})
	secrets, set := secretDir(t)
	set("s", "one")
	r := startHub(t, map[string]string{"east/services.yaml": serviceYAML("east", "10.1.0.1"), "east/a.yaml": registryYAML("a", first.address(), ", credentials: {secretName: s}")},
		"--cluster-id", "east", "--registry-secrets-dir", secrets)
	r.untilAddresses(t, "web.dc1.consul", "10.7.0.1:8080")
	set("s", "two")
	r.log.until(t, "the second token", func() bool { return first.hasShown("two") })
	r.write(t, "east/a.yaml", registryYAML("a", closedPort(t), ", credentials: {secretName: s}"))
	r.log.until(t, "a degraded registry", func() bool {
		x := registryOf(t, r, "a")
		return x.State == "degraded" && strings.Contains(x.Replacement, "refused")
	})
	first.set(func() { first.services["web"] = []string{"10.7.0.2"} }) // which is read on
	r.untilAddresses(t, "web.dc1.consul", "10.7.0.2:8080")
	r.write(t, "east/a.yaml", registryYAML("a", second.address(), ", credentials: {secretName: s}"))
	r.untilAddresses(t, "web.dc1.consul", "10.7.0.1:8080", "10.7.0.9:8080")
	r.log.until(t, "a registry that is well", func() bool { return registryOf(t, r, "a").State == "live" })
}

// TestRegistryOutlivesTheHub: what a registry said last is served after a restart of the hub while the registry is away, or its Secret is, and
// only until it is declared no more.
func TestRegistryOutlivesTheHub(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]bool{"the registry is away": true, "its Secret is away": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testOutlives(t, away)
		})
	}
}

func testOutlives(t *testing.T, away bool) {
	c, state := newConsul(t, map[string][]string{"web": {"10.7.0.1"}}), t.TempDir()
	secrets, set := secretDir(t)
	set("s", "one")
	files := map[string]string{"east/services.yaml": serviceYAML("east", "10.1.0.1"), "east/a.yaml": registryYAML("a", c.address(), ", credentials: {secretName: s}")}
	flags := []string{"--cluster-id", "east", "--state-dir", state, "--sync-timeout", "4s", "--registry-secrets-dir", secrets}
	r := startHub(t, files, flags...)
	r.untilAddresses(t, "web.dc1.consul", "10.7.0.1:8080")
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(state, "registries", "consul@earlier.rows") // of one that is not declared any more
	if err := os.WriteFile(old, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if away {
		c.CloseClientConnections()
		c.Close()
	} else if err := os.RemoveAll(filepath.Join(secrets, "s")); err != nil {
		t.Fatal(err)
	}
	r = startHub(t, files, flags...)
	r.untilReady(t)
	r.untilAddresses(t, "web.dc1.consul", "10.7.0.1:8080")
	r.log.until(t, "a stale registry", func() bool { return registryOf(t, r, "a").State == "stale" })
	r.log.until(t, "the end of an old file", func() bool {
		_, err := os.Stat(old)
		return errors.Is(err, fs.ErrNotExist)
	})
	if !away { // it comes back
		set("s", "two")
		r.log.until(t, "a registry that is well", func() bool { return registryOf(t, r, "a").State == "live" })
		r.untilAddresses(t, "web.dc1.consul", "10.7.0.1:8080")
	}
	if err := os.Remove(filepath.Join(r.dir, "east/a.yaml")); err != nil {
		t.Fatal(err)
	}
	r.log.until(t, "its end", func() bool { return len(addressesOf(t, r, "web.dc1.consul")) == 0 })
	r.log.until(t, "the end of what was kept", func() bool {
		kept, err := filepath.Glob(filepath.Join(state, "registries", "*.rows"))
		return err == nil && len(kept) == 0
	})
}

// TestAllThatIsHeldBackIsFound: of many services that are held back a status names some and says how many more there are; whoever asks
// for the registry, or for one of the services, is told of each.
func TestAllThatIsHeldBackIsFound(t *testing.T) {
	t.Parallel()
	const many = 130
	services := map[string][]string{}
	for i := range many {
		services[fmt.Sprintf("s%03d", i)] = []string{fmt.Sprintf("10.7.1.%d", i+1)}
	}
	c := newConsul(t, services)
	r := startHub(t, map[string]string{"east/services.yaml": serviceYAML("east", "10.1.0.1"), "east/a.yaml": registryYAML("a", c.address(), ", empty: {mode: hold, duration: 1h}")}, "--cluster-id", "east")
	r.log.until(t, "all services", func() bool { return registryOf(t, r, "a").Services == many })
	c.set(func() { clear(c.services) })
	r.log.until(t, "that all are held back", func() bool {
		x := registryOf(t, r, "a")
		return x.HeldBack == many && debug.CountProblems(x.Problems) == many
	})
	x := registryOf(t, r, "a")
	if n := len(x.Problems); n != 101 || x.Problems[100].More != 30 || x.Problems[100].Reason != "30 more are held back" {
		t.Errorf("%d problems, at last %+v", n, x.Problems[n-1])
	}
	if got := command(t, "registry", "list", "--hub", r.url); !strings.Contains(strings.Join(strings.Fields(got.stdout), " "), " 130 130 -") {
		t.Errorf("%s", got.stdout)
	}
	if _, metrics := get(t, "http://"+r.monitoring+"/metrics"); !strings.Contains(metrics, `isthmus_registry_held_back{registry="consul/a"} 130`) {
		t.Error("the metric does not count all")
	}
	got := command(t, "registry", "explain", "a", "--hub", r.url)
	for i := range many {
		if !strings.Contains(got.stdout, fmt.Sprintf("Service/istio-system/s%03d ", i)) {
			t.Fatalf("s%03d is not told of:\n%s", i, got.stdout)
		}
	}
	if strings.Contains(got.stdout, "more are held back") {
		t.Errorf("%s", got.stdout)
	}
	for _, name := range []string{"s000", "s129"} {
		if got := command(t, "service", "explain", name+".dc1.consul", "--hub", r.url); strings.Count(got.stdout, "of its 1 endpoints 0 are left") != 1 {
			t.Errorf("%s", got.stdout)
		}
	}
}

// TestRegistryHoldsBack: a registry that loses everything at once serves on, and what is held back shows.
func TestRegistryHoldsBack(t *testing.T) {
	t.Parallel()
	c := newConsul(t, map[string][]string{"web": {"10.7.0.1"}, "api": {"10.7.0.2"}})
	r := startHub(t, map[string]string{"east/services.yaml": serviceYAML("east", "10.1.0.1"), "east/a.yaml": registryYAML("a", c.address(), ", empty: {mode: hold, duration: 1h}")}, "--cluster-id", "east")
	r.untilAddresses(t, "web.dc1.consul", "10.7.0.1:8080")
	r.untilAddresses(t, "api.dc1.consul", "10.7.0.2:8080")
	c.set(func() { clear(c.services) })
	r.log.until(t, "two services held back", func() bool { x := registryOf(t, r, "a"); return x.HeldBack == 2 && len(x.Problems) == 2 })
	if got := addressesOf(t, r, "web.dc1.consul"); len(got) != 1 {
		t.Errorf("%v", got)
	}
	r.log.until(t, "a metric that says so", func() bool {
		_, metrics := get(t, "http://"+r.monitoring+"/metrics")
		return strings.Contains(metrics, `isthmus_registry_held_back{registry="consul/a"} 2`)
	})
	c.set(func() { c.services["web"] = []string{"10.7.0.3"} })
	r.untilAddresses(t, "web.dc1.consul", "10.7.0.3:8080")
}
