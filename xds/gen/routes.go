package gen

import (
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	previoushostsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// Routes makes RDS resources: for each port one table of all HTTP hosts, and for each service whose
// protocol is detected one of its own.
type Routes struct{}

// TypeURL implements Generator.
func (Routes) TypeURL() string { return RouteURL }

// Kinds implements Generator.
func (Routes) Kinds() []pushcontext.ViewKind { return []pushcontext.ViewKind{pushcontext.ViewPort} }

// Key implements Generator.
func (Routes) Key(name string) (pushcontext.ViewKey, bool) {
	r, ok := parseRoute(name)
	return pushcontext.ViewKey{Kind: pushcontext.ViewPort, Port: r.Port}, ok
}

// Traits implements Generator.
func (Routes) Traits(v pushcontext.View) Traits {
	p, ok := v.(*pushcontext.PortView)
	if !ok {
		return 0
	}
	s := summaryOf(p)
	t := s.traits()
	if s.short {
		t |= TraitNamespace
	}
	return t
}

// Names implements Generator.
func (Routes) Names(v pushcontext.View, c Class) []string {
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
		return part(s.shape, partKey{port: p.Number}, func() ([]byte, error) { return ownTable(name, s) })
	case !plan.http || name != sharedRoute(c, p.Number):
		return nil, errName(RouteURL, name)
	}
	return sharedTable(p, c, name)
}

// ownTable routes every host to one service: its listener's address has told it apart already.
func ownTable(name string, s *placed) ([]byte, error) {
	return marshal(&routev3.RouteConfiguration{
		Name: name, VirtualHosts: []*routev3.VirtualHost{virtualHost(s, []string{"*"})},
		ValidateClusters: no(), IgnorePortInHostMatching: true,
	})
}

// Field numbers of RouteConfiguration.
const (
	fieldName         protowire.Number = 1
	fieldVirtualHosts protowire.Number = 2
)

// sharedTable joins the encoded virtual hosts of all services: with thousands of hosts, a change of
// one must not encode the others again. The result is what marshalling the message would give.
func sharedTable(v *pushcontext.PortView, c Class, name string) ([]byte, error) {
	hosts, size, err := encodedHosts(v, c)
	if err != nil {
		return nil, err
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
	switch {
	case c.Type == Router:
		// an unknown host is not found
	case c.intercepts() && allowAny(v.Mesh):
		out.VirtualHosts = []*routev3.VirtualHost{allowAnyHost()}
	default:
		out.VirtualHosts = []*routev3.VirtualHost{blockAllHost()}
	}
	return out
}

// allowAnyHost passes unknown hosts on to where the connection was going.
func allowAnyHost() *routev3.VirtualHost {
	action := routeTo(passthroughCluster)
	return &routev3.VirtualHost{Name: "allow_any", Domains: []string{"*"}, IncludeRequestAttemptCount: true,
		Routes: []*routev3.Route{{Name: "allow_any", Match: prefixSlash(), Action: &routev3.Route_Route{Route: action}}}}
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

// routeTo sends requests to a cluster, without a time limit.
func routeTo(cluster string) *routev3.RouteAction {
	return &routev3.RouteAction{
		ClusterSpecifier:  &routev3.RouteAction_Cluster{Cluster: cluster},
		Timeout:           zero(),
		MaxStreamDuration: &routev3.RouteAction_MaxStreamDuration{MaxStreamDuration: zero(), GrpcTimeoutHeaderMax: zero()},
	}
}

// retries tries a failed request again on another endpoint: the mesh's defaultHttpRetryPolicy, or
// twice.
func retries(m *pushcontext.MeshView) *routev3.RetryPolicy {
	out := &routev3.RetryPolicy{
		RetryOn:                       "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes",
		NumRetries:                    u32(2),
		HostSelectionRetryMaxAttempts: 5,
		RetryHostPredicate: []*routev3.RetryPolicy_RetryHostPredicate{{
			Name:       "envoy.retry_host_predicates.previous_hosts",
			ConfigType: &routev3.RetryPolicy_RetryHostPredicate_TypedConfig{TypedConfig: pack(&previoushostsv3.PreviousHostsPredicate{})},
		}},
	}
	p := m.Config.GetDefaultHttpRetryPolicy()
	if p == nil {
		return out
	}
	if p.Attempts <= 0 {
		return nil
	}
	out.NumRetries = u32(uint32(p.Attempts))
	out.PerTryTimeout = positive(p.PerTryTimeout)
	if p.RetryOn != "" {
		out.RetryOn = p.RetryOn
	}
	return out
}
