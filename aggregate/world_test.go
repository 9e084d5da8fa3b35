package aggregate_test

import (
	gocmp "cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/memory"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// world drives a controller with random operations and remembers what must come of them.
type world struct {
	*hub
	rnd   *rand.Rand
	regs  map[model.ShardKey]*memory.Registry // the instance whose rows count
	ended []*memory.Registry                  // detached and replaced instances, which go on writing
	gen   int
	hosts []string // names that the controller wants resolved
}

var worldKeys = []model.ShardKey{
	kube("c1"), kube("c2"), kube("c3"), {Provider: "consul", Cluster: "c1"}, nacos("n1"), {Provider: model.ProviderMesh, Cluster: "c1"},
	{Provider: model.ProviderDNS, Cluster: "c1"},
}

func (w *world) pick(n int) int { return w.rnd.IntN(n) }

func (w *world) name() string { return fmt.Sprintf("s%d", w.pick(5)) }

// object makes a random row. All members use the same names and address ranges.
func (w *world) object(k model.ShardKey) model.Object {
	w.gen++
	switch w.pick(22) {
	case 20, 21:
		return w.federated(k)
	case 0, 1, 2:
		return w.service(k)
	case 3, 4, 5, 6, 7:
		return w.slice(k)
	case 8, 9, 10:
		return w.workload(k)
	case 11, 12, 13, 14, 15:
		return w.policy(k)
	case 16, 17, 18:
		return w.routing(k)
	}
	return w.meshConfig(k)
}

func (w *world) source(k model.ShardKey, kind, name string) model.Source {
	return model.Source{Shard: k, Object: model.ObjectKey{Kind: kind, Namespace: "ns", Name: name}, Revision: fmt.Sprint(w.gen), Time: time.Unix(int64(w.gen), 0)}
}

func (w *world) labels() model.Labels {
	return model.Labels{"app": fmt.Sprintf("a%d", w.pick(3)), "v": fmt.Sprintf("v%d", w.pick(2))}
}

func (w *world) service(k model.ShardKey) *model.Service {
	name := w.name()
	s := service(k, name)
	if w.pick(3) == 0 {
		s = entry(k, name)
		s.Resolution = []model.Resolution{model.ClientSideLB, model.DNSLB, model.Passthrough, model.DNSRoundRobin}[w.pick(4)]
	}
	s.Source = w.source(k, s.Source.Object.Kind, name)
	s.Ports = [][]model.Port{
		{port("http", 80)}, {port("web", 80)}, {port("http", 8080)}, {port("http", 80), {Name: "tcp", Number: 90, Protocol: model.ProtocolTCP}},
	}[w.pick(4)]
	if w.pick(2) == 0 {
		s.Selector.Labels = w.labels()
	}
	s.ClusterLocal = w.pick(6) == 0
	w.expose(s)
	w.address(s)
	if w.pick(5) == 0 {
		s.Host, s.ClusterSet, s.ClusterLocal = name+".ns.svc.clusterset.local", true, false
		s.Source.Object.Kind = []string{"Service", "ServiceImport"}[w.pick(2)]
	}
	s.Created = time.Unix(int64(w.pick(3)), 0)
	s.ExportTo = [][]string{nil, {"."}, {"*"}}[w.pick(3)]
	return s
}

func (w *world) ip() string { return fmt.Sprintf("10.0.0.%d", w.pick(6)) }

func (w *world) slice(k model.ShardKey) *model.Endpoints {
	svc := w.name()
	e := slice(k, svc, fmt.Sprintf("%s-%d", svc, w.pick(2)))
	for range w.pick(4) {
		e.Endpoints = append(e.Endpoints, slice(k, svc, "", w.ip()).Endpoints...)
	}
	e.Source = w.source(k, "EndpointSlice", e.Source.Object.Name)
	if w.pick(6) == 0 {
		e.Host = svc + ".ns.svc.clusterset.local"
	}
	for i := range e.Endpoints {
		x := &e.Endpoints[i]
		x.Source, x.PortName = &e.Source, []string{"http", "http", "web", "gone"}[w.pick(4)]
		x.Health = model.Health(1 + w.pick(4))
		x.Locality.Zone = fmt.Sprint(w.pick(2))
		x.Network, x.Labels = w.network(), w.labels()
	}
	return e
}

func (w *world) workload(k model.ShardKey) *model.Workload {
	kind := []model.WorkloadKind{model.KindPod, model.KindWorkloadEntry, model.KindInstance}[w.pick(3)]
	ip := w.ip()
	if w.pick(5) == 0 {
		ip = ""
	}
	o := workload(k, kind, w.name(), ip, w.labels())
	o.Source = w.source(k, string(kind), o.Name)
	o.Locality.Zone = []string{"", "z1", "z2"}[w.pick(3)]
	o.Network = w.network()
	if w.pick(3) == 0 {
		o.Ports = map[string]uint16{"http": 9000}
	}
	return o
}

func (w *world) meshConfig(k model.ShardKey) *model.Config {
	if w.pick(2) == 0 {
		return w.meshNetworks(k)
	}
	cfg := &model.Config{Kind: model.ConfigMesh, Name: "mesh", Source: w.source(k, "MeshConfig", "mesh")}
	spec := &meshconfig.MeshConfig{TrustDomain: fmt.Sprintf("td%d", w.pick(2))}
	if w.pick(2) == 0 {
		spec.ServiceSettings = []*meshconfig.MeshConfig_ServiceSettings{{
			Settings: &meshconfig.MeshConfig_ServiceSettings_Settings{ClusterLocal: true}, Hosts: []string{host(w.name())},
		}}
	}
	if w.pick(3) == 0 {
		spec.DefaultVirtualServiceExportTo = []string{"."}
	}
	if w.pick(3) == 0 {
		spec.DefaultServiceExportTo, spec.DefaultDestinationRuleExportTo = []string{"."}, []string{"."}
	}
	cfg.Spec = spec
	return cfg
}

func (w *world) state(k model.ShardKey) *model.ShardState {
	var rows []model.Object
	for range w.pick(15) {
		rows = append(rows, w.object(k))
	}
	return state(rows...)
}

// step does one random thing.
func (w *world) step() {
	k := worldKeys[w.pick(len(worldKeys))]
	r := w.regs[k]
	if r == nil {
		if w.pick(4) == 0 {
			w.attach(k)
		}
		return
	}
	switch n := w.pick(40); {
	case n < 26:
		o := w.object(k)
		r.Put(keyOf(o), o)
	case n < 32:
		w.deleteOne(r)
	case n < 34:
		r.Replace(w.state(k))
	case n < 36:
		w.attach(k)
	case n == 36:
		w.ended = append(w.ended, r)
		delete(w.regs, k)
		w.Detach(k)
	case n == 37:
		r.Fail(errors.New("connection lost"))
	case n == 38:
		w.late()
	case n == 39:
		synctest.Wait()         // or it would replace a replacement that is about to sync
		w.Attach(memory.New(k)) // a replacement that never syncs
	}
}

// attach adds a registry, or swaps the one that is there.
func (w *world) attach(k model.ShardKey) {
	r := memory.New(k)
	r.Replace(w.state(k))
	if old := w.regs[k]; old != nil {
		w.ended = append(w.ended, old)
	}
	w.regs[k] = r
	w.Attach(r)
	if w.pick(2) == 0 {
		synctest.Wait()
	}
}

func (w *world) deleteOne(r *memory.Registry) {
	for k := range r.State().Rows() {
		r.Delete(k)
		return
	}
}

// late lets an instance that is gone write what nobody may see.
func (w *world) late() {
	if len(w.ended) == 0 {
		return
	}
	synctest.Wait() // the swap that ended it is done
	r := w.ended[w.pick(len(w.ended))]
	if live := w.regs[r.Key()]; live != nil && live.Started() == 0 {
		return
	}
	e := slice(r.Key(), "s0", "late", "10.9.9.9")
	r.Late(model.Event{Row: rowOf(e), Obj: e})
	r.LateReplace(state(service(r.Key(), "s0"), e))
}

// check compares the snapshot with a merge of the registries' states that knows no history.
func (w *world) check(seed uint64) {
	w.t.Helper()
	pc := w.quiet()
	states := map[model.ShardKey]*model.ShardState{}
	for k, r := range w.regs {
		states[k] = r.State()
	}
	rebuilt := aggregate.Rebuild(states, aggregate.Options{ConfigCluster: "c1"})
	want := rebuilt.Services
	got := slices.SortedFunc(pc.Services(), func(a, b *pushcontext.ServiceView) int { return a.Shape.Key.Compare(b.Shape.Key) })
	if len(got) != len(want) {
		w.t.Fatalf("seed %d: %d services, want %d", seed, len(got), len(want))
	}
	for i := range got {
		if !aggregate.SameView(got[i], want[i]) {
			w.t.Fatalf("seed %d: service %s differs:\n got %s\nwant %s", seed, got[i].Shape.Key, text(got[i]), text(want[i]))
		}
		if got[i].Shape.Mesh != pc.Mesh {
			w.t.Fatalf("seed %d: service %s was made under other settings", seed, got[i].Shape.Key)
		}
	}
	if len(pc.Shards) != len(w.regs) {
		w.t.Fatalf("seed %d: %d shards, want %d", seed, len(pc.Shards), len(w.regs))
	}
	w.checkRows(seed, pc, states)
	w.checkConfig(seed, pc, rebuilt)
	w.checkRouting(seed, pc, rebuilt)
}

// checkConfig compares what the snapshot says of the mesh as a whole.
func (w *world) checkConfig(seed uint64, pc *pushcontext.PushContext, want aggregate.Rebuilt) {
	w.t.Helper()
	if !pc.Networks.Equal(want.Networks) || !slices.Equal(pc.Mesh.GatewayNetworks, want.Mesh.GatewayNetworks) || !slices.Equal(w.hosts, want.Hosts) {
		w.t.Fatalf("seed %d: gateways into %v, %v, names %v, want %v, %v, %v", seed,
			pc.Mesh.GatewayNetworks, pc.Networks, w.hosts, want.Mesh.GatewayNetworks, want.Networks, want.Hosts)
	}
	servers := func(m *pushcontext.MeshView) (out []string) {
		for _, s := range m.AutoPassthrough {
			out = append(out, fmt.Sprint(s.Source.Shard, s.Source.Object, s.Namespace, s.Selector, s.Port, s.Hosts))
		}
		return out
	}
	conflicts := func(list []pushcontext.Conflict) (out []string) {
		for _, c := range list {
			out = append(out, fmt.Sprint(c.Field, c.Winner.Shard, c.Winner.Object, c.Loser.Shard, c.Loser.Object, c.Detail))
		}
		return out
	}
	if d := cmp.Diff(servers(want.Mesh), servers(pc.Mesh)) + cmp.Diff(conflicts(want.Conflicts), conflicts(pc.Conflicts)); d != "" {
		w.t.Fatalf("seed %d: %s", seed, d)
	}
}

// checkRows compares what the snapshot says of rows themselves: their number, where workloads are, and
// endpoints without a service.
func (w *world) checkRows(seed uint64, pc *pushcontext.PushContext, states map[model.ShardKey]*model.ShardState) {
	w.t.Helper()
	places, defined := map[model.InstanceKey]bool{}, map[string]bool{}
	for _, info := range pc.Shards {
		var rows [model.RowKinds]int
		for rk, o := range states[info.Key].Rows() {
			rows[rk.Kind]++
			switch o := o.(type) {
			case *model.Service:
				defined[o.Host] = defined[o.Host] || o.Source.Object.Kind != "ServiceImport"
			case *model.Workload:
				at := model.InstanceKey{Cluster: info.Key.Cluster, IP: o.Address.AddrPort.Addr()}
				network := gocmp.Or(o.Network, networkOf(pc.Mesh.Networks, at.Cluster))
				if (o.Locality.Zone != "" || network != "") && at.IP.IsValid() {
					places[at] = true
					p := pushcontext.Place{Instance: at, By: info.Key.String() + " " + rk.Key, Locality: o.Locality, Network: network}
					if !pc.Has(&p) {
						w.t.Fatalf("seed %d: the place %+v is not known", seed, p)
					}
				}
			}
		}
		if info.Rows != rows {
			w.t.Fatalf("seed %d: %s has %v rows, want %v", seed, info.Key, info.Rows, rows)
		}
	}
	for k, i := range pc.Instances() {
		if len(i.Targets.Targets) == 0 && !places[k] {
			w.t.Fatalf("seed %d: %v is known, and nothing is there", seed, k)
		}
	}
	for k, s := range states {
		for _, o := range s.Rows() {
			e, ok := o.(*model.Endpoints)
			if !ok || defined[e.Host] || len(e.Endpoints) == 0 {
				continue
			}
			key := model.ServiceKey{Namespace: "ns", Host: e.Host}
			if v := pc.Service(key); v != nil && v.Shape.Federation != nil {
				if !slices.ContainsFunc(v.LeftOut, func(l model.LeftOut) bool {
					return l.Source.Shard == k && l.Source.Object == e.Source.Object && (l.Reason == model.ReasonNoService || l.Reason == model.ReasonConflictLost)
				}) {
					w.t.Fatalf("seed %d: endpoints of %s in %s are not left out of the FederatedService", seed, e.Host, k)
				}
			} else if pc.NoService[key] == nil {
				w.t.Fatalf("seed %d: endpoints of %s in %s are not listed", seed, e.Host, k)
			}
		}
	}
	for k := range pc.NoService {
		if defined[k.Host] && pc.Service(k) != nil {
			w.t.Fatalf("seed %d: service %s exists, and has endpoints without a service", seed, k)
		}
	}
}

func text(v *pushcontext.ServiceView) string {
	s := fmt.Sprintf("ports %v, resolution %v, addresses %v, inline %d, contributions %v, conflicts %v, left out %v;",
		v.Shape.Ports, v.Shape.Resolution, v.Shape.Addresses, len(v.Shape.Inline), v.Shape.Contributions, v.Shape.Conflicts, v.LeftOut)
	if v.Shape.Federation != nil {
		s += fmt.Sprintf(" federation %+v, sources %+v;", *v.Shape.Federation, v.Sources)
	}
	for _, p := range v.Endpoints {
		for _, l := range p.Localities {
			for _, e := range l.Endpoints {
				s += fmt.Sprintf(" %s=%s/%s(%v)", p.Port, e.Addr.Cluster, e.Addr, e.Health)
			}
		}
	}
	return s
}

func runWorld(t *testing.T, seed uint64, steps int) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{rnd: rand.New(rand.NewPCG(seed, 1)), regs: map[model.ShardKey]*memory.Registry{}}
		h := newHub(t, aggregate.Options{ConfigCluster: "c1", BackoffMax: time.Second, OnHosts: func(hosts []string) { w.hosts = hosts }})
		w.hub = h
		w.attach(worldKeys[0])
		w.start()
		time.Sleep(10 * time.Second) // longer than start-up waits for names of gateways
		for range steps {
			w.step()
			switch w.pick(20) {
			case 0:
				w.check(seed)
			case 1, 2, 3:
				time.Sleep(time.Duration(w.pick(200)) * time.Millisecond)
			}
		}
		w.check(seed)
		h.finish()
	})
}
