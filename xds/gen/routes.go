package gen

import (
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// Routes makes RDS resources: for each port one table of all HTTP hosts, and for each service whose
// protocol is detected one of its own.
type Routes struct{}

// TypeURL implements Generator.
func (Routes) TypeURL() string { return RouteURL }

// Kinds implements Generator.
func (Routes) Kinds() []pushcontext.ViewKind {
	return []pushcontext.ViewKind{pushcontext.ViewPort, pushcontext.ViewGateways, pushcontext.ViewPorts}
}

// Key implements Generator.
func (Routes) Key(name string) (pushcontext.ViewKey, bool) {
	if isHTTPProxy(name) {
		return pushcontext.ViewKey{Kind: pushcontext.ViewPorts}, true
	}
	if gatewayTable(name) {
		return pushcontext.ViewKey{Kind: pushcontext.ViewGateways}, true
	}
	r, ok := parseRoute(name)
	return pushcontext.ViewKey{Kind: pushcontext.ViewPort, Port: r.Port}, ok
}

// Traits implements Generator.
func (Routes) Traits(v pushcontext.View) Traits {
	switch v.(type) {
	case *pushcontext.GatewaysView:
		return planTraits
	case *pushcontext.PortsView:
		return httpProxyTraits
	}
	p, ok := v.(*pushcontext.PortView)
	if !ok {
		return 0
	}
	s := summaryOf(p)
	t := s.traits() | TraitVHDS
	if s.short {
		t |= TraitNamespace
	}
	return t | routingOf(p).traits()
}

// Names implements Generator.
func (Routes) Names(v pushcontext.View, c Class) []string {
	if g, ok := v.(*pushcontext.GatewaysView); ok {
		return routerPlanOf(g, c).tableNames()
	}
	if all, ok := v.(*pushcontext.PortsView); ok {
		return httpProxyTables(all, c)
	}
	p, ok := v.(*pushcontext.PortView)
	if !ok {
		return nil
	}
	plan := planOf(p, c)
	var names []string
	if plan.http {
		names = append(names, sharedRoute(c, p.Number))
	}
	for _, h := range plan.hosts {
		names = append(names, sniffedRoute(h, p.Number))
	}
	return names
}

// Build implements Generator.
func (Routes) Build(v pushcontext.View, c Class, name string) ([]byte, error) {
	if g, ok := v.(*pushcontext.GatewaysView); ok {
		return gatewayTableOf(g, c, name)
	}
	if all, ok := v.(*pushcontext.PortsView); ok {
		return httpProxyTable(all, c, name)
	}
	p, ok := v.(*pushcontext.PortView)
	if !ok {
		return nil, errView(RouteURL, v)
	}
	r, ok := parseRoute(name)
	if !ok || r.Port != p.Number {
		return nil, errName(RouteURL, name)
	}
	plan := planOf(p, c)
	switch {
	case r.Host != "":
		n, ok := plan.byHost[r.Host]
		if !ok {
			return nil, errName(RouteURL, name)
		}
		s := &plan.services[n]
		k := routesFor(s.shape, c, p.Number)
		return part(s.shape, partKey{port: p.Number, routes: k}, func() ([]byte, error) { return ownTable(name, s, k) })
	case !plan.http || name != sharedRoute(c, p.Number):
		return nil, errName(RouteURL, name)
	}
	return sharedTable(p, c, name)
}

// ownTable routes every host to one service: its listener's address has told it apart already.
func ownTable(name string, s *placed, k routeKey) ([]byte, error) {
	out := &routev3.RouteConfiguration{
		Name: name, VirtualHosts: []*routev3.VirtualHost{virtualHost(s, s, []string{"*"}, k)},
		ValidateClusters: no(), IgnorePortInHostMatching: true,
	}
	if k.service != nil && slices.ContainsFunc(k.service.Spec.GetHttp(), largeBody) {
		out.MaxDirectResponseBodySizeBytes = u32(maxDirectResponse)
	}
	return marshal(out)
}

// Field numbers of RouteConfiguration.
const (
	fieldName         protowire.Number = 1
	fieldVirtualHosts protowire.Number = 2
)

// sharedTable joins the encoded virtual hosts of all services: with thousands of hosts, a change of
// one must not encode the others again. The result is what marshalling the message would give. A proxy that
// takes virtual hosts one by one is given none of them here.
func sharedTable(v *pushcontext.PortView, c Class, name string) ([]byte, error) {
	var hosts [][]byte
	size := 0
	if !c.VHDS {
		var err error
		if hosts, size, err = encodedHosts(v, c); err != nil {
			return nil, err
		}
	}
	rest, err := marshal(tableRest(v, c))
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, size+len(name)+len(rest)+16)
	out = protowire.AppendTag(out, fieldName, protowire.BytesType)
	out = protowire.AppendString(out, name)
	for _, h := range hosts {
		out = append(out, h...)
	}
	return append(out, rest...), nil
}

// tableRest is everything of a table but its name and its services.
func tableRest(v *pushcontext.PortView, c Class) *routev3.RouteConfiguration {
	out := &routev3.RouteConfiguration{ValidateClusters: no(), IgnorePortInHostMatching: true}
	if c.VHDS {
		out.Vhds = &routev3.Vhds{ConfigSource: ads()}
	}
	if routingOf(v).bodies {
		out.MaxDirectResponseBodySizeBytes = u32(maxDirectResponse)
	}
	if c.Type == Sidecar { // to a router, an unknown host is not found
		out.VirtualHosts = []*routev3.VirtualHost{unknownHost(c, v.Mesh)}
	}
	return out
}

// unknownHost is for the hosts that no service has. They are refused too where there is nowhere to pass them on to.
func unknownHost(c Class, m *pushcontext.MeshView) *routev3.VirtualHost {
	cluster, ok := unknownTraffic(c, m)
	if ok && (c.intercepts() || cluster != passthroughCluster) {
		return allowAnyHost(cluster)
	}
	return blockAllHost()
}

// allowAnyHost passes unknown hosts on: to where the connection was going, or to a proxy for them.
func allowAnyHost(cluster string) *routev3.VirtualHost {
	return &routev3.VirtualHost{Name: "allow_any", Domains: []string{"*"}, IncludeRequestAttemptCount: true,
		Routes: []*routev3.Route{{Name: "allow_any", Match: prefixSlash(), Action: &routev3.Route_Route{Route: routeTo(cluster)}}}}
}

// blockAllHost answers for unknown hosts where there is nowhere to pass them on to.
func blockAllHost() *routev3.VirtualHost {
	return &routev3.VirtualHost{Name: "block_all", Domains: []string{"*"}, IncludeRequestAttemptCount: true,
		Routes: []*routev3.Route{{Name: "block_all", Match: prefixSlash(),
			Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: 502}}}}}
}

func prefixSlash() *routev3.RouteMatch {
	return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}}
}
