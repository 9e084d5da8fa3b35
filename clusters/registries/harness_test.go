package registries_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/memory"
	"github.com/isthmus-mesh/isthmus/clusters/registries"
	"github.com/isthmus-mesh/isthmus/clusters/static"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/secrets"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var born = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// row is an object of the config cluster "home", as conversion gives it.
func row(t testing.TB, text string) *model.Config {
	t.Helper()
	var o struct {
		Kind     string
		Metadata struct {
			Name, Namespace string
			Minute          int
		}
		Spec any
	}
	if err := yaml.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	js, err := yaml.Marshal(o.Spec)
	if err != nil {
		t.Fatal(err)
	}
	var spec any = &api.RegistrySpec{}
	if o.Kind == model.ConfigMcpBridge {
		spec = &api.McpBridgeSpec{}
	}
	if err := yaml.UnmarshalStrict(js, spec); err != nil {
		t.Fatal(err)
	}
	if o.Metadata.Namespace == "" {
		o.Metadata.Namespace = "istio-system"
	}
	return &model.Config{
		Kind: o.Kind, Namespace: o.Metadata.Namespace, Name: o.Metadata.Name, Spec: spec, Created: born.Add(time.Duration(o.Metadata.Minute) * time.Minute),
		Source: model.Source{Shard: home, Object: model.ObjectKey{Kind: o.Kind, Namespace: o.Metadata.Namespace, Name: o.Metadata.Name}},
	}
}

// registry is a Registry object; more is added to its spec.
func registry(t testing.TB, name, address, more string) *model.Config {
	t.Helper()
	return row(t, fmt.Sprintf("{kind: Registry, metadata: {name: %s}, spec: {provider: consul, addresses: [%q]%s}}", name, address, more))
}

var home = model.ShardKey{Provider: model.ProviderKubernetes, Cluster: "home"}

func key(name string) model.ShardKey {
	return model.ShardKey{Provider: model.ProviderConsul, Cluster: model.ClusterID(name)}
}

// world is a Manager with a real controller. Registries are in memory, one for each time that one was made. An address that begins with
// "dead" leads to one that never answers, with "bad" to one that can't be made, with "odd" to one whose making panics.
type world struct {
	*registries.Manager
	t      *testing.T
	hub    *pushcontext.Hub
	ctl    *aggregate.Controller
	life   *registries.Follower
	config *memory.Registry // the config cluster
	made   []*server
	forgot []model.ShardKey
	wanted []string
	hosts  [][]string // of each snapshot
}

// server is a registry that was made.
type server struct {
	*memory.Registry
	plan registries.Plan
}

// inWorld runs f with fake time and a config cluster that has delivered nothing.
func inWorld(t *testing.T, f func(*world)) {
	t.Helper()
	inWorldWith(t, func(*registries.Options) {}, f)
}

// inWorldWith is inWorld with other options.
func inWorldWith(t *testing.T, change func(*registries.Options), f func(*world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t}
		w.hub = pushcontext.NewHub(func(pc *pushcontext.PushContext, _ *pushcontext.Delta) { w.hosts = append(w.hosts, hosts(pc)) })
		w.ctl = aggregate.New(aggregate.Options{Hub: w.hub, ConfigCluster: "home", Expected: []model.ShardKey{home}})
		o := registries.Options{
			Lifecycle: w.ctl, Scope: registries.Scope{SystemNamespace: "istio-system", ConfigCluster: "home"},
			Make: map[model.ProviderID]func(registries.Plan) (model.Registry, error){
				model.ProviderConsul: w.make, model.ProviderNacos: w.make, model.ProviderStatic: makeStatic, model.ProviderStaticDNS: makeStatic,
			},
			Want:   func(names []string) { w.wanted = names },
			Forget: func(k model.ShardKey) { w.forgot = append(w.forgot, k) },
		}
		change(&o)
		w.Manager = registries.NewManager(o)
		w.life = registries.NewFollower(w.ctl, w.Manager)
		w.config = memory.New(home)
		w.life.Attach(w.config)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.ctl.Run(ctx) }()
		f(w)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if n := w.running(); n > 0 {
			t.Errorf("%d registries run on", n)
		}
	})
}

