package aggregate_test

import (
	"fmt"
	"net/netip"
	"testing"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/memory"
)

func (h *hub) instance(c model.ClusterID, addr string) string {
	i := h.Current().Instance(model.InstanceKey{Cluster: c, IP: netip.MustParseAddr(addr)})
	if i == nil {
		return "unknown"
	}
	return fmt.Sprintf("%s %s serves %d", i.Locality, i.Network, len(i.Targets.Targets))
}

// A proxy whose workload serves nothing takes its place from the workload itself.
func TestPlaceOfWorkloadThatServesNothing(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1, c2 := kube("c1"), kube("c2")
		client := func(zone string, health model.Health) *model.Workload {
			w := workload(c1, model.KindPod, "client", "10.0.0.1", nil)
			w.Locality, w.Health = model.Locality{Region: "r", Zone: zone}, health
			return w
		}
		bare := workload(c1, model.KindPod, "bare", "10.0.0.2", nil)
		r := registry(c1, client("z1", model.Healthy), bare)
		h.Attach(r)
		h.Attach(registry(c2, service(c2, "a")))
		settings := memory.New(model.ShardKey{Provider: model.ProviderMesh, Cluster: "c1"})
		settings.Replace(state())
		h.Attach(settings)
		h.start()
		version := h.quiet().Version
		check := func(when, want string) {
			t.Helper()
			if got := h.instance("c1", "10.0.0.1"); got != want {
				t.Errorf("%s: %s, want %s", when, got, want)
			}
		}
		put := func(o model.Object) { r.Put(keyOf(o), o); h.quiet() }
		check("at the start", "r/z1  serves 0")
		if h.instance("c2", "10.0.0.1") != "unknown" || h.instance("c1", "10.0.0.2") != "unknown" {
			t.Error("another member's address, or one without a place, is known")
		}
		put(client("z1", model.Unhealthy))
		if now := h.quiet().Version; now != version {
			t.Errorf("what nobody sees made version %d after %d", now, version)
		}
		put(client("z2", model.Healthy))
		if d := h.deltas[len(h.deltas)-1]; len(d.Instances) != 1 || len(d.Endpoints)+len(d.Shape) != 0 {
			t.Errorf("delta %+v", d)
		}
		check("its node's label changed", "r/z2  serves 0")
		nets := meshRow(&meshconfig.MeshNetworks{Networks: map[string]*meshconfig.Network{"n1": {Endpoints: []*meshconfig.Network_NetworkEndpoints{
			{Ne: &meshconfig.Network_NetworkEndpoints_FromRegistry{FromRegistry: "c1"}},
		}}}}, model.ConfigNetworks)
		settings.Put(keyOf(nets), nets)
		h.quiet()
		check("networks are known", "r/z2 n1 serves 0")
		r.Delete(rowOf(client("", 0)))
		h.quiet()
		check("it went", "unknown")
	})
}

// What a workload serves is its inbound configuration, ready or not.
func TestUnreadyWorkloadKnowsItsInbound(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1 := kube("c1")
		e := slice(c1, "a", "s", "10.0.0.1", "10.0.0.2", "10.0.0.3")
		for i, health := range []model.Health{model.Unhealthy, model.Draining, model.Terminating} {
			e.Endpoints[i].Health = health
		}
		h.Attach(registry(c1, service(c1, "a"), e))
		h.start()
		h.quiet()
		for _, addr := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"} {
			if got := h.instance("c1", addr); got != "  serves 1" {
				t.Errorf("%s: %s", addr, got)
			}
		}
	})
}
