package gen

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// Clusters makes CDS resources: one cluster for each served port of a service, one for each port of
// the proxy's own workload, and the fixed ones.
type Clusters struct{}

// TypeURL implements Generator.
func (Clusters) TypeURL() string { return ClusterURL }

// Kinds implements Generator.
func (Clusters) Kinds() []pushcontext.ViewKind {
	return []pushcontext.ViewKind{pushcontext.ViewShape, pushcontext.ViewTargets, pushcontext.ViewMesh}
}

// Key implements Generator.
func (Clusters) Key(name string) (pushcontext.ViewKey, bool) {
	switch name {
	case blackHoleCluster, passthroughCluster, inboundPassthroughCluster:
		return pushcontext.ViewKey{Kind: pushcontext.ViewMesh}, true
	}
	if host, _, ok := parseOutbound(name); ok {
		return pushcontext.ViewKey{Kind: pushcontext.ViewShape, Host: host}, true
	}
	_, ok := parseInbound(name)
	return pushcontext.ViewKey{Kind: pushcontext.ViewTargets}, ok
}

// Traits implements Generator.
func (Clusters) Traits(v pushcontext.View) Traits {
	switch v := v.(type) {
	case *pushcontext.ShapeView:
		return shapeTraits(v)
	case *pushcontext.TargetsView, *pushcontext.MeshView:
		return TraitType | TraitInterception | TraitFamilies
	}
	return 0
}

// Narrow implements Narrower.
func (Clusters) Narrow(v pushcontext.View, c Class) Class {
	if s, ok := v.(*pushcontext.ShapeView); ok {
		return scopeOf(s).narrow(c)
	}
	return c
}

// Scope implements Narrower.
func (Clusters) Scope(v pushcontext.View) string {
	if s, ok := v.(*pushcontext.ShapeView); ok {
		return scopeOf(s).key
	}
	return ""
}

func shapeTraits(s *pushcontext.ShapeView) Traits {
	t := typeTraits(s) | tlsTraits(s) | passthroughTraits(s) | TraitSelf
	if s.Resolution.IsDNS() {
		t |= endpointTraits(s) | inlineSpread(s).traits() | TraitFamilies
		if hasInlineTwins(s) {
			t |= TraitCluster
		}
	}
	for _, p := range s.Ports {
		if p.Protocol.Sniffed() {
			t |= TraitType
		}
	}
	return t
}

// Names implements Generator.
func (Clusters) Names(v pushcontext.View, c Class) []string {
	switch v := v.(type) {
	case *pushcontext.ShapeView:
		if served(v) {
			return append(outboundNames(v), passthroughNames(v, c)...)
		}
	case *pushcontext.TargetsView:
		return inboundClusters(v, c)
	case *pushcontext.MeshView:
		return meshClusters(c)
	}
	return nil
}

func inboundClusters(v *pushcontext.TargetsView, c Class) []string {
	if !c.intercepts() {
		return nil
	}
	var names []string
	for _, p := range inboundPorts(v) {
		names = append(names, inboundName(p.number))
	}
	return names
}

func meshClusters(c Class) []string {
	switch {
	case c.Type == Router:
		return []string{blackHoleCluster}
	case !c.intercepts():
		return []string{blackHoleCluster, passthroughCluster}
	}
	return []string{blackHoleCluster, inboundPassthroughCluster, passthroughCluster}
}

// Build implements Generator.
func (Clusters) Build(v pushcontext.View, c Class, name string) ([]byte, error) {
	var out *clusterv3.Cluster
	switch v := v.(type) {
	case *pushcontext.ShapeView:
		if isPassthrough(name) {
			out = forwardingCluster(v, c, name)
		} else {
			out = outboundCluster(v, c, name)
		}
	case *pushcontext.TargetsView:
		out = inboundCluster(v, c, name)
	case *pushcontext.MeshView:
		out = meshCluster(v, c, name)
	default:
		return nil, errView(ClusterURL, v)
	}
	if out == nil {
		return nil, errName(ClusterURL, name)
	}
	return marshal(out)
}

