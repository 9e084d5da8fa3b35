package xdstest

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// Faults makes chosen resources fail to build.
type Faults struct {
	mu    sync.Mutex
	err   map[string]bool
	panic map[string]bool
}

// Fail makes a resource name fail, by error or by panic.
func (f *Faults) Fail(name string, panics bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err, f.panic = map[string]bool{}, map[string]bool{}
	}
	f.err[name], f.panic[name] = true, panics
}

// Heal undoes Fail.
func (f *Faults) Heal(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.err, name)
}

func (f *Faults) check(name string) error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.err[name] {
		return nil
	}
	if f.panic[name] {
		panic("told to panic for " + name)
	}
	return fmt.Errorf("told to fail for %s", name)
}

// Generators are small stand-ins for the real ones: an EDS cluster, its endpoints, a listener and a
// route table per service port, its virtual hosts for proxies that take them one by one, and a cluster per
// port that the proxy's workload serves. Names are those of the real ones. Faults may be nil.
func Generators(f *Faults) []gen.Generator {
	return []gen.Generator{clusters{f}, endpoints{f}, listeners{f}, routes{f}, virtualHosts{f}}
}

type clusters struct{ f *Faults }

func (clusters) TypeURL() string { return gen.ClusterURL }

func (clusters) Kinds() []pushcontext.ViewKind {
	return []pushcontext.ViewKind{pushcontext.ViewShape, pushcontext.ViewTargets, pushcontext.ViewMesh}
}

func outbound(port uint16, host string) string { return fmt.Sprintf("outbound|%d||%s", port, host) }

func splitCluster(name string) (dir string, port uint16, host string, ok bool) {
	p := strings.Split(name, "|")
	if len(p) != 4 {
		return "", 0, "", false
	}
	n, err := strconv.ParseUint(p[1], 10, 16)
	return p[0], uint16(n), p[3], err == nil
}

func (clusters) Key(name string) (pushcontext.ViewKey, bool) {
	if name == "BlackHoleCluster" {
		return pushcontext.ViewKey{Kind: pushcontext.ViewMesh}, true
	}
	dir, _, host, ok := splitCluster(name)
	switch {
	case ok && dir == "outbound" && host != "":
		return pushcontext.ViewKey{Kind: pushcontext.ViewShape, Host: host}, true
	case ok && dir == "inbound" && host == "":
		return pushcontext.ViewKey{Kind: pushcontext.ViewTargets}, true
	}
	return pushcontext.ViewKey{}, false
}

func (clusters) Traits(v pushcontext.View) gen.Traits {
	if _, ok := v.(*pushcontext.ShapeView); ok {
		return gen.TraitLocality
	}
	return 0
}

func (clusters) Names(v pushcontext.View, _ gen.Class) (out []string) {
	switch v := v.(type) {
	case *pushcontext.ShapeView:
		for _, p := range v.Ports {
			out = append(out, outbound(p.Number, v.Key.Host))
		}
	case *pushcontext.TargetsView:
		seen := map[uint16]bool{}
		for _, t := range v.Targets {
			if !seen[t.Endpoint] {
				seen[t.Endpoint] = true
				out = append(out, fmt.Sprintf("inbound|%d||", t.Endpoint))
			}
		}
	case *pushcontext.MeshView:
		out = []string{"BlackHoleCluster"}
	}
	return out
}

func (g clusters) Build(v pushcontext.View, c gen.Class, name string) ([]byte, error) {
	if err := g.f.check(name); err != nil {
		return nil, err
	}
	m := &clusterv3.Cluster{Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}}
	if s, ok := v.(*pushcontext.ShapeView); ok {
		m.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
		m.AltStatName = c.Locality.String()
		m.ConnectTimeout = durationpb.New(time.Duration(len(s.ServiceAccounts)+1) * time.Second)
	}
	return encode(m)
}

type endpoints struct{ f *Faults }

func (endpoints) TypeURL() string { return gen.EndpointURL }
func (endpoints) Kinds() []pushcontext.ViewKind {
	return []pushcontext.ViewKind{pushcontext.ViewService}
}
func (endpoints) Traits(pushcontext.View) gen.Traits { return gen.TraitCluster }

func (endpoints) Key(name string) (pushcontext.ViewKey, bool) {
	dir, _, host, ok := splitCluster(name)
	return pushcontext.ViewKey{Kind: pushcontext.ViewService, Host: host}, ok && dir == "outbound" && host != ""
}

func (endpoints) Names(v pushcontext.View, _ gen.Class) (out []string) {
	s := v.(*pushcontext.ServiceView)
	for _, p := range s.Shape.Ports {
		out = append(out, outbound(p.Number, s.Shape.Key.Host))
	}
	return out
}

func (g endpoints) Build(v pushcontext.View, _ gen.Class, name string) ([]byte, error) {
	if err := g.f.check("eds/" + name); err != nil {
		return nil, err
	}
	s := v.(*pushcontext.ServiceView)
	m := &endpointv3.ClusterLoadAssignment{ClusterName: name}
	_, number, _, _ := splitCluster(name)
	port, _ := s.Shape.PortNumbered(number)
	for _, l := range s.Port(port.Name) {
		group := &endpointv3.LocalityLbEndpoints{Locality: &corev3.Locality{Region: l.Locality.Region, Zone: l.Locality.Zone}}
		for _, e := range l.Endpoints {
			group.LbEndpoints = append(group.LbEndpoints, &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
				Endpoint: &endpointv3.Endpoint{Address: address(e.Addr.AddrPort.Addr().String(), e.Addr.AddrPort.Port())},
			}})
		}
		m.Endpoints = append(m.Endpoints, group)
	}
	return encode(m)
}

