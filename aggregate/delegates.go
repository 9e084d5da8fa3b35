package aggregate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// delegateNames are the objects that routes of a VirtualService delegate to, as "namespace/name", in order.
func delegateNames(c *model.Config) (out []string) {
	for _, h := range c.Spec.(*networking.VirtualService).Http {
		if d := h.GetDelegate(); d != nil {
			out = append(out, delegateName(d, c.Namespace))
		}
	}
	return out
}

func delegateName(d *networking.Delegate, namespace string) string {
	if d.Namespace != "" {
		namespace = d.Namespace
	}
	return namespace + "/" + d.Name
}

// delegate puts the routes of delegates in the place of those that delegate to them. One that can't be used
// leaves its place empty.
func (r *route) delegate(delegates map[string]*model.Config, m *mesh) {
	var out []*networking.HTTPRoute
	for i, h := range r.Spec.Http {
		d := h.GetDelegate()
		if d == nil {
			out = append(out, h)
			continue
		}
		name := delegateName(d, r.Namespace)
		c := delegates[name]
		r.from = append(r.from, c)
		if c == nil {
			space, name, _ := strings.Cut(name, "/")
			r.unused(i, model.Source{Object: model.ObjectKey{Kind: model.ConfigVirtualService, Namespace: space, Name: name}},
				"there is no such VirtualService without hosts to delegate to")
			continue
		}
		spec := proto.Clone(c.Spec.(*networking.VirtualService)).(*networking.VirtualService)
		if !pushcontext.NewExport(spec.ExportTo, m.view.Config.DefaultVirtualServiceExportTo, c.Namespace).Includes(r.Namespace) {
			r.unused(i, c.Source, "it delegates to a VirtualService that is not exported to its namespace")
			continue
		}
		complete(spec, c.Namespace, m.view.DomainSuffix)
		if !slices.ContainsFunc(r.Delegates, func(s model.Source) bool { return sameSource(&s, &c.Source) }) {
			r.Delegates = append(r.Delegates, c.Source)
		}
		out = append(out, r.merge(i, h, c, spec.Http)...)
	}
	r.Spec.Http = out
}

// unused notes that a route is left out.
func (r *route) unused(index int, by model.Source, why string) {
	r.conflicts = append(r.conflicts, pushcontext.Conflict{
		Field: model.ConfigVirtualService, Winner: by, Loser: r.Source, Detail: fmt.Sprintf("http[%d] is left out: %s", index, why),
	})
}

// merge gives the routes of a delegate for the requests that are delegated to it. Where both say something, the
// delegate's word counts (delegation in the VirtualService reference); what it matches must be among
// what is matched before, and it can't delegate further.
func (r *route) merge(index int, root *networking.HTTPRoute, c *model.Config, delegated []*networking.HTTPRoute) (out []*networking.HTTPRoute) {
	for i, h := range delegated {
		lost := ""
		matches, ok := mergeMatches(root.Match, h.Match)
		switch {
		case h.Delegate != nil:
			lost = "a delegate can't delegate"
		case !ok:
			lost = "it matches what is not delegated to it"
		default:
			out = append(out, mergeHTTP(root, h, matches))
			continue
		}
		r.conflicts = append(r.conflicts, pushcontext.Conflict{
			Field: model.ConfigVirtualService, Winner: r.Source, Loser: c.Source, Detail: fmt.Sprintf("http[%d] is left out of http[%d]: %s", i, index, lost),
		})
	}
	return out
}

// mergeHTTP fills in what the delegate's route h leaves out.
func mergeHTTP(root, h *networking.HTTPRoute, matches []*networking.HTTPMatchRequest) *networking.HTTPRoute {
	out := proto.Clone(root).(*networking.HTTPRoute)
	out.Delegate, out.Match = nil, matches
	out.Name = joinNames(root.Name, h.Name)
	out.Route, out.Redirect = h.Route, h.Redirect
	or(&out.DirectResponse, h.DirectResponse)
	or(&out.Rewrite, h.Rewrite)
	or(&out.Timeout, h.Timeout)
	or(&out.Retries, h.Retries)
	or(&out.Fault, h.Fault)
	or(&out.CorsPolicy, h.CorsPolicy)
	or(&out.Headers, h.Headers)
	or(&out.Mirror, h.Mirror)
	//lint:ignore SA1019 it is still served
	or(&out.MirrorPercent, h.MirrorPercent)
	or(&out.MirrorPercentage, h.MirrorPercentage)
	if len(h.Mirrors) > 0 {
		out.Mirrors = h.Mirrors
	}
	return out
}

// or replaces what is there by something, if there is something.
func or[T any](at **T, by *T) {
	if by != nil {
		*at = by
	}
}

