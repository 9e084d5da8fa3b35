package world

import (
	"fmt"
	"net/netip"
	"strconv"
	"time"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Spec describes a mesh. Service number i exists in Spread members and has PerMember endpoints in
// each of them.
type Spec struct {
	Members    int
	Services   int
	Spread     int
	PerMember  int
	Namespaces int
	Networks   int // 0: one flat network. Of every five members, four are in the first network
	Zones      int
	Workloads  bool // report the pod behind each endpoint too
	Mixed      bool // gRPC, TCP and two-port services too, not only HTTP ones on port 80
}

// The kinds of object that the rows stand for.
const (
	kindService = "Service"
	kindSlice   = "EndpointSlice"
	kindPod     = "Pod"
)

const suffix = ".svc.cluster.local"

// epoch is the age of all objects.
var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// Member gives the id of member m.
func (s Spec) Member(m int) model.ClusterID { return model.ClusterID("member-" + strconv.Itoa(m)) }

// Shard gives the key of member m's registry.
func (s Spec) Shard(m int) model.ShardKey {
	return model.ShardKey{Provider: model.ProviderMemory, Cluster: s.Member(m)}
}

// Network gives the network of member m; "" in a flat mesh.
func (s Spec) Network(m int) string {
	switch {
	case s.Networks == 0:
		return ""
	case m%5 != 4:
		return networkName(0)
	}
	return networkName(1 + m/5%(s.Networks-1))
}

// MainNetwork is the network of most members.
func (s Spec) MainNetwork() string { return s.Network(0) }

func networkName(n int) string { return "network-" + strconv.Itoa(n) }

// Namespace gives the namespace of service i.
func (s Spec) Namespace(i int) string { return "ns-" + strconv.Itoa(i%s.Namespaces) }

// Name gives the short name of service i.
func (s Spec) Name(i int) string { return "svc-" + strconv.Itoa(i) }

// Host gives the host name of service i.
func (s Spec) Host(i int) string { return s.Name(i) + "." + s.Namespace(i) + suffix }

// Locality gives the locality of replica r in member m.
func (s Spec) Locality(m, r int) model.Locality {
	return model.Locality{Region: "region-" + strconv.Itoa(m%5), Zone: "zone-" + strconv.Itoa(r%max(1, s.Zones))}
}

// Homes gives the members that have service i.
func (s Spec) Homes(i int) []int {
	ms := make([]int, s.Spread)
	step := s.Members/s.Spread + 1 // of all networks: see Network
	for k := range ms {
		ms[k] = (i + k*step) % s.Members
	}
	return ms
}

// Home gives a member of the main network that has service i, and false if none does.
func (s Spec) Home(i int) (int, bool) {
	for _, m := range s.Homes(i) {
		if s.Network(m) == s.MainNetwork() {
			return m, true
		}
	}
	return 0, false
}

// States gives what each member's registry knows at first.
func (s Spec) States() []*model.ShardState {
	bs := make([]*model.ShardBuilder, s.Members)
	for m := range bs {
		bs[m] = model.NewShardBuilder()
	}
	for i := range s.Services {
		for _, m := range s.Homes(i) {
			s.add(bs[m], i, m)
		}
	}
	out := make([]*model.ShardState, s.Members)
	for m, b := range bs {
		out[m] = b.Build()
	}
	return out
}

func (s Spec) add(b *model.ShardBuilder, i, m int) {
	svc, pods := s.service(i, m), s.pods(i, m)
	slice := s.slice(i, m, pods)
	b.Add(svc.Source.Object.String(), svc)
	b.Add(slice.Source.Object.String(), slice)
	if !s.Workloads {
		return
	}
	for _, p := range pods {
		w := s.workload(i, m, p)
		b.Add(w.Source.Object.String(), w)
	}
}

// Create gives the rows of a service that was not there at first: number n, in member m, with one
// endpoint.
func (s Spec) Create(n, m int) []model.Event {
	one := s
	one.PerMember, one.Mixed = 1, false
	svc := one.service(n, m)
	return []model.Event{
		{Row: model.RowKey{Kind: model.RowService, Key: svc.Source.Object.String()}, Obj: svc},
		one.Endpoints(n, m, netip.Addr{}),
	}
}

func (s Spec) source(m int, kind, ns, name string) model.Source {
	return model.Source{Shard: s.Shard(m), Object: model.ObjectKey{Kind: kind, Namespace: ns, Name: name}, Revision: "1", Time: epoch}
}

func (s Spec) service(i, m int) *model.Service {
	ns, name := s.Namespace(i), s.Name(i)
	return &model.Service{
		Host: s.Host(i), Namespace: ns, Name: name, Ports: s.ports(i), Addresses: []netip.Prefix{netip.PrefixFrom(virtual(i), 32)},
		Selector: model.Selector{Labels: model.Labels{"app": name}}, Labels: model.Labels{"app": name}, Created: epoch,
		Source: s.source(m, kindService, ns, name),
	}
}

// ports: of twenty services of a mixed mesh, fourteen are HTTP, three gRPC, two have a second HTTP
// port and one is TCP.
func (s Spec) ports(i int) []model.Port {
	web := model.Port{Name: "http", Number: 80, Protocol: model.ProtocolHTTP, TargetPort: 8080}
	switch k := i % 20; {
	case !s.Mixed || k < 14:
		return []model.Port{web}
	case k < 17:
		return []model.Port{{Name: "grpc", Number: 9090, Protocol: model.ProtocolGRPC}}
	case k < 19:
		return []model.Port{web, {Name: "http-admin", Number: 9000, Protocol: model.ProtocolHTTP}}
	default:
		return []model.Port{{Name: "tcp", Number: 5432, Protocol: model.ProtocolTCP}}
	}
}

// virtual gives the virtual address of service i; members use one range for theirs.
func virtual(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 96 + byte(i>>16), byte(i >> 8), byte(i)})
}

