package debug

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

func (h *handler) explain(r *http.Request) (any, error) {
	pc, err := h.snapshot()
	if err != nil {
		return nil, err
	}
	services, err := findServices(pc, r)
	lost := orphans(pc, r)
	if err != nil && (len(lost) == 0 || statusOf(err) != http.StatusNotFound) {
		return nil, err
	}
	explain := func(v *pushcontext.ServiceView) Explanation {
		p := v.Shape.Policy(v.Shape.Key.Namespace)
		x := explanation(v, p)
		x.Rule = rule(pc, p)
		return x
	}
	if r.URL.Query().Get("proxyID") != "" {
		if explain, err = h.explainerFor(pc, r); err != nil {
			return nil, err
		}
	}
	out := make([]Explanation, 0, len(services))
	for _, v := range services {
		x := explain(v)
		x.Federation = federation(pc, v)
		out = append(out, x)
	}
	out = append(out, lost...)
	for i := range out {
		out[i].Stale, out[i].Problems = outages(h.Shards(), out[i]), problems(h.Shards(), h.HeldBack, out[i])
	}
	return out, nil
}

// outages are those of the shards that a service or its endpoints are from.
func outages(shards []pushcontext.ShardInfo, x Explanation) (out []Outage) {
	from := map[string]bool{}
	for _, c := range x.Contributions {
		from[c.Source.Shard] = true
	}
	for _, e := range x.Endpoints {
		from[e.Source.Shard] = true
	}
	for _, s := range shards {
		if s.Status.State == model.StateStale && from[s.Key.String()] {
			out = append(out, Outage{Shard: s.Key.String(), Since: s.Status.Since})
		}
	}
	return out
}

// orphans explains endpoints of services that nobody defines.
func orphans(pc *pushcontext.PushContext, r *http.Request) []Explanation {
	host, namespace := r.URL.Query().Get("host"), r.URL.Query().Get("namespace")
	var out []Explanation
	for _, key := range slices.SortedFunc(maps.Keys(pc.NoService), model.ServiceKey.Compare) {
		if !stands(pc, host, key.Host) || namespace != "" && key.Namespace != namespace {
			continue
		}
		v := &pushcontext.ServiceView{Shape: &pushcontext.ShapeView{Key: key}, LeftOut: pc.NoService[key]}
		x := definition(v)
		x.Service.Resolution, x.Service.ExportTo = "", []string{}
		x.Reason = string(model.ReasonNoService) + ": nothing defines it"
		out = append(out, withLeftOut(x, v))
	}
	return out
}

// explanation is what holds for every proxy.
func explanation(v *pushcontext.ServiceView, p *pushcontext.DestinationPolicy) Explanation {
	x := definition(v)
	for port, e := range all(v) {
		out := endpoint(port, e, p)
		out.Part = partOf(v.Shape, e)
		x.Endpoints = append(x.Endpoints, out)
	}
	return withLeftOut(x, v)
}

func definition(v *pushcontext.ServiceView) Explanation {
	x := Explanation{Service: service(v), Contributions: []Contribution{}, Endpoints: []Endpoint{}}
	for _, k := range v.Demoted {
		x.Demoted = append(x.Demoted, k.String())
	}
	for _, c := range v.Shape.Contributions {
		x.Contributions = append(x.Contributions, Contribution{Source: source(c.Source), Won: c.Won})
	}
	for _, c := range v.Shape.Conflicts {
		x.Conflicts = append(x.Conflicts, Conflict{Field: c.Field, Winner: source(c.Winner), Loser: source(c.Loser), Detail: c.Detail})
	}
	return x
}

func withLeftOut(x Explanation, v *pushcontext.ServiceView) Explanation {
	for _, l := range v.LeftOut {
		x.Endpoints = append(x.Endpoints, Endpoint{
			Address: l.Addr.String(), Cluster: string(l.Addr.Cluster), Port: l.Port, Source: source(l.Source),
			Reason: string(l.Reason), Detail: l.Detail,
		})
	}
	return x
}

// explainerFor explains as one proxy sees it: by the rule that its resources are made with.
func (h *handler) explainerFor(pc *pushcontext.PushContext, r *http.Request) (func(*pushcontext.ServiceView) Explanation, error) {
	p, err := h.findProxy(r)
	if err != nil {
		return nil, err
	}
	class, reader, err := h.Proxies.Audience(p.ConnectionID)
	if err != nil {
		return nil, err
	}
	return func(v *pushcontext.ServiceView) Explanation {
		x := definition(v)
		inForce := gen.RuleFor(v.Shape, class)
		x.Proxy, x.Reason, x.Rule = p.NodeID, unseen(pc, v, reader), rule(pc, inForce)
		for _, port := range v.Shape.Ports {
			for _, d := range verdicts(v, class, port) {
				e := verdict(port.Name, d, inForce, x.Reason)
				e.Part = partOf(v.Shape, d.Endpoint)
				if e.Priority != nil && *e.Priority > 0 {
					e.Detail = strings.Trim(e.Detail+"; "+gen.ExplainPriority(v, class, port, d.Endpoint), "; ")
				}
				x.Endpoints = append(x.Endpoints, e)
			}
		}
		return withLeftOut(x, v)
	}, nil
}

