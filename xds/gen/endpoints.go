package gen

import (
	"fmt"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// Endpoints makes EDS resources: one assignment for each served port of a service whose endpoints
// are pushed, empty if it has none, and one of the proxy's peers (see localCluster). A service that proxies resolve by DNS has its endpoints in its
// cluster instead, so both types always agree on how a host is found.
type Endpoints struct{}

// TypeURL implements Generator.
func (Endpoints) TypeURL() string { return EndpointURL }

// Kinds implements Generator.
func (Endpoints) Kinds() []pushcontext.ViewKind {
	return []pushcontext.ViewKind{pushcontext.ViewService, pushcontext.ViewPeers}
}

// Key implements Generator.
func (Endpoints) Key(name string) (pushcontext.ViewKey, bool) {
	if name == localCluster {
		return pushcontext.ViewKey{Kind: pushcontext.ViewPeers}, true
	}
	n, ok := parseOutbound(name)
	return pushcontext.ViewKey{Kind: pushcontext.ViewService, Host: n.host}, ok
}

// Traits implements Generator.
func (Endpoints) Traits(v pushcontext.View) Traits {
	if _, ok := v.(*pushcontext.PeersView); ok {
		return peersTraits
	}
	s, ok := v.(*pushcontext.ServiceView)
	if !ok {
		return 0
	}
	t := endpointTraits(s.Shape) | spreadOf(s).traits()
	if len(s.Demoted) > 0 || hasTwins(s) {
		t |= TraitCluster
	}
	return t | typeTraits(s.Shape) | passthroughTraits(s.Shape)
}

// Narrow implements Narrower.
func (Endpoints) Narrow(v pushcontext.View, c Class) Class {
	if s, ok := v.(*pushcontext.ServiceView); ok {
		return scopeOf(s.Shape).narrow(c)
	}
	return c
}

// Scope implements Narrower.
func (Endpoints) Scope(v pushcontext.View) string {
	if s, ok := v.(*pushcontext.ServiceView); ok {
		return scopeOf(s.Shape).key
	}
	return ""
}

// endpointTraits are the traits that decide between a service's endpoints.
func endpointTraits(s *pushcontext.ShapeView) Traits {
	t := scopeOf(s).traits
	if len(s.Policies) > 0 {
		t |= TraitTLS
	}
	if s.Key.Cluster != "" {
		t |= TraitCluster
	}
	if s.NodeLocal {
		t |= TraitNode | TraitCluster
	}
	return t
}

// typeTraits are the traits that decide which type of cluster stands for a service.
func typeTraits(s *pushcontext.ShapeView) Traits {
	if s.Resolution == model.Passthrough || scopeOf(s).direct {
		return TraitType | TraitInterception
	}
	return 0
}

// Names implements Generator.
func (Endpoints) Names(v pushcontext.View, c Class) []string {
	if _, ok := v.(*pushcontext.PeersView); ok {
		return peersNames(c)
	}
	s, ok := v.(*pushcontext.ServiceView)
	if !ok {
		return nil
	}
	var names []string
	for _, d := range destinationsOf(s.Shape, c) {
		if d.pushed(c) {
			names = append(names, d.name())
		}
	}
	return append(names, pushedPassthroughNames(s.Shape, c)...)
}

// Build implements Generator.
func (Endpoints) Build(v pushcontext.View, c Class, name string) ([]byte, error) {
	if p, ok := v.(*pushcontext.PeersView); ok {
		return peersAssignment(p, c, name)
	}
	s, ok := v.(*pushcontext.ServiceView)
	if !ok {
		return nil, errView(EndpointURL, v)
	}
	if isPassthrough(name) {
		return passthroughAssignment(s, c, name)
	}
	d, ok := destinationNamed(s.Shape, c, name)
	if !ok || !d.pushed(c) {
		return nil, errName(EndpointURL, name)
	}
	return marshal(assignment(name, selectEndpoints(candidatesOf(s, d), c)))
}

func errView(typeURL string, v pushcontext.View) error {
	return fmt.Errorf("no resource of %s is made from a %T", typeURL, v)
}

func errName(typeURL, name string) error {
	return fmt.Errorf("the view has no %s named %q", typeURL, name)
}

func assignment(name string, sel selection) *endpointv3.ClusterLoadAssignment {
	out := &endpointv3.ClusterLoadAssignment{ClusterName: name}
	for _, g := range sel.groups {
		l := &endpointv3.LocalityLbEndpoints{Locality: locality(g.locality), Priority: g.priority, LoadBalancingWeight: u32(g.weight)}
		for _, h := range g.hosts {
			l.LbEndpoints = append(l.LbEndpoints, h.encode())
		}
		out.Endpoints = append(out.Endpoints, l)
	}
	return out
}

func locality(l model.Locality) *corev3.Locality {
	return &corev3.Locality{Region: l.Region, Zone: l.Zone, SubZone: l.Subzone}
}

func (h host) encode() *endpointv3.LbEndpoint {
	out := &endpointv3.LbEndpoint{HealthStatus: envoyHealth(h.health), LoadBalancingWeight: u32(clip(h.weight))}
	if h.endpoint != nil {
		out.Metadata = endpointMetadata(h.endpoint)
	} else {
		out.Metadata = gatewayMetadata(h.gateway)
	}
	to := &endpointv3.Endpoint{Address: address(h.addr())}
	if h.second != nil {
		to.AdditionalAddresses = []*endpointv3.Endpoint_AdditionalAddress{{Address: address(*h.second)}}
	}
	out.HostIdentifier = &endpointv3.LbEndpoint_Endpoint{Endpoint: to}
	return out
}

func envoyHealth(h model.Health) corev3.HealthStatus {
	switch h {
	case model.Unhealthy:
		return corev3.HealthStatus_UNHEALTHY
	case model.Draining:
		return corev3.HealthStatus_DRAINING
	}
	return corev3.HealthStatus_HEALTHY
}

// endpointMetadata names the workload for telemetry, and the transport for later socket matching.
func endpointMetadata(e *model.Endpoint) *corev3.Metadata {
	canonical, revision := canonicalService(e.Labels)
	if revision == "latest" {
		revision = ""
	}
	if canonical == "" {
		canonical = e.Workload.Name
	}
	workload := strings.Join([]string{e.Workload.Name, e.Workload.Namespace, canonical, revision, string(e.Addr.Cluster)}, ";")
	return metadata(workload, speaksMutual(e))
}

func gatewayMetadata(g pushcontext.Gateway) *corev3.Metadata {
	return metadata(";;;;"+string(g.Cluster), true)
}

func metadata(workload string, mutual bool) *corev3.Metadata {
	m := map[string]*structpb.Struct{"istio": structOf(map[string]*structpb.Value{"workload": stringValue(workload)})}
	if mutual {
		m["envoy.transport_socket_match"] = structOf(map[string]*structpb.Value{"tlsMode": stringValue(model.TLSIstio)})
	}
	return &corev3.Metadata{FilterMetadata: m}
}

func firstLabel(l model.Labels, keys ...string) string {
	for _, k := range keys {
		if v := l[k]; v != "" {
			return v
		}
	}
	return ""
}
