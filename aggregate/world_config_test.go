package aggregate_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	security "istio.io/api/security/v1beta1"
	selectors "istio.io/api/type/v1beta1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

func (w *world) network() string { return []string{"", "n1", "n2", "n3"}[w.pick(4)] }

// expose makes a Service an east-west gateway, sometimes one that lacks something.
func (w *world) expose(s *model.Service) {
	if w.pick(2) == 0 {
		return
	}
	if w.pick(2) == 0 {
		s.Ports = append(slices.Clone(s.Ports), model.Port{Name: "tls", Number: 15443, Protocol: model.ProtocolTLS})
	}
	if n := w.network(); n != "" {
		s.Labels = model.Labels{"topology.istio.io/network": n}
		if w.pick(3) == 0 {
			s.Labels["networking.istio.io/gatewayPort"] = []string{"80", "8080", "x"}[w.pick(3)]
		}
	}
	for range w.pick(3) {
		x := model.Exposure{Host: w.dnsName()}
		if w.pick(2) == 0 {
			x = model.Exposure{IP: netip.MustParseAddr(w.ip())}
		}
		if w.pick(3) == 0 {
			x.Ports = map[uint16]uint16{80: 30080}
		}
		s.Exposed = append(s.Exposed, x)
	}
}

func (w *world) dnsName() string { return []string{"a.example", "B.example.", "b.example"}[w.pick(3)] }

// policy makes a row of a kind that services depend on.
func (w *world) policy(k model.ShardKey) *model.Config {
	c := &model.Config{Namespace: []string{"ns", "other", "istio-system"}[w.pick(3)], Name: w.name(), Created: time.Unix(int64(w.pick(4)), 0), NotServed: w.pick(12) == 0}
	switch w.pick(5) {
	case 0:
		c.Kind, c.Spec = model.ConfigDestinationRule, w.rule()
	case 1:
		c.Kind, c.Spec = model.ConfigPeerAuthentication, w.peerAuthentication()
	case 2:
		c.Kind, c.Spec = model.ConfigGateway, w.gateway()
	case 3:
		c.Kind, c.Spec = model.ConfigNetworkGateway, &model.NetworkGateway{Network: w.network(), Addrs: []model.GatewayAddr{
			{IP: netip.MustParseAddr(w.ip()), Port: []uint16{15443, 0}[w.pick(2)], HBONEPort: uint16(w.pick(2))}, {Host: w.dnsName(), Port: uint16(w.pick(2))},
		}}
	default:
		c.Kind, c.Namespace, c.Name = model.ConfigResolvedHost, "", []string{"a.example", "b.example"}[w.pick(2)]
		spec := &model.ResolvedHost{}
		for range w.pick(3) {
			spec.Addrs = append(spec.Addrs, netip.MustParseAddr(w.ip()))
		}
		c.Spec = spec
	}
	c.Source = w.source(k, c.Kind, c.Name)
	c.Source.Object.Namespace = c.Namespace
	return c
}

func (w *world) rule() *networking.DestinationRule {
	name := w.name()
	r := &networking.DestinationRule{
		Host:     []string{name, host(name), "*.ns.svc.cluster.local", "*.local", "*", "*wrong.local", name + ".ns.svc.clusterset.local"}[w.pick(7)],
		ExportTo: [][]string{nil, {"."}, {"*"}, {"ns"}}[w.pick(4)],
	}
	if w.pick(2) == 0 {
		r.TrafficPolicy = &networking.TrafficPolicy{Tls: &networking.ClientTLSSettings{Mode: networking.ClientTLSSettings_TLSmode(w.pick(4))}}
	}
	if w.pick(4) == 0 {
		r.TrafficPolicy = &networking.TrafficPolicy{LoadBalancer: &networking.LoadBalancerSettings{LbPolicy: &networking.LoadBalancerSettings_ConsistentHash{
			ConsistentHash: &networking.LoadBalancerSettings_ConsistentHashLB{},
		}}}
	}
	if w.pick(2) == 0 {
		r.Subsets = []*networking.Subset{{Name: fmt.Sprint("v", w.pick(3)), Labels: w.labels()}}
	}
	if w.pick(8) == 0 {
		r.WorkloadSelector = &selectors.WorkloadSelector{MatchLabels: w.labels()}
	}
	return r
}

func (w *world) peerAuthentication() *security.PeerAuthentication {
	mode := func() *security.PeerAuthentication_MutualTLS {
		return &security.PeerAuthentication_MutualTLS{Mode: security.PeerAuthentication_MutualTLS_Mode(w.pick(4))}
	}
	p := &security.PeerAuthentication{Mtls: mode()}
	if w.pick(2) == 0 {
		p.Selector = &selectors.WorkloadSelector{MatchLabels: w.labels()}
		p.PortLevelMtls = map[uint32]*security.PeerAuthentication_MutualTLS{8080: mode()}
	}
	return p
}

func (w *world) gateway() *networking.Gateway {
	g := &networking.Gateway{Selector: w.labels()}
	for range w.pick(3) {
		g.Servers = append(g.Servers, &networking.Server{
			Port: &networking.Port{Number: uint32(w.pick(3)) * 15443}, Hosts: [][]string{{"*.local"}, {"*"}, {"ns/*.example", "other/*"}, {"./" + host(w.name())}}[w.pick(4)],
			Tls: &networking.ServerTLSSettings{Mode: networking.ServerTLSSettings_TLSmode(2 + w.pick(2))},
		})
	}
	return g
}

func (w *world) meshNetworks(k model.ShardKey) *model.Config {
	spec := &meshconfig.MeshNetworks{Networks: map[string]*meshconfig.Network{}}
	for range w.pick(3) {
		n := &meshconfig.Network{Endpoints: []*meshconfig.Network_NetworkEndpoints{
			{Ne: &meshconfig.Network_NetworkEndpoints_FromRegistry{FromRegistry: fmt.Sprint("c", 1+w.pick(3))}},
		}}
		for range w.pick(3) {
			g := &meshconfig.Network_IstioNetworkGateway{Port: []uint32{80, 15443, 1 << 16}[w.pick(3)]}
			g.Gw = &meshconfig.Network_IstioNetworkGateway_RegistryServiceName{RegistryServiceName: host(w.name())}
			if w.pick(2) == 0 {
				g.Gw = &meshconfig.Network_IstioNetworkGateway_Address{Address: []string{w.ip(), w.dnsName(), "0.0.0.0"}[w.pick(3)]}
			}
			n.Gateways = append(n.Gateways, g)
		}
		spec.Networks[fmt.Sprint("n", 1+w.pick(3))] = n
	}
	return &model.Config{Kind: model.ConfigNetworks, Name: "networks", Spec: spec, Source: w.source(k, "MeshNetworks", "networks")}
}

// networkOf gives the first network that claims a registry.
func networkOf(nets *meshconfig.MeshNetworks, c model.ClusterID) string {
	for _, name := range slices.Sorted(maps.Keys(nets.GetNetworks())) {
		for _, e := range nets.Networks[name].Endpoints {
			if e.GetFromRegistry() == string(c) {
				return name
			}
		}
	}
	return ""
}