func joinNames(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "-" + b
}

// mergeMatches gives each combination of conditions of which the delegate's are among those of the root; none
// matches all. False if there is none.
func mergeMatches(root, delegate []*networking.HTTPMatchRequest) ([]*networking.HTTPMatchRequest, bool) {
	if len(root) == 0 {
		return delegate, true
	}
	if len(delegate) == 0 {
		return cloneMatches(root), true
	}
	var out []*networking.HTTPMatchRequest
	for _, a := range root {
		for _, b := range delegate {
			if a != nil && b != nil && matchWithin(a, b) {
				out = append(out, mergeMatch(a, b))
			}
		}
	}
	return out, len(out) > 0
}

func cloneMatches(list []*networking.HTTPMatchRequest) []*networking.HTTPMatchRequest {
	out := make([]*networking.HTTPMatchRequest, 0, len(list))
	for _, m := range list {
		out = append(out, proto.Clone(m).(*networking.HTTPMatchRequest))
	}
	return out
}

// matchWithin reports whether what b matches may be among what a matches, condition by condition.
func matchWithin(a, b *networking.HTTPMatchRequest) bool {
	return stringWithin(a.Uri, b.Uri) && stringWithin(a.Scheme, b.Scheme) && stringWithin(a.Method, b.Method) && stringWithin(a.Authority, b.Authority) &&
		stringsWithin(a.Headers, b.Headers) && stringsWithin(a.WithoutHeaders, b.WithoutHeaders) && stringsWithin(a.QueryParams, b.QueryParams) &&
		a.IgnoreUriCase == b.IgnoreUriCase && (a.Port == 0 || b.Port == 0 || a.Port == b.Port) &&
		(a.SourceNamespace == "" || b.SourceNamespace == "" || a.SourceNamespace == b.SourceNamespace) &&
		labelsWithin(a.SourceLabels, b.SourceLabels) && gatewaysWithin(a.Gateways, b.Gateways)
}

func stringsWithin(a, b map[string]*networking.StringMatch) bool {
	for k, m := range b {
		if !stringWithin(a[k], m) {
			return false
		}
	}
	return true
}

func labelsWithin(a, b map[string]string) bool {
	for k, v := range b {
		if have, ok := a[k]; ok && have != v {
			return false
		}
	}
	return true
}

// gatewaysWithin reports whether the gateways of a delegate's match are among those of the root's, none being all.
func gatewaysWithin(a, b []string) bool {
	return len(a) == 0 || !slices.ContainsFunc(b, func(g string) bool { return !slices.Contains(a, g) })
}

// stringWithin reports whether a condition narrows another. Nothing is known of regular expressions: beside one
// there must be no other.
func stringWithin(a, b *networking.StringMatch) bool {
	if a.GetMatchType() == nil || b.GetMatchType() == nil {
		return true
	}
	switch b := b.MatchType.(type) {
	case *networking.StringMatch_Exact:
		switch a := a.MatchType.(type) {
		case *networking.StringMatch_Exact:
			return a.Exact == b.Exact
		case *networking.StringMatch_Prefix:
			return strings.HasPrefix(b.Exact, a.Prefix)
		}
	case *networking.StringMatch_Prefix:
		if a, ok := a.MatchType.(*networking.StringMatch_Prefix); ok {
			return strings.HasPrefix(b.Prefix, a.Prefix)
		}
	}
	return false
}

// mergeMatch gives the conditions of both; where both have one, b has the narrower.
func mergeMatch(a, b *networking.HTTPMatchRequest) *networking.HTTPMatchRequest {
	out := proto.Clone(a).(*networking.HTTPMatchRequest)
	out.Name = joinNames(a.Name, b.Name)
	or(&out.Uri, b.Uri)
	or(&out.Scheme, b.Scheme)
	or(&out.Method, b.Method)
	or(&out.Authority, b.Authority)
	out.Headers = union(a.Headers, b.Headers)
	out.WithoutHeaders = union(a.WithoutHeaders, b.WithoutHeaders)
	out.QueryParams = union(a.QueryParams, b.QueryParams)
	out.SourceLabels = union(a.SourceLabels, b.SourceLabels)
	if b.Port != 0 {
		out.Port = b.Port
	}
	if len(b.Gateways) > 0 {
		out.Gateways = b.Gateways
	}
	if b.SourceNamespace != "" {
		out.SourceNamespace = b.SourceNamespace
	}
	if b.StatPrefix != "" {
		out.StatPrefix = b.StatPrefix
	}
	return out
}

func union[V any](a, b map[string]V) map[string]V {
	if len(a) == 0 {
		return b
	}
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}