func (w *world) make(p registries.Plan) (model.Registry, error) {
	s := &server{Registry: memory.New(p.Key), plan: p}
	address := strings.Join(p.Spec.Addresses, ",")
	switch {
	case strings.HasPrefix(address, "bad"):
		return nil, errors.New("bad address " + address)
	case strings.HasPrefix(address, "odd"):
		panic("odd address")
	case !strings.HasPrefix(address, "dead"):
		s.sync(string(p.Key.Cluster) + ".consul")
	}
	w.made = append(w.made, s)
	return s, nil
}

func makeStatic(p registries.Plan) (model.Registry, error) {
	return static.New(static.Options{Key: p.Key, Service: p.Static, Namespace: p.Namespace, From: p.From}), nil
}

// sync makes the registry deliver services.
func (s *server) sync(hosts ...string) {
	b := model.NewShardBuilder()
	for _, h := range hosts {
		source := model.Source{Shard: s.Key(), Object: model.ObjectKey{Kind: "Service", Namespace: "istio-system", Name: h}}
		b.Add("svc/"+h, &model.Service{Host: h, Namespace: "istio-system", Name: h, Ports: []model.Port{{Name: "http", Number: 80, Protocol: model.ProtocolHTTP}}, Source: source})
		eps := &model.Endpoints{Host: h, Namespace: "istio-system", Source: source}
		eps.Endpoints = []model.Endpoint{{
			Addr: model.Addr{Cluster: s.Key().Cluster, AddrPort: netip.MustParseAddrPort("10.0.0.1:80")}, PortName: "http", Health: model.Healthy, Source: &eps.Source,
		}}
		b.Add("eps/"+h, eps)
	}
	s.Replace(b.Build())
}

// of gives the registry of a key that was made last.
func (w *world) of(name string) *server {
	for _, s := range slices.Backward(w.made) {
		if string(s.Key().Cluster) == name {
			return s
		}
	}
	w.t.Fatalf("no registry %s was made", name)
	return nil
}

func (w *world) running() (n int) {
	for _, s := range w.made {
		n += s.Running()
	}
	return n
}

// declare makes the config cluster have these objects, and no others.
func (w *world) declare(rows ...*model.Config) {
	w.t.Helper()
	b := model.NewShardBuilder()
	for _, c := range rows {
		b.Add(c.Source.Object.String(), c)
	}
	w.config.Replace(b.Build())
	w.pass()
}

// pass lets imagined time pass until everything is published.
func (w *world) pass() {
	time.Sleep(3 * time.Second)
	synctest.Wait()
}

func hosts(pc *pushcontext.PushContext) (out []string) {
	if pc == nil {
		return nil
	}
	for v := range pc.Services() {
		out = append(out, v.Shape.Key.Host)
	}
	slices.Sort(out)
	return out
}

// want compares the hosts that are served.
func (w *world) want(want ...string) {
	w.t.Helper()
	w.pass()
	if got := hosts(w.hub.Current()); !slices.Equal(got, want) {
		w.t.Fatalf("served: %v, want %v", got, want)
	}
}

// always checks that all snapshots from a mark on had a host.
func (w *world) always(mark int, host string) {
	w.t.Helper()
	for i, h := range w.hosts[mark:] {
		if !slices.Contains(h, host) {
			w.t.Errorf("snapshot %d of %d lacks %s: %v", mark+i, len(w.hosts), host, h)
		}
	}
}

// state gives "state: why | problems" of a registry, "" if none is attached.
func (w *world) state(k model.ShardKey) string {
	for _, s := range w.ctl.Shards() {
		if s.Key == k {
			out := strings.TrimSuffix(fmt.Sprintf("%s: %s%s", s.Status.State, s.Status.Err, s.Replacement), ": ")
			for _, p := range s.Status.Problems {
				out += " | " + p.Reason
			}
			return out
		}
	}
	return ""
}

func (w *world) wantState(k model.ShardKey, parts ...string) {
	w.t.Helper()
	w.pass()
	got := w.state(k)
	for _, p := range parts {
		if !strings.Contains(got, p) {
			w.t.Fatalf("%s is %q, want %q in it", k, got, p)
		}
	}
}

func token(s string) secrets.Secret {
	return secrets.Secret{Data: map[string][]byte{"token": []byte(s)}}
}
