package pushcontext

import (
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// FederationPolicy is how the sources of a service share its traffic.
type FederationPolicy uint8

// The policies.
const (
	FederateUnion    FederationPolicy = iota // all endpoints are equal
	FederateFailover                         // those of a source count while those of lower Priority are too few
	FederateWeighted                         // sources have shares by their Weight, however many endpoints they have
)

var federationNames = [...]string{"union", "failover", "weighted"}

// String gives the word of the FederatedService.
func (p FederationPolicy) String() string { return federationNames[p] }

// Federation is how a FederatedService makes one service of several sources. It is immutable.
type Federation struct {
	Source  model.Source // the FederatedService
	Policy  FederationPolicy
	Sources []FederationSource // as the object lists them; an endpoint says by its Part of which it is
}

// FederationSource is one source of a service.
type FederationSource struct {
	Name       string
	Host       string   // of the service that it is; "" if it is workloads with certain labels
	Namespace  string   // of that service, or of the workloads; "" for any
	Registries []string // that it is limited to, as the object has them; all if empty
	Priority   uint32
	Weight     uint32
}

func (s FederationSource) equal(o FederationSource) bool {
	return s.Name == o.Name && s.Host == o.Host && s.Namespace == o.Namespace && s.Priority == o.Priority && s.Weight == o.Weight && slices.Equal(s.Registries, o.Registries)
}

// Takes reports whether the source takes what a registry says: whether one of its patterns, "provider/name" with "*" for
// either, is for it.
func (s *FederationSource) Takes(k model.ShardKey) bool {
	return len(s.Registries) == 0 || slices.ContainsFunc(s.Registries, func(p string) bool { return RegistryMatches(p, k) })
}

// RegistryMatches tells a registry by "provider/name", either of which may be "*".
func RegistryMatches(pattern string, k model.ShardKey) bool {
	provider, name, _ := strings.Cut(pattern, "/")
	return (provider == "*" || provider == string(k.Provider)) && (name == "*" || name == string(k.Cluster))
}

// SourceState is what came of one source.
type SourceState struct {
	Reason   model.Reason // why nothing, or nothing that proxies are sent; "" if it gives endpoints
	Detail   string       // a sentence that says what to do
	Unmapped []string     // names of ports of the service that the source has none for, sorted
	Unlike   []string     // names of ports for which the source says another protocol than the service's, which is spoken with it all the same; sorted
	Empty    bool         // there is nothing that could give endpoints: no service, or no workload, of what the source names
}

func (s SourceState) equal(o SourceState) bool {
	return s.Reason == o.Reason && s.Detail == o.Detail && s.Empty == o.Empty && slices.Equal(s.Unmapped, o.Unmapped) && slices.Equal(s.Unlike, o.Unlike)
}

// SameStates reports whether the same came of all sources.
func SameStates(a, b []SourceState) bool { return slices.EqualFunc(a, b, SourceState.equal) }

// Equal reports whether both say the same; revisions do not count.
func (f *Federation) Equal(o *Federation) bool {
	if f == nil || o == nil {
		return f == o
	}
	return f == o || f.Source.Shard == o.Source.Shard && f.Source.Object == o.Source.Object && f.Policy == o.Policy && slices.EqualFunc(f.Sources, o.Sources, FederationSource.equal)
}

// SourceOf gives the source that an endpoint is of; nil if the service is not a FederatedService's.
func (f *Federation) SourceOf(e *model.Endpoint) *FederationSource {
	if f == nil || e.Part == 0 || int(e.Part) > len(f.Sources) {
		return nil
	}
	return &f.Sources[e.Part-1]
}

// borrowed reports whether an endpoint is that of another service, which says what its workload serves.
func (s *ShapeView) borrowed(e *model.Endpoint) bool {
	src := s.Federation.SourceOf(e)
	return src != nil && src.Host != "" && !strings.EqualFold(src.Host, s.Key.Host)
}