func outboundCluster(s *pushcontext.ShapeView, c Class, name string) *clusterv3.Cluster {
	port, ok := portNamed(s, name)
	if !ok || !served(s) {
		return nil
	}
	out := baseCluster(s.Mesh, name)
	out.Metadata = serviceMetadata(serviceRef{s.Key.Host, s.Name, s.Key.Namespace})
	out.AltStatName = outboundStatName(s, port)
	switch {
	case pushed(s, c):
		edsCluster(out)
	case s.Resolution.IsDNS():
		dnsCluster(out, s, selectEndpoints(inlineCandidates(s, port), c), c)
	default:
		originalDst(out)
	}
	applyProtocol(out, port.Protocol, c)
	applyTraffic(out, s, port, c)
	applyTLS(out, s, port, c)
	return out
}

func edsCluster(out *clusterv3.Cluster) {
	out.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
	out.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads(), ServiceName: out.Name}
	out.LbPolicy = clusterv3.Cluster_LEAST_REQUEST
}

func originalDst(out *clusterv3.Cluster) {
	out.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST}
	out.LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED
}

// dnsCluster makes a cluster that never waits for a resolver: a silent one would keep the proxy from
// starting. Without endpoints there is no name to resolve and the cluster is an empty one: listeners and
// routes name it all the same.
func dnsCluster(out *clusterv3.Cluster, s *pushcontext.ShapeView, sel selection, c Class) {
	out.LbPolicy = clusterv3.Cluster_LEAST_REQUEST
	kind := clusterv3.Cluster_STRICT_DNS
	if s.Resolution == model.DNSRoundRobin {
		kind = clusterv3.Cluster_LOGICAL_DNS
		sel.single()
	}
	if len(sel.groups) == 0 {
		out.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
		return
	}
	out.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: kind}
	out.LoadAssignment = assignment(out.Name, sel)
	out.WaitForWarmOnInit = no()
	applyDNS(out, s.Mesh, c)
}

// single keeps the first endpoint alone: a LOGICAL_DNS cluster has exactly one.
func (o *selection) single() {
	if len(o.groups) == 0 {
		return
	}
	g := *o.groups[0]
	g.hosts = g.hosts[:1:1]
	g.weight = clip(g.hosts[0].weight)
	o.groups = []*group{&g}
}

func meshCluster(m *pushcontext.MeshView, c Class, name string) *clusterv3.Cluster {
	out := baseCluster(m, name)
	switch {
	case name == blackHoleCluster:
		return &clusterv3.Cluster{Name: name, ConnectTimeout: out.ConnectTimeout,
			ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}}
	case name == passthroughCluster && c.Type == Sidecar:
	case name == inboundPassthroughCluster && c.intercepts():
		out.UpstreamBindConfig = inboundBind(c)
	default:
		return nil
	}
	originalDst(out)
	applyProtocol(out, model.ProtocolUnknown, c)
	return out
}

// inboundBind makes connections to the workload recognisable, so that interception leaves them
// alone. Under TPROXY they keep the caller's address instead.
func inboundBind(c Class) *corev3.BindConfig {
	if c.Interception == InterceptTProxy {
		return nil
	}
	source := "127.0.0.6"
	if c.wildcard().Is6() {
		source = "::6"
	}
	return &corev3.BindConfig{SourceAddress: &corev3.SocketAddress{
		Address: source, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 0}}}
}

func inboundCluster(v *pushcontext.TargetsView, c Class, name string) *clusterv3.Cluster {
	number, ok := parseInbound(name)
	if !ok || !c.intercepts() {
		return nil
	}
	for _, p := range inboundPorts(v) {
		if p.number != number {
			continue
		}
		out := baseCluster(v.Mesh, name)
		originalDst(out)
		out.UpstreamBindConfig = inboundBind(c)
		out.AltStatName = inboundStatName(v.Mesh, p)
		out.Metadata = serviceMetadata(p.services()...)
		applyInboundProtocol(out, p.protocol)
		return out
	}
	return nil
}
