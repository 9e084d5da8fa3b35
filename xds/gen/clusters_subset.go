package gen

import (
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// subsets are the endpoints of a view that have the labels of some subset, by these (see labelsOf). They are worked
// out once for all classes, and share the endpoints with the view.
type subsets map[string][]pushcontext.PortEndpoints

// endpointsIn gives the endpoints of a destination, which are among those of a view.
func endpointsIn(v pushcontext.View, all []pushcontext.PortEndpoints, d destination) []pushcontext.LocalityEndpoints {
	if labels := labelsOf(d.rule.subset); labels != "" {
		all = v.Derived().Do(pushcontext.MemoKey{Generator: memoSubsets}, func() any { return makeSubsets(d.shape, all) }).(subsets)[labels]
	}
	return ofPort(all, d.port)
}

// inlineEndpoints are those of a port that are part of the service's definition.
func inlineEndpoints(s *pushcontext.ShapeView, port model.Port) []pushcontext.LocalityEndpoints {
	return ofPort(s.Inline, port)
}

func ofPort(all []pushcontext.PortEndpoints, port model.Port) []pushcontext.LocalityEndpoints {
	for i := range all {
		if all[i].Port == port.Name {
			return all[i].Localities
		}
	}
	return nil
}

// labelsOf are the labels of a subset as one text, "" if every endpoint has them.
func labelsOf(x *networking.Subset) string {
	if len(x.GetLabels()) == 0 {
		return ""
	}
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(x.Labels)) {
		b.WriteString(k + labelEnd + x.Labels[k] + labelEnd)
	}
	return b.String()
}

// makeSubsets is for all subsets of all rules at once, whichever is in force.
func makeSubsets(s *pushcontext.ShapeView, all []pushcontext.PortEndpoints) subsets {
	out := subsets{}
	for _, list := range scopeOf(s).subsets {
		for _, x := range list.all {
			labels := labelsOf(x)
			if _, known := out[labels]; labels != "" && !known {
				out[labels] = withLabels(all, x.Labels)
			}
		}
	}
	return out
}

func withLabels(all []pushcontext.PortEndpoints, labels model.Labels) []pushcontext.PortEndpoints {
	var out []pushcontext.PortEndpoints
	for _, p := range all {
		kept := pushcontext.PortEndpoints{Port: p.Port}
		for _, l := range p.Localities {
			if es := onlyWith(l.Endpoints, labels); len(es) > 0 {
				kept.Localities = append(kept.Localities, pushcontext.LocalityEndpoints{Locality: l.Locality, Endpoints: es})
			}
		}
		out = append(out, kept)
	}
	return out
}

// onlyWith gives the endpoints that have the labels: the list itself if all have.
func onlyWith(list []*model.Endpoint, labels model.Labels) []*model.Endpoint {
	first := slices.IndexFunc(list, func(e *model.Endpoint) bool { return !hasLabels(e, labels) })
	if first < 0 {
		return list
	}
	out := slices.Clone(list[:first])
	for _, e := range list[first+1:] {
		if hasLabels(e, labels) {
			out = append(out, e)
		}
	}
	return out
}

// hasLabels reports whether an endpoint is of a subset. What the hub knows of its place counts as labels.
func hasLabels(e *model.Endpoint, labels model.Labels) bool {
	for k, v := range labels {
		if endpointLabel(e, k) != v {
			return false
		}
		if _, there := e.Labels[k]; v == "" && !there {
			return false
		}
	}
	return true
}
