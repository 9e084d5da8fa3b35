package main

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/foreign"
	"github.com/isthmus-mesh/isthmus/clusters/memory"
	"github.com/isthmus-mesh/isthmus/clusters/registries"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/secrets"
)

// TestWhatIsHandedOver: a registry that differs in credentials alone goes on from what the one in force served, one that is declared otherwise
// does not.
func TestWhatIsHandedOver(t *testing.T) {
	t.Parallel()
	s := &registrySource{sourceDeps: sourceDeps{log: slog.New(slog.DiscardHandler), held: newHeldBack(prometheus.NewRegistry())}}
	made := func(inForce model.Registry, name model.ClusterID, token, address string) (out handingOver) {
		t.Helper()
		spec := api.RegistrySpec{Provider: api.Consul, Addresses: []string{address}}
		r, err := s.guarded(func(p registries.Plan, _ *handover, _ *slog.Logger) (model.Registry, error) {
			return memory.New(p.Key), nil
		})(registries.Plan{
			Key: model.ShardKey{Provider: model.ProviderConsul, Cluster: name}, Spec: spec.Effective("istio-system"), Access: foreign.Access{Token: token}, InForce: inForce,
		})
		if err != nil {
			t.Fatal(err)
		}
		return r.(handingOver)
	}
	first := made(nil, "legacy", "a", "127.0.0.1:8500")
	if first.handover == nil || made(first, "legacy", "b", "127.0.0.1:8500").handover != first.handover {
		t.Error("another token: nothing is handed over")
	}
	if made(nil, "other", "a", "127.0.0.1:8500").handover == first.handover {
		t.Error("of another registry")
	}
	second := made(first, "legacy", "b", "127.0.0.2:8500")
	if second.handover == first.handover || made(second, "legacy", "a", "127.0.0.1:8500").handover == first.handover {
		t.Error("declared otherwise, and back: what the one in between served is not what there was")
	}
}

// declaring is a source of registries in memory, declared as in a hub.
type declaring struct {
	*registries.Manager
	hub    *pushcontext.Hub
	config *memory.Registry // the config cluster
	made   []*memory.Registry
	given  []*handover
}

func newDeclaring(ctl *aggregate.Controller, hub *pushcontext.Hub) *declaring {
	d := &declaring{hub: hub, config: memory.New(model.ShardKey{Provider: model.ProviderKubernetes, Cluster: "home"})}
	s := &registrySource{sourceDeps: sourceDeps{log: slog.New(slog.DiscardHandler), held: newHeldBack(prometheus.NewRegistry())}}
	d.Manager = registries.NewManager(registries.Options{
		Lifecycle: ctl, Scope: registries.Scope{SystemNamespace: "istio-system", ConfigCluster: "home"}, Want: func([]string) {},
		Make: map[model.ProviderID]func(registries.Plan) (model.Registry, error){
			model.ProviderConsul: s.guarded(func(p registries.Plan, h *handover, _ *slog.Logger) (model.Registry, error) {
				r := memory.New(p.Key)
				d.made, d.given = append(d.made, r), append(d.given, h)
				return r, nil
			}),
		},
	})
	registries.NewFollower(ctl, d.Manager).Attach(d.config)
	return d
}

// declare makes the config cluster have a Registry with an address.
func (d *declaring) declare(address string) {
	source := model.Source{Shard: d.config.Key(), Object: model.ObjectKey{Kind: model.ConfigRegistry, Namespace: "istio-system", Name: "legacy"}}
	d.config.Replace(model.NewShardBuilder().Add(source.Object.String(), &model.Config{
		Kind: model.ConfigRegistry, Namespace: "istio-system", Name: "legacy", Source: source,
		Spec: &api.RegistrySpec{Provider: api.Consul, Addresses: []string{address}, Credentials: &api.Credentials{SecretName: "legacy"}},
	}).Build())
	d.pass()
}

func (d *declaring) token(text string) {
	d.Secret("legacy", secrets.Secret{Data: map[string][]byte{"token": []byte(text)}})
	d.pass()
}

// deliver makes the registry that was made last have services.
func (d *declaring) deliver(hosts ...string) {
	r := d.made[len(d.made)-1]
	b := model.NewShardBuilder()
	for _, h := range hosts {
		source := model.Source{Shard: r.Key(), Object: model.ObjectKey{Kind: "Service", Namespace: "istio-system", Name: h}}
		b.Add("svc/"+h, &model.Service{Host: h, Namespace: "istio-system", Name: h, Ports: []model.Port{{Name: "http", Number: 80, Protocol: model.ProtocolHTTP}}, Source: source})
		eps := &model.Endpoints{Host: h, Namespace: "istio-system", Source: source}
		eps.Endpoints = []model.Endpoint{{
			Addr: model.Addr{Cluster: r.Key().Cluster, AddrPort: netip.MustParseAddrPort("10.0.0.1:80")}, PortName: "http", Health: model.Healthy, Source: &eps.Source,
		}}
		b.Add("eps/"+h, eps)
	}
	r.Replace(b.Build())
	d.pass()
}

// pass lets imagined time pass until everything is published.
func (d *declaring) pass() {
	time.Sleep(3 * time.Second)
	synctest.Wait()
}

func (d *declaring) hosts() (out []string) {
	for v := range d.hub.Current().Services() {
		out = append(out, v.Shape.Key.Host)
	}
	slices.Sort(out)
	return out
}

// TestTypoTakenBackLosesNothing: a declaration that had a typo for a while, which never came in force, is no reason to believe the next one at
// once: what is handed over is that of the registry in force.
func TestTypoTakenBackLosesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub := pushcontext.NewHub(nil)
		ctl := aggregate.New(aggregate.Options{Hub: hub, ConfigCluster: "home"})
		d := newDeclaring(ctl, hub)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- ctl.Run(ctx) }()
		served := func(step string, want ...string) {
			t.Helper()
			if got := d.hosts(); !slices.Equal(got, want) {
				t.Errorf("%s: served %v, want %v", step, got, want)
			}
		}
		d.declare("consul:8500")
		d.token("one")
		d.deliver("a.consul", "b.consul", "c.consul")
		served("as it was", "a.consul", "b.consul", "c.consul")
		d.declare("consal:8500")
		if len(d.given) != 2 || d.given[1] == d.given[0] {
			t.Errorf("%d made: one with another address is another registry", len(d.given))
		}
		d.declare("consul:8500")
		d.token("two")
		if len(d.given) != 3 || d.given[2] != d.given[0] {
			t.Fatalf("%d made: the last one does not go on from the one in force", len(d.given))
		}
		d.deliver("a.consul") // which may have just restarted
		served("another token, that sees less at first", "a.consul", "b.consul", "c.consul")
		d.declare("other:8500")
		d.deliver("a.consul")
		served("another server", "a.consul")
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}
