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
	case blackHoleCluster, passthroughCluster, inboundPassthroughCluster, httpProxyCluster:
		return pushcontext.ViewKey{Kind: pushcontext.ViewMesh}, true
	}
	if n, ok := parseOutbound(name); ok {
		return pushcontext.ViewKey{Kind: pushcontext.ViewShape, Host: n.host}, true
	}
	_, ok := parseInbound(name)
	return pushcontext.ViewKey{Kind: pushcontext.ViewTargets}, ok
}

// Traits implements Generator.
func (Clusters) Traits(v pushcontext.View) Traits {
	switch v := v.(type) {
	case *pushcontext.ShapeView:
		return shapeTraits(v)
	case *pushcontext.TargetsView:
		return inboundTraits
	case *pushcontext.MeshView:
		return TraitType | TraitInterception | TraitFamilies | TraitExtensions | TraitScope
	}
	return 0
}

// Narrow implements Narrower.
func (Clusters) Narrow(v pushcontext.View, c Class) Class {
	switch v := v.(type) {
	case *pushcontext.ShapeView:
		return scopeOf(v).narrow(c)
	case *pushcontext.TargetsView:
		return narrowInbound(c)
	case *pushcontext.MeshView:
		return narrowToHTTPProxies(v, c)
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
	if s.Resolution == model.DynamicDNS {
		t |= TraitFamilies
	}
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
		return append(outboundNames(v, c), passthroughNames(v, c)...)
	case *pushcontext.TargetsView:
		return inboundNames(v, c)
	case *pushcontext.MeshView:
		return meshClusters(v, c)
	}
	return nil
}

func meshClusters(m *pushcontext.MeshView, c Class) []string {
	if c.Type == Router {
		return []string{blackHoleCluster}
	}
	names := []string{blackHoleCluster, passthroughCluster}
	if c.intercepts() {
		names = []string{blackHoleCluster, inboundPassthroughCluster, passthroughCluster}
	}
	if hasHTTPProxyCluster(m, c) {
		names = append(names, httpProxyCluster)
	}
	return names
}

// Build implements Generator.
func (Clusters) Build(v pushcontext.View, c Class, name string) ([]byte, error) {
	var out *draft
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
	return marshal(out.finish())
}

func outboundNames(s *pushcontext.ShapeView, c Class) []string {
	list := destinationsOf(s, c)
	names := make([]string, len(list))
	for i, d := range list {
		names[i] = d.name()
	}
	return names
}

func outboundCluster(s *pushcontext.ShapeView, c Class, name string) *draft {
	d, ok := destinationNamed(s, c, name)
	if !ok {
		return nil
	}
	out := baseCluster(s.Mesh, name)
	out.Metadata = d.metadata()
	out.AltStatName = outboundStatName(d)
	switch {
	case d.pushed(c):
		edsCluster(out)
	case s.Resolution == model.DynamicDNS:
		dynamicCluster(out, s.Mesh, c)
	case d.resolved(c):
		dnsCluster(out, s, selectEndpoints(inlineCandidates(d), c), c)
	default:
		originalDst(out)
		applyTargetPort(out, d)
	}
	applyProtocol(out, d.port.Protocol, c)
	applyTraffic(out, d, c)
	applyTLS(out, d, c)
	return out
}

func edsCluster(out *draft) {
	out.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
	out.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads(), ServiceName: out.Name}
	out.LbPolicy = clusterv3.Cluster_LEAST_REQUEST
}

func originalDst(out *draft) {
	out.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST}
	out.LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED
}

// applyTargetPort has connections to the addresses of a ServiceEntry opened at another port than the application did.
func applyTargetPort(out *draft, d destination) {
	if t := d.port.TargetPort; !d.shape.Native && t != 0 && t != d.port.Number {
		out.LbConfig = &clusterv3.Cluster_OriginalDstLbConfig_{OriginalDstLbConfig: &clusterv3.Cluster_OriginalDstLbConfig{UpstreamPortOverride: u32(uint32(t))}}
	}
}

// dnsCluster makes a cluster that never waits for a resolver: a silent one would keep the proxy from
// starting. Without endpoints there is no name to resolve and the cluster is an empty one: listeners and
// routes name it all the same.
func dnsCluster(out *draft, s *pushcontext.ShapeView, sel selection, c Class) {
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

func meshCluster(m *pushcontext.MeshView, c Class, name string) *draft {
	out := baseCluster(m, name)
	switch {
	case name == blackHoleCluster:
		return &draft{Cluster: &clusterv3.Cluster{Name: name, ConnectTimeout: out.ConnectTimeout,
			ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}}}
	case name == passthroughCluster && c.Type == Sidecar:
	case name == inboundPassthroughCluster && c.intercepts():
		out.UpstreamBindConfig = inboundBind(c)
	case name == httpProxyCluster && hasHTTPProxyCluster(m, c):
		dynamicCluster(out, m, c)
		applyProtocol(out, model.ProtocolUnknown, c)
		return out
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
