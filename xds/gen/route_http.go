package gen

import (
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/structpb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// routeContext is where requests come in, and at whose proxy.
type routeContext struct {
	gateway   string // pushcontext.MeshGateway, or "namespace/name" of a Gateway
	port      uint16 // at which requests come in
	tls       bool   // they come in over TLS
	namespace string // of the proxy
	labels    Labels // of the proxy
	mesh      *pushcontext.MeshView
}

// httpRoutes translates the HTTP rules of a VirtualService that hold in a context: a route for each match of each
// rule, in their order. If none holds, applies is false, and the VirtualService says nothing about HTTP here. Rules
// that hold but that no request can match leave no route: requests that match no route are not found.
func httpRoutes(v *pushcontext.VirtualService, x *routeContext) (routes []*routev3.Route, applies bool) {
	for i, r := range v.Spec.GetHttp() {
		for _, m := range matches(r) {
			if !x.selects(m) {
				continue
			}
			applies = true
			out, ok := x.route(v, r, m)
			if !ok {
				continue
			}
			if d := v.Delegate(i); d != nil {
				addDelegate(out.Metadata, d)
			}
			routes = append(routes, out)
			if catchesAll(out.Match) {
				return routes, true // no request gets further
			}
		}
	}
	return routes, applies
}

// rulesFor reports whether any HTTP rule of a VirtualService holds in the context.
func (x *routeContext) rulesFor(v *pushcontext.VirtualService) bool {
	for _, r := range v.Spec.GetHttp() {
		if slices.ContainsFunc(matches(r), x.selects) {
			return true
		}
	}
	return false
}

// matches are the alternatives of a rule; a nil one matches every request.
func matches(r *networking.HTTPRoute) []*networking.HTTPMatchRequest {
	if len(r.GetMatch()) == 0 {
		return []*networking.HTTPMatchRequest{nil}
	}
	return r.Match
}

// selects reports whether a match is for the context. One that names gateways does not look at its sources.
func (x *routeContext) selects(m *networking.HTTPMatchRequest) bool {
	if p := m.GetPort(); p != 0 && p != uint32(x.port) {
		return false
	}
	if gateways := m.GetGateways(); len(gateways) > 0 {
		for _, g := range gateways {
			if g == x.gateway {
				return true
			}
		}
		return false
	}
	for k, v := range m.GetSourceLabels() {
		if x.labels.Value(k) != v {
			return false
		}
	}
	n := m.GetSourceNamespace()
	return n == "" || n == x.namespace
}

// route translates a rule for one of its matches; false if no request can match.
func (x *routeContext) route(v *pushcontext.VirtualService, r *networking.HTTPRoute, m *networking.HTTPMatchRequest) (*routev3.Route, bool) {
	match, ok := routeMatch(m)
	if !ok || r.GetDelegate() != nil {
		return nil, false // the delegate's rules would be in its place
	}
	out := &routev3.Route{Name: routeTitle(r, m), Match: match, StatPrefix: m.GetStatPrefix(), Metadata: configMetadata(v)}
	addHeaders(out, headersOf(r.GetHeaders()))
	switch {
	case r.Redirect != nil:
		x.redirect(out, r.Redirect)
	case r.DirectResponse != nil:
		directResponse(out, r.DirectResponse)
	default:
		x.forward(out, v, r)
	}
	filterConfig(out, r)
	out.Decorator = &routev3.Decorator{Operation: x.operation(v, out)}
	if out.Validate() != nil { // validation of the object has told
		out = &routev3.Route{Match: match, Metadata: out.Metadata}
		answer(out, 500)
	}
	return out, out.Validate() == nil
}

// routeTitle is what access logs call a route.
func routeTitle(r *networking.HTTPRoute, m *networking.HTTPMatchRequest) string {
	switch {
	case m.GetName() == "":
		return r.Name
	case r.Name == "":
		return m.Name
	}
	return r.Name + "." + m.Name
}

// configMetadata names the object that a route is from, as tools expect it.
func configMetadata(v *pushcontext.VirtualService) *corev3.Metadata {
	return configOf(virtualServicePath(v.Namespace, v.Source.Object.Name))
}

// addDelegate names the object that a route was taken from, beside the one that delegates to it.
func addDelegate(m *corev3.Metadata, d *model.Source) {
	m.FilterMetadata["istio"].Fields["delegate"] = stringValue(virtualServicePath(d.Object.Namespace, d.Object.Name))
}

func virtualServicePath(namespace, name string) string {
	return "/apis/networking.istio.io/v1/namespaces/" + namespace + "/virtual-service/" + name
}

func configOf(path string) *corev3.Metadata {
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
		"istio": structOf(map[string]*structpb.Value{"config": stringValue(path)})}}
}

// operation is what traces call a route: where it leads, and the path that it matches.
func (x *routeContext) operation(v *pushcontext.VirtualService, r *routev3.Route) string {
	path := "/*"
	switch p := r.Match.PathSpecifier.(type) {
	case *routev3.RouteMatch_Prefix:
		path = p.Prefix + "*"
	case *routev3.RouteMatch_Path:
		path = p.Path
	case *routev3.RouteMatch_SafeRegex:
		path = p.SafeRegex.Regex
	}
	if parts := strings.SplitN(r.GetRoute().GetCluster(), "|", 4); len(parts) == 4 {
		return parts[3] + ":" + parts[1] + path
	}
	return v.Source.Object.Name + ":" + itoa(x.port) + path
}

// answer has the proxy itself answer, without a body.
func answer(out *routev3.Route, status uint32) {
	out.Action = &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: status}}
}
