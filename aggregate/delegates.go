package aggregate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// maxDelegated bounds the routes and conditions of one VirtualService that come from delegates: each of a root's
// conditions is joined with each of a delegate's.
const maxDelegated = 100_000

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
	var origins []int
	specs := map[*model.Config]*networking.VirtualService{} // of delegates, complete
	for i, h := range r.Spec.Http {
		d := h.GetDelegate()
		if d == nil {
			out, origins = append(out, h), append(origins, -1)
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
		spec := specs[c]
		if spec == nil {
			spec = proto.Clone(c.Spec.(*networking.VirtualService)).(*networking.VirtualService)
			complete(spec, c.Namespace, m.view.DomainSuffix)
			specs[c] = spec
		}
		if !pushcontext.NewExport(spec.ExportTo, m.view.Config.DefaultVirtualServiceExportTo, c.Namespace).Includes(r.Namespace) {
			r.unused(i, c.Source, "it delegates to a VirtualService that is not exported to its namespace")
			continue
		}
		at := slices.IndexFunc(r.Delegates, func(s model.Source) bool { return sameSource(&s, &c.Source) })
		if at < 0 {
			at = len(r.Delegates)
			r.Delegates = append(r.Delegates, c.Source)
		}
		taken := r.merge(i, h, c, spec.Http)
		out, origins = append(out, taken...), append(origins, slices.Repeat([]int{at}, len(taken))...)
	}
	r.Spec.Http = out
	if len(r.Delegates) > 0 {
		r.Origins = origins
	}
}

// unused notes that a route is left out.
func (r *route) unused(index int, by model.Source, why string) {
	r.conflicts = append(r.conflicts, pushcontext.Conflict{
		Field: model.ConfigVirtualService, Winner: by, Loser: r.Source, Detail: fmt.Sprintf("http[%d] is left out: %s", index, why),
		At: fmt.Sprintf("http[%d].delegate", index),
	})
}

// merge gives the routes of a delegate for the requests that are delegated to it. Where both say something, the
// delegate's word counts (delegation in the VirtualService reference); what it matches must be among
// what is matched before, and it can't delegate further.
func (r *route) merge(index int, root *networking.HTTPRoute, c *model.Config, delegated []*networking.HTTPRoute) (out []*networking.HTTPRoute) {
	for i, h := range delegated {
		lost := ""
		r.delegated += 1 + weight(root.Match)*max(len(h.Match), 1) + weight(h.Match)*max(len(root.Match), 1)
		switch matches, outside := r.conditions(root.Match, h.Match); {
		case h.Delegate != nil:
			lost = "a delegate can't delegate"
		case r.delegated > maxDelegated:
			lost = fmt.Sprintf("there are more than %d conditions together: split the VirtualService", maxDelegated)
		case outside >= 0:
			lost = fmt.Sprintf("match[%d] is not among what is delegated to it", outside)
		default:
			out = append(out, mergeHTTP(root, h, matches))
			continue
		}
		r.conflicts = append(r.conflicts, pushcontext.Conflict{
			Field: model.ConfigVirtualService, Winner: r.Source, Loser: c.Source, Detail: fmt.Sprintf("http[%d] is left out of http[%d]: %s", i, index, lost),
			At: fmt.Sprintf("http[%d]", i),
		})
	}
	return out
}

// conditions gives what mergeMatches gives, unless there are too many.
func (r *route) conditions(root, delegate []*networking.HTTPMatchRequest) (merged []*networking.HTTPMatchRequest, outside int) {
	if r.delegated > maxDelegated {
		return nil, -1
	}
	return mergeMatches(root, delegate)
}

// weight counts conditions.
func weight(list []*networking.HTTPMatchRequest) (n int) {
	for _, m := range list {
		n += 1 + len(m.Headers) + len(m.WithoutHeaders) + len(m.QueryParams) + len(m.SourceLabels) + len(m.Gateways)
	}
	return n
}

