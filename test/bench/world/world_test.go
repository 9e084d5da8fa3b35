package world

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

func spec() Spec {
	return Spec{Members: 10, Services: 40, Spread: 5, PerMember: 2, Namespaces: 10, Networks: 3, Zones: 2, Workloads: true, Mixed: true}
}

func TestStatesHoldWhatTheSpecSays(t *testing.T) {
	t.Parallel()
	s := spec()
	var rows [model.RowKinds]int
	addresses, endpoints := map[model.Addr]string{}, 0
	for _, state := range s.States() {
		for k, o := range state.Rows() {
			rows[k.Kind]++
			e, ok := o.(*model.Endpoints)
			if !ok {
				continue
			}
			endpoints += len(e.Endpoints)
			for _, x := range e.Endpoints {
				if other, taken := addresses[x.Addr]; taken && other != e.Host {
					t.Fatalf("%v is of %s and of %s", x.Addr, other, e.Host)
				}
				addresses[x.Addr] = e.Host
			}
		}
	}
	if want := [model.RowKinds]int{200, 200, 400, 0}; rows != want {
		t.Errorf("rows %v, want %v", rows, want)
	}
	if endpoints < 400 {
		t.Errorf("%d endpoints", endpoints)
	}
}

func TestEndpointsReplacesOneAddress(t *testing.T) {
	t.Parallel()
	s, marker := spec(), netip.MustParseAddr("10.250.1.2")
	before, after := s.Endpoints(3, 3, netip.Addr{}), s.Endpoints(3, 3, marker)
	if before.Row != after.Row {
		t.Errorf("rows %v and %v", before.Row, after.Row)
	}
	differ := 0
	for i, e := range after.Obj.(*model.Endpoints).Endpoints {
		if e.Addr != before.Obj.(*model.Endpoints).Endpoints[i].Addr {
			differ++
			if e.Addr.AddrPort.Addr() != marker {
				t.Errorf("address %v", e.Addr)
			}
		}
	}
	if differ != 1 {
		t.Errorf("%d addresses differ", differ)
	}
}

func TestProxiesAreReplicasOfServices(t *testing.T) {
	t.Parallel()
	s := spec()
	instances := map[model.InstanceKey]bool{}
	for _, state := range s.States() {
		for _, o := range state.Rows() {
			if w, ok := o.(*model.Workload); ok {
				instances[model.InstanceKey{Cluster: w.Address.Cluster, IP: w.Address.AddrPort.Addr()}] = true
			}
		}
	}
	classes := map[string]int{}
	for _, p := range s.Proxies(Fleet{Classes: 10, Extensions: 3}, 0, 40) {
		classes[p.Class]++
		f := p.Node.Metadata.Fields
		k := model.InstanceKey{Cluster: model.ClusterID(f["CLUSTER_ID"].GetStringValue()), IP: netip.MustParseAddr(f["INSTANCE_IPS"].GetStringValue())}
		if !instances[k] {
			t.Errorf("%s is no workload: %v", p.Node.Id, k)
		}
		if got := f["NETWORK"].GetStringValue(); got != p.Network {
			t.Errorf("%s: network %q and %q", p.Node.Id, got, p.Network)
		}
		if len(p.Node.Extensions) != 3 {
			t.Errorf("%d extensions", len(p.Node.Extensions))
		}
	}
	if len(classes) != 10 {
		t.Errorf("%d classes: %v", len(classes), maps.Collect(maps.All(classes)))
	}
}

func TestEveryServiceHasAHome(t *testing.T) {
	t.Parallel()
	for _, s := range []Spec{spec(), {Members: 50, Services: 1000, Spread: 5, Networks: 5}, {Members: 1, Services: 10, Spread: 1}} {
		for i := range s.Services {
			if m, ok := s.Home(i); !ok || s.Network(m) != s.MainNetwork() {
				t.Errorf("%d members: service %d: member %d, %v", s.Members, i, m, ok)
			}
			seen := map[int]bool{}
			for _, m := range s.Homes(i) {
				seen[m] = true
			}
			if len(seen) != s.Spread {
				t.Errorf("%d members: service %d is in %v", s.Members, i, s.Homes(i))
			}
		}
	}
}
