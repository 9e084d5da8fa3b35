package aggregate

import (
	"cmp"
	"maps"
	"slices"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// aliases are the ExternalName Services that stand for other services. Immutable.
type aliases struct {
	target map[string]string              // host to the host that it stands for in the end
	names  map[string][]pushcontext.Alias // the opposite; by host
	// conflicts are definitions that say otherwise of a host than the one that counts.
	conflicts []pushcontext.Conflict
}

// alias is what an ExternalName Service says.
type alias struct {
	pushcontext.Alias
	of        string // host; "" if the service that counts is one of its own
	conflicts []pushcontext.Conflict
}

// maxAliases is how many names may stand for one another in a row.
const maxAliases = 16

// newAliases follows the names of services, given by host, through other such names to one that is a service of its
// own. Names that lead nowhere, or in a circle, stand for no service.
func newAliases(names map[string]alias, d directory) *aliases {
	out := &aliases{target: map[string]string{}, names: map[string][]pushcontext.Alias{}}
	for _, host := range slices.Sorted(maps.Keys(names)) {
		at := names[host].of
		out.conflicts = append(out.conflicts, names[host].conflicts...)
		if at == "" {
			continue
		}
		for steps := 0; names[at].of != "" && steps < maxAliases; steps++ {
			at = names[at].of
		}
		if names[at].of == "" && d.has(at) {
			out.target[host] = at
			out.names[at] = append(out.names[at], names[host].Alias)
		}
	}
	return out
}

// final gives the host that a host stands for: mostly itself.
func (a *aliases) final(host string) string {
	return cmp.Or(a.target[host], host)
}

func (a *aliases) same(o *aliases) bool {
	return o != nil && maps.Equal(a.target, o.target) && maps.EqualFunc(a.names, o.names, sameAliases) && slices.EqualFunc(a.conflicts, o.conflicts, sameConflict)
}

func sameAliases(a, b []pushcontext.Alias) bool {
	return slices.EqualFunc(a, b, func(a, b pushcontext.Alias) bool {
		return a.Host == b.Host && a.Namespace == b.Namespace && a.Export.Equal(b.Export)
	})
}

// differs adds the hosts that stand for something else than before, and those that they stand, or stood, for.
func (a *aliases) differs(s *patternSet, old *aliases) {
	note := func(a, b *aliases) {
		for host, to := range a.target {
			if b.target[host] != to {
				s.add(host)
				s.add(to)
			}
		}
	}
	note(a, old)
	note(old, a)
	for host, list := range a.names {
		if !sameAliases(list, old.names[host]) {
			s.add(host)
		}
	}
}

// nameOf reads the definitions of one host: the oldest service object decides. It is not ok if none is another name for a service.
func nameOf(rows []row[*model.Service], m *mesh) (n alias, ok bool) {
	rows = slices.DeleteFunc(slices.Clone(rows), func(r row[*model.Service]) bool { return imported(r.obj) })
	if !slices.ContainsFunc(rows, func(r row[*model.Service]) bool { return r.obj.AliasOf != "" }) {
		return n, false
	}
	slices.SortFunc(rows, func(a, b row[*model.Service]) int {
		return cmp.Or(compareTrue(native(a.obj), native(b.obj)), model.Older(a.obj.Created, b.obj.Created), a.id.compare(b.id))
	})
	s := rows[0].obj
	n = alias{Alias: pushcontext.Alias{Host: s.Host, Namespace: s.Namespace, Export: exportOf(s, m)}, of: s.AliasOf}
	for _, r := range rows[1:] {
		if r.obj.AliasOf != s.AliasOf {
			n.conflicts = append(n.conflicts, conflict("alias", s, r.obj, "the host "+s.Host+" is "+meaning(s)+", and not "+meaning(r.obj)))
		}
	}
	return n, true
}

// meaning says what the host of a definition stands for.
func meaning(s *model.Service) string {
	if s.AliasOf == "" {
		return "a service of its own"
	}
	return "another name for " + s.AliasOf
}

// aliasIndex knows the rows of names for other services. It belongs to the controller goroutine.
type aliasIndex struct {
	hosts   map[string]int // rows, by host
	targets map[string]int // rows, by what they name
	changed bool
}

func newAliasIndex() *aliasIndex {
	return &aliasIndex{hosts: map[string]int{}, targets: map[string]int{}}
}

// count takes a row in (1) or out (-1).
func (x *aliasIndex) count(s *model.Service, n int) {
	if s.AliasOf != "" {
		add(x.hosts, s.Host, n)
		add(x.targets, s.AliasOf, n)
		x.changed = true
	}
	x.changed = x.changed || x.hosts[s.Host] > 0 || x.targets[s.Host] > 0
}

// names gives what names of services stand for, by host.
func (s *state) names(m *mesh) map[string]alias {
	out := map[string]alias{}
	for host := range s.aliases.hosts {
		if n, ok := nameOf(s.directory(host), m); ok {
			out[host] = n
		}
	}
	return out
}
