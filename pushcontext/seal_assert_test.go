//go:build isthmus_assert

package pushcontext

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Invariant I4: through a long random history nothing that was published changes.
func TestI4PublishedSnapshotsNeverChange(t *testing.T) {
	t.Parallel()
	w := &world{r: rand.New(rand.NewPCG(4, 4)), services: map[model.ServiceKey]spec{}}
	b, h := NewBuilder(), NewHub(nil)
	first, d := b.Commit(w.all())
	h.Publish(first, d)
	sums := map[*PushContext]uint64{}
	for range 60 {
		pc := h.Current()
		sums[pc] = checksum(h.sealed.seed, pc)
		pc.Mesh.Derived().Do(MemoKey{}, func() any { return 1 }) // what is derived is not content
		before := map[model.ServiceKey]spec{}
		for k, s := range w.services {
			before[k] = s
		}
		h.Publish(b.Commit(w.commit([]model.ServiceKey{w.change()}, before, pc)))
	}
	for pc, sum := range sums {
		if checksum(h.sealed.seed, pc) != sum {
			t.Errorf("version %d changed", pc.Version)
		}
	}
}

func TestSealFindsEveryChange(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*PushContext){
		"endpoint": func(pc *PushContext) {
			pc.Host("a").Services[0].Endpoints[0].Localities[0].Endpoints[0].Health = model.Draining
		},
		"label": func(pc *PushContext) {
			pc.Host("a").Services[0].Endpoints[0].Localities[0].Endpoints[0].Labels["x"] = "2"
		},
		"port":     func(pc *PushContext) { pc.Host("a").Services[0].Shape.Ports[0].Name = "other" },
		"revision": func(pc *PushContext) { pc.Host("a").Services[0].rev++ },
		"mesh":     func(pc *PushContext) { pc.Mesh.Config.RootNamespace = "other" },
		"target": func(pc *PushContext) {
			pc.Instance(model.InstanceKey{Cluster: "c1", IP: ip("10.0.0.1")}).Targets.Targets[0].Port++
		},
		"list":   func(pc *PushContext) { pc.Port(80).Services[0] = nil },
		"shard":  func(pc *PushContext) { pc.Shards[0].Synced = true },
		"config": func(pc *PushContext) { pc.Configs[0].Spec = 5 },
		"route":  func(pc *PushContext) { pc.VirtualServices[0].Hosts[0] = "y" },
		"server": func(pc *PushContext) { pc.Gateways.Servers[0].Index++ },
		"scope":  func(pc *PushContext) { pc.scopes.spaces["ns"].Sidecar.Egress[0].Bind = "x" },
	} {
		b, h := NewBuilder(), NewHub(nil)
		m := testMesh()
		s := spec{key: key("", "ns", "a"), ports: []uint16{80}, endpoints: []specEndpoint{{"10.0.0.1", "c1", "", ""}}}
		v := s.fresh(m)
		v.Endpoints[0].Localities[0].Endpoints[0].Labels = model.Labels{"x": "1"}
		pc, d := b.Commit(Commit{
			Mesh: m, Services: []Change{{s.key, v}}, Time: time.Now(), Shards: []ShardInfo{{}}, Configs: []*model.Config{{Spec: 4}},
			VirtualServices: []*VirtualService{{Hosts: []string{"x"}}}, Gateways: &GatewaysView{Servers: []*GatewayServer{{}}},
			Scopes: NewScopes(nil, "root", map[string]*ScopeSpace{"ns": {Sidecar: sidecarRule("./*")}}, nil),
		})
		h.Publish(pc, d)
		spoil(pc)
		func() {
			defer func() {
				if err, _ := recover().(string); !strings.Contains(err, "version 1 changed") {
					t.Errorf("%s: %q", name, err)
				}
			}()
			h.Publish(b.Commit(Commit{}))
		}()
	}
}