// mergeHTTP fills in what the delegate's route h leaves out. The result shares parts with both.
func mergeHTTP(root, h *networking.HTTPRoute, matches []*networking.HTTPMatchRequest) *networking.HTTPRoute {
	out := &networking.HTTPRoute{
		Name: joinNames(root.Name, h.Name), Match: matches, Route: h.Route, Redirect: h.Redirect,
		DirectResponse: cmp.Or(h.DirectResponse, root.DirectResponse), Rewrite: cmp.Or(h.Rewrite, root.Rewrite),
		Timeout: cmp.Or(h.Timeout, root.Timeout), Retries: cmp.Or(h.Retries, root.Retries), Fault: cmp.Or(h.Fault, root.Fault),
		CorsPolicy: cmp.Or(h.CorsPolicy, root.CorsPolicy), Headers: cmp.Or(h.Headers, root.Headers),
		Mirror: cmp.Or(h.Mirror, root.Mirror), Mirrors: h.Mirrors, MirrorPercentage: cmp.Or(h.MirrorPercentage, root.MirrorPercentage),
	}
	//lint:ignore SA1019 it is still served
	out.MirrorPercent = cmp.Or(h.MirrorPercent, root.MirrorPercent)
	if len(out.Mirrors) == 0 {
		out.Mirrors = root.Mirrors
	}
	return out
}

func joinNames(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "-" + b
}

// mergeMatches gives each combination of conditions of which the delegate's are among those of the root; none
// matches all. If a condition of the delegate is among none, outside is its place, else -1: Istio then leaves out the whole
// route, for one that serves a part of its requests is nobody's intention.
func mergeMatches(root, delegate []*networking.HTTPMatchRequest) (merged []*networking.HTTPMatchRequest, outside int) {
	if len(root) == 0 {
		return delegate, -1
	}
	if len(delegate) == 0 {
		return root, -1
	}
	for i, b := range delegate {
		before := len(merged)
		for _, a := range root {
			if a != nil && b != nil && matchWithin(a, b) {
				merged = append(merged, mergeMatch(a, b))
			}
		}
		if len(merged) == before {
			return nil, i
		}
	}
	return merged, -1
}

// matchWithin reports whether what b matches may be among what a matches, condition by condition.
func matchWithin(a, b *networking.HTTPMatchRequest) bool {
	return stringWithin(a.Uri, b.Uri) && stringWithin(a.Scheme, b.Scheme) && stringWithin(a.Method, b.Method) && stringWithin(a.Authority, b.Authority) &&
		stringsWithin(a.Headers, b.Headers) && stringsWithin(a.WithoutHeaders, b.WithoutHeaders) && stringsWithin(a.QueryParams, b.QueryParams) &&
		a.IgnoreUriCase == b.IgnoreUriCase && (a.Port == 0 || b.Port == 0 || a.Port == b.Port) &&
		(a.SourceNamespace == "" || a.SourceNamespace == b.SourceNamespace) &&
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

// mergeMatch gives the conditions of both; where both have one, b has the narrower. The result shares parts with both.
func mergeMatch(a, b *networking.HTTPMatchRequest) *networking.HTTPMatchRequest {
	out := &networking.HTTPMatchRequest{
		Name: joinNames(a.Name, b.Name), Uri: cmp.Or(b.Uri, a.Uri), Scheme: cmp.Or(b.Scheme, a.Scheme), Method: cmp.Or(b.Method, a.Method),
		Authority: cmp.Or(b.Authority, a.Authority), Headers: union(a.Headers, b.Headers), WithoutHeaders: union(a.WithoutHeaders, b.WithoutHeaders),
		QueryParams: union(a.QueryParams, b.QueryParams), SourceLabels: union(a.SourceLabels, b.SourceLabels), IgnoreUriCase: b.IgnoreUriCase,
		Port: cmp.Or(b.Port, a.Port), Gateways: b.Gateways, SourceNamespace: b.SourceNamespace, StatPrefix: cmp.Or(b.StatPrefix, a.StatPrefix),
	}
	if len(out.Gateways) == 0 {
		out.Gateways = a.Gateways
	}
	return out
}

// union gives the pairs of both; those of b where both have one.
func union[V any](a, b map[string]V) map[string]V {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	}
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}