// address gives the address of replica r of service i in member m. Members reuse one range.
func (s Spec) address(i, m, r int) netip.Addr {
	n := i*s.PerMember + r
	return netip.AddrFrom4([4]byte{10, 16 + byte(m&31), byte(n >> 8), byte(n)})
}

// Endpoints gives the endpoints of service i in member m; the first has the address in place of its
// own, if that is valid.
func (s Spec) Endpoints(i, m int, first netip.Addr) model.Event {
	pods := s.pods(i, m)
	if first.IsValid() {
		pods[0].ip = first
	}
	e := s.slice(i, m, pods)
	return model.Event{Row: model.RowKey{Kind: model.RowEndpoints, Key: e.Source.Object.String()}, Obj: e}
}

// pod is one replica: what the rows that tell of it have in common, as a registry shares it.
type pod struct {
	ip       netip.Addr
	name     string
	node     string
	account  string
	locality model.Locality
	labels   model.Labels
}

func (s Spec) pods(i, m int) []pod {
	account := "spiffe://cluster.local/ns/" + s.Namespace(i) + "/sa/" + s.Name(i)
	ps := make([]pod, s.PerMember)
	for r := range ps {
		l := s.Locality(m, r)
		ps[r] = pod{ip: s.address(i, m, r), name: s.pod(i, r), node: s.node(i, m, r), account: account, locality: l, labels: model.Labels{
			"app": s.Name(i), "version": "v" + strconv.Itoa(1+r%2), "pod-template-hash": "7c5d9f8b6c", "security.istio.io/tlsMode": model.TLSIstio,
			"topology.kubernetes.io/region": l.Region, "topology.kubernetes.io/zone": l.Zone, "topology.istio.io/cluster": string(s.Member(m)),
		}}
	}
	return ps
}

func (s Spec) pod(i, r int) string { return s.Name(i) + "-7c5d9f8b6c-" + strconv.Itoa(r) }

func (s Spec) node(i, m, r int) string { return fmt.Sprintf("node-%d-%d", m, (i+r)%100) }

func (s Spec) slice(i, m int, pods []pod) *model.Endpoints {
	ns, name := s.Namespace(i), s.Name(i)
	e := &model.Endpoints{Host: s.Host(i), Namespace: ns, Source: s.source(m, kindSlice, ns, name+"-abcde")}
	for _, p := range s.ports(i) {
		for _, x := range pods {
			e.Endpoints = append(e.Endpoints, s.endpoint(ns, m, x, p, &e.Source))
		}
	}
	return e
}

func (s Spec) endpoint(ns string, m int, x pod, p model.Port, src *model.Source) model.Endpoint {
	target := p.Number
	if p.TargetPort != 0 {
		target = p.TargetPort
	}
	return model.Endpoint{
		Addr:     model.Addr{Cluster: s.Member(m), AddrPort: netip.AddrPortFrom(x.ip, target)},
		PortName: p.Name, Health: model.Healthy, Labels: x.labels, Locality: x.locality, Network: s.Network(m),
		TLSMode: model.TLSIstio, ServiceAccount: x.account, Node: x.node, Source: src,
		Workload: model.ObjectKey{Kind: kindPod, Namespace: ns, Name: x.name},
	}
}

func (s Spec) workload(i, m int, x pod) *model.Workload {
	ns := s.Namespace(i)
	return &model.Workload{
		Kind: model.KindPod, Namespace: ns, Name: x.name, Labels: x.labels, Network: s.Network(m), Locality: x.locality,
		Address: model.Addr{Cluster: s.Member(m), AddrPort: netip.AddrPortFrom(x.ip, 0)}, ServiceAccount: x.account,
		TLSMode: model.TLSIstio, Health: model.Healthy, Node: x.node, Source: s.source(m, kindPod, ns, x.name),
	}
}

// MeshShard is the key of the registry that reports mesh-wide settings.
func (s Spec) MeshShard() model.ShardKey {
	return model.ShardKey{Provider: model.ProviderMesh, Cluster: s.Member(0)}
}

// Mesh gives the mesh-wide settings: a gateway for every network.
func (s Spec) Mesh() *model.ShardState {
	b := model.NewShardBuilder()
	if s.Networks == 0 {
		return b.Build()
	}
	nets := &meshconfig.MeshNetworks{Networks: map[string]*meshconfig.Network{}}
	for n := range s.Networks {
		nets.Networks[networkName(n)] = &meshconfig.Network{Gateways: []*meshconfig.Network_IstioNetworkGateway{{
			Gw: &meshconfig.Network_IstioNetworkGateway_Address{Address: fmt.Sprintf("192.0.2.%d", n+1)}, Port: 15443,
		}}}
	}
	src := model.Source{Shard: s.MeshShard(), Object: model.ObjectKey{Kind: model.ConfigNetworks, Name: "networks"}, Time: epoch}
	return b.Add(src.Object.String(), &model.Config{Kind: model.ConfigNetworks, Name: "networks", Spec: nets, Source: src}).Build()
}
