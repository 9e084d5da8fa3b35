package health

import (
	"maps"
	"slices"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// leftOut counts by reason what is not sent: candidates that no proxy is sent, and endpoints that some
// connected proxy which sees the service is not. An endpoint counts once for each port and reason,
// however many proxies miss it.
type leftOut struct {
	version uint64
	classes map[gen.Class]struct{}
	counts  map[model.Reason]int
}

// census counts for proxies of some classes. Of classes that a service does not tell apart it looks at
// one only: for most services that is one for the whole mesh.
type census struct {
	classes map[gen.Class]struct{}
	told    map[distinction][]gen.Class
	counts  map[model.Reason]int
}

// distinction is what a service tells proxies apart by.
type distinction struct {
	traits gen.Traits
	scope  string // what its policies do
}

func countLeftOut(pc *pushcontext.PushContext, classes map[gen.Class]struct{}) map[model.Reason]int {
	c := &census{classes: classes, told: map[distinction][]gen.Class{}, counts: map[model.Reason]int{}}
	for s := range pc.Services() {
		for _, l := range s.LeftOut {
			c.counts[l.Reason]++
		}
		c.service(s)
	}
	for _, list := range pc.NoService {
		c.counts[model.ReasonNoService] += len(list)
	}
	return c.counts
}

func (c *census) service(s *pushcontext.ServiceView) {
	if len(c.classes) == 0 {
		return
	}
	classes := c.apart(s)
	for _, p := range s.Shape.Ports {
		c.port(s, p, classes)
	}
}

// apart gives one class for all that the service does not tell apart.
func (c *census) apart(s *pushcontext.ServiceView) []gen.Class {
	g := gen.Endpoints{}
	by := distinction{traits: g.Traits(s)}
	narrow := func(k gen.Class) gen.Class { return k }
	switch private := s.Shape.Key.Cluster != "" || !s.Shape.Export.Public; {
	case private:
		by.traits |= gen.TraitCluster | gen.TraitNamespace // they decide whether a proxy sees it
	case by.traits&gen.TraitPolicy != 0:
		narrow = func(k gen.Class) gen.Class { return g.Narrow(s, k) }
		by.scope = g.Scope(s)
	}
	if list, known := c.told[by]; known {
		return list
	}
	distinct := map[gen.Class]struct{}{}
	for k := range c.classes {
		distinct[narrow(k.Keep(by.traits))] = struct{}{}
	}
	c.told[by] = slices.Collect(maps.Keys(distinct))
	return c.told[by]
}

func (c *census) port(s *pushcontext.ServiceView, p model.Port, classes []gen.Class) {
	type miss struct {
		endpoint *model.Endpoint
		reason   model.Reason
	}
	misses := map[miss]struct{}{}
	for _, k := range classes {
		if !s.Shape.Visible(k.Cluster, k.Namespace) {
			continue
		}
		for _, v := range gen.ExplainEndpoints(s, k, p) {
			if !v.Sent {
				misses[miss{v.Endpoint, v.Reason}] = struct{}{}
			}
		}
	}
	for m := range misses {
		c.counts[m.reason]++
	}
}

// leftOut computes the counts of a version once for the same classes.
func (c *Collector) leftOut(pc *pushcontext.PushContext) map[model.Reason]int {
	classes := map[gen.Class]struct{}{}
	for _, k := range c.Classes() {
		classes[k] = struct{}{}
	}
	if l := c.left.Load(); l != nil && l.version == pc.Version && maps.Equal(l.classes, classes) {
		return l.counts
	}
	l := &leftOut{version: pc.Version, classes: classes, counts: countLeftOut(pc, classes)}
	c.left.Store(l)
	return l.counts
}