// rule tells of a DestinationRule in force, nil if there is none.
func rule(pc *pushcontext.PushContext, p *pushcontext.DestinationPolicy) *Rule {
	if p == nil {
		return nil
	}
	out := &Rule{Source: source(p.Source)}
	parts := append([]model.Source{p.Source}, p.Merged...)
	for _, m := range p.Merged {
		out.Merged = append(out.Merged, source(m))
	}
	for _, c := range pc.Configs {
		for _, s := range parts {
			if c.Source.Shard == s.Shard && c.Source.Object == s.Object {
				out.NotServedFields = append(out.NotServedFields, c.NotServedFields...)
			}
		}
	}
	slices.Sort(out.NotServedFields)
	out.NotServedFields = slices.Compact(out.NotServedFields)
	return out
}

// verdicts are on what a router forwards to for other networks, if it does, or on what a proxy calls.
func verdicts(v *pushcontext.ServiceView, c gen.Class, port model.Port) []gen.Verdict {
	if forwarded := gen.ExplainPassthrough(v, c, port); forwarded != nil {
		return forwarded
	}
	return gen.ExplainEndpoints(v, c, port)
}

// unseen says why a proxy does not see a service, "" if it does.
func unseen(pc *pushcontext.PushContext, v *pushcontext.ServiceView, r pushcontext.Reader) string {
	key := v.Shape.Key
	switch {
	case key.Cluster != "" && key.Cluster != r.Cluster:
		return fmt.Sprintf("%s: only proxies of cluster %s see it, this one is in %s", model.ReasonClusterLocal, key.Cluster, r.Cluster)
	case !v.Shape.Export.Includes(r.Namespace):
		return fmt.Sprintf("%s: it is exported to %s, not to %s", model.ReasonHidden, strings.Join(exportTo(v.Shape.Export), ","), r.Namespace)
	}
	if used := pc.Host(key.Host).Resolve(&r); used != v {
		return fmt.Sprintf("%s: for this proxy the host means the service of namespace %s", model.ReasonConflictLost, used.Shape.Key.Namespace)
	}
	return ""
}

func endpoint(port string, e *model.Endpoint, p *pushcontext.DestinationPolicy) Endpoint {
	return Endpoint{
		Address: e.Addr.String(), Cluster: string(e.Addr.Cluster), Port: port, Health: e.Health.String(),
		Locality: e.Locality.String(), Network: e.Network, Weight: cmp.Or(e.Weight, 1), TLSMode: e.TLSMode,
		Workload: workload(e.Workload), ServiceAccount: e.ServiceAccount, Source: sourceOf(e), Subsets: gen.SubsetsWith(p, e), Alternatives: alternatives(e),
	}
}

// alternatives are those of an endpoint by network.
func alternatives(e *model.Endpoint) map[string]string {
	if e.Alternatives == nil {
		return nil
	}
	out := map[string]string{}
	for _, a := range *e.Alternatives {
		out[a.Network] = a.Addr("").String()
	}
	return out
}

// verdict is an endpoint as the proxy is sent it, or the reason why it is not. What leaves out the
// whole service leaves out each endpoint.
func verdict(port string, d gen.Verdict, p *pushcontext.DestinationPolicy, unseen string) Endpoint {
	out := endpoint(port, d.Endpoint, p)
	out.Reason, out.Detail = string(d.Reason), d.Detail
	if unseen != "" && d.Sent {
		out.Reason, _, _ = strings.Cut(unseen, ":")
	}
	if out.Reason == "" {
		out.Priority, out.Weight, out.Health, out.Via = &d.Priority, float64(d.Weight), d.Health.String(), addresses(d.Gateways)
		if d.Alternative != nil {
			out.Via = d.Alternative.Addr("").String()
		}
	}
	return out
}

func addresses(list []model.Addr) string {
	out := make([]string, 0, len(list))
	for _, a := range list {
		out = append(out, a.String())
	}
	return strings.Join(out, ",")
}

func workload(k model.ObjectKey) string {
	if k.Name == "" {
		return ""
	}
	return k.String()
}

func sourceOf(e *model.Endpoint) Source {
	if e.Source == nil {
		return Source{}
	}
	return source(*e.Source)
}

func source(s model.Source) Source {
	return Source{Shard: s.Shard.String(), Object: s.Object.String(), Revision: s.Revision, Time: s.Time}
}
