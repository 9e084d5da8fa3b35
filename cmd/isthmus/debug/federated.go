package debug

import (
	"slices"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/analysis"
	"github.com/isthmus-mesh/isthmus/clusters/holdback"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// Federation is how a FederatedService makes a service of several sources.
type Federation struct {
	Source  Source            `json:"source"` // the FederatedService
	Policy  string            `json:"policy"`
	Sources []FederatedSource `json:"sources"`
}

// FederatedSource is one source of a service, and what came of it.
type FederatedSource struct {
	Name      string   `json:"name"`
	Host      string   `json:"host,omitempty"` // "" if it is workloads with certain labels
	Namespace string   `json:"namespace,omitempty"`
	Priority  uint32   `json:"priority"`
	Weight    uint32   `json:"weight"`
	Endpoints int32    `json:"endpoints"`
	Healthy   int32    `json:"healthy"`
	Reason    string   `json:"reason,omitempty"`   // why it gives nothing, or what to know of what it gives
	Unmapped  []string `json:"unmapped,omitempty"` // ports of the service that it has none for
}

// ItemProblem is something about an object that a service, or an endpoint of it, is made of.
type ItemProblem struct {
	Shard string `json:"shard"`
	Problem
}

// federation is nil for a service that no FederatedService makes.
func federation(pc *pushcontext.PushContext, v *pushcontext.ServiceView) *Federation {
	f := v.Shape.Federation
	if f == nil {
		return nil
	}
	out := &Federation{Source: source(f.Source), Policy: f.Policy.String()}
	for i, s := range analysis.Sources(pc, v) {
		of := f.Sources[i]
		out.Sources = append(out.Sources, FederatedSource{
			Name: s.Name, Host: of.Host, Namespace: of.Namespace, Priority: of.Priority, Weight: of.Weight, Endpoints: s.Endpoints, Healthy: s.Healthy, Reason: s.Reason,
			Unmapped: v.Sources[i].Unmapped,
		})
	}
	return out
}

// partOf is the name of the source that an endpoint is of, "" for none.
func partOf(s *pushcontext.ShapeView, e *model.Endpoint) string {
	if from := s.Federation.SourceOf(e); from != nil {
		return from.Name
	}
	return ""
}

// problems are those that registries have with the objects that a service and its endpoints are made of. Removals that are held back are
// asked for, if they can be: a status names only some.
func problems(shards []pushcontext.ShardInfo, held func(model.ShardKey) holdback.Held, x Explanation) (out []ItemProblem) {
	hosts := []string{x.Service.Hostname}
	if x.Federation != nil {
		for _, s := range x.Federation.Sources {
			hosts = append(hosts, s.Host)
		}
	}
	items := map[string][]string{} // keys of rows, by shard
	add := func(s Source) {
		items[s.Shard] = append(items[s.Shard], s.Object)
		for _, host := range hosts {
			items[s.Shard] = append(items[s.Shard], s.Object+"/"+host) // rows of a ServiceEntry end with their host
		}
	}
	for _, c := range x.Contributions {
		add(c.Source)
	}
	for _, e := range x.Endpoints {
		add(e.Source)
	}
	for _, s := range shards {
		of := items[s.Key.String()]
		if len(of) == 0 {
			continue
		}
		slices.Sort(of)
		of = slices.Compact(of)
		list := s.Status.Problems
		if held != nil {
			list = slices.DeleteFunc(slices.Clone(list), func(p model.Problem) bool { return p.Held })
			list = append(list, held(s.Key).Problems(of...)...)
		}
		for _, p := range list {
			if _, is := slices.BinarySearch(of, p.Item); is {
				out = append(out, ItemProblem{s.Key.String(), Problem(p)})
			}
		}
	}
	return slices.CompactFunc(out, func(a, b ItemProblem) bool { return a == b })
}