func address(ip string, port uint16) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: ip, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)},
	}}}
}

type listeners struct{ f *Faults }

func (listeners) TypeURL() string                    { return gen.ListenerURL }
func (listeners) Kinds() []pushcontext.ViewKind      { return []pushcontext.ViewKind{pushcontext.ViewPort} }
func (listeners) Traits(pushcontext.View) gen.Traits { return 0 }

func (listeners) Key(name string) (pushcontext.ViewKey, bool) {
	port, ok := strings.CutPrefix(name, "0.0.0.0_")
	n, err := strconv.ParseUint(port, 10, 16)
	return pushcontext.ViewKey{Kind: pushcontext.ViewPort, Port: uint16(n)}, ok && err == nil
}

func (listeners) Names(v pushcontext.View, _ gen.Class) []string {
	return []string{fmt.Sprintf("0.0.0.0_%d", v.(*pushcontext.PortView).Number)}
}

func (g listeners) Build(v pushcontext.View, _ gen.Class, name string) ([]byte, error) {
	if err := g.f.check(name); err != nil {
		return nil, err
	}
	p := v.(*pushcontext.PortView)
	manager, err := anypb.New(&hcmv3.HttpConnectionManager{StatPrefix: name, RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{
		Rds: &hcmv3.Rds{RouteConfigName: strconv.Itoa(int(p.Number)), ConfigSource: &corev3.ConfigSource{
			ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		}},
	}})
	if err != nil {
		return nil, err
	}
	return encode(&listenerv3.Listener{Name: name, Address: address("0.0.0.0", p.Number), FilterChains: []*listenerv3.FilterChain{{
		Filters: []*listenerv3.Filter{{Name: "http", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: manager}}},
	}}})
}

type routes struct{ f *Faults }

func (routes) TypeURL() string               { return gen.RouteURL }
func (routes) Kinds() []pushcontext.ViewKind { return []pushcontext.ViewKind{pushcontext.ViewPort} }
func (routes) Traits(pushcontext.View) gen.Traits {
	return gen.TraitCluster | gen.TraitNamespace | gen.TraitVHDS
}

func (routes) Key(name string) (pushcontext.ViewKey, bool) {
	n, err := strconv.ParseUint(name, 10, 16)
	return pushcontext.ViewKey{Kind: pushcontext.ViewPort, Port: uint16(n)}, err == nil && strconv.FormatUint(n, 10) == name
}

func (routes) Names(v pushcontext.View, _ gen.Class) []string {
	return []string{strconv.Itoa(int(v.(*pushcontext.PortView).Number))}
}

func (g routes) Build(v pushcontext.View, c gen.Class, name string) ([]byte, error) {
	if err := g.f.check(name); err != nil {
		return nil, err
	}
	p := v.(*pushcontext.PortView)
	m := &routev3.RouteConfiguration{Name: name}
	if c.VHDS {
		m.Vhds = &routev3.Vhds{ConfigSource: &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}}
		return encode(m)
	}
	for _, s := range p.Services {
		if s.Visible(c.Cluster, c.Namespace) {
			m.VirtualHosts = append(m.VirtualHosts, virtualHost(s, p.Number, s.Key.String()))
		}
	}
	return encode(m)
}

func virtualHost(s *pushcontext.ShapeView, port uint16, name string) *routev3.VirtualHost {
	return &routev3.VirtualHost{Name: name, Domains: []string{s.Key.Host}, Routes: []*routev3.Route{{
		Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: outbound(port, s.Key.Host)}}},
	}}}
}

type virtualHosts struct{ f *Faults }

func (virtualHosts) TypeURL() string { return gen.VirtualHostURL }
func (virtualHosts) Kinds() []pushcontext.ViewKind {
	return []pushcontext.ViewKind{pushcontext.ViewPort}
}
func (virtualHosts) Traits(v pushcontext.View) gen.Traits { return routes{}.Traits(v) }

func (virtualHosts) Key(name string) (pushcontext.ViewKey, bool) {
	table, _, ok := strings.Cut(name, "/")
	k, isTable := routes{}.Key(table)
	return k, ok && isTable
}

func (virtualHosts) Whole(k pushcontext.ViewKey) string { return strconv.Itoa(int(k.Port)) }
func (virtualHosts) None(table string) string           { return table + "/none" }

func (virtualHosts) Names(v pushcontext.View, c gen.Class) (out []string) {
	p := v.(*pushcontext.PortView)
	for _, s := range p.Services {
		if c.VHDS && s.Visible(c.Cluster, c.Namespace) {
			out = append(out, fmt.Sprintf("%d/%s", p.Number, s.Key.Host))
		}
	}
	return out
}

func (g virtualHosts) Build(v pushcontext.View, _ gen.Class, name string) ([]byte, error) {
	if err := g.f.check("vhds/" + name); err != nil {
		return nil, err
	}
	p := v.(*pushcontext.PortView)
	for _, s := range p.Services {
		if name == fmt.Sprintf("%d/%s", p.Number, s.Key.Host) {
			return encode(virtualHost(s, p.Number, name))
		}
	}
	return nil, fmt.Errorf("no host %s", name)
}

func encode(m proto.Message) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}
