package aggregate

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// kinds are the kinds of configuration that merging depends on, other than mesh-wide settings.
var kinds = [...]string{
	model.ConfigDestinationRule, model.ConfigPeerAuthentication, model.ConfigGateway, model.ConfigNetworkGateway, model.ConfigResolvedHost,
}

// kindRows are the rows of one kind. They belong to the controller goroutine.
type kindRows struct {
	rows    map[rowID]*model.Config
	changed bool
}

func newKinds() map[string]*kindRows {
	out := map[string]*kindRows{}
	for _, k := range kinds {
		out[k] = &kindRows{rows: map[rowID]*model.Config{}}
	}
	return out
}

func (k *kindRows) set(id rowID, c *model.Config) { k.rows[id], k.changed = c, true }

func (k *kindRows) drop(id rowID) {
	delete(k.rows, id)
	k.changed = true
}

// inForce gives the objects in force, oldest first. Of several with equal namespace and name, from several
// registries, that of the config cluster is in force, else the oldest, else the first by shard; others
// that say something else are conflicts.
func inForce(rows []row[*model.Config], config model.ClusterID) (out []*model.Config, conflicts []pushcontext.Conflict) {
	slices.SortFunc(rows, func(a, b row[*model.Config]) int {
		return cmp.Or(
			strings.Compare(a.obj.Namespace, b.obj.Namespace), strings.Compare(a.obj.Name, b.obj.Name),
			compareTrue(a.id.shard.Cluster == config, b.id.shard.Cluster == config),
			a.obj.Created.Compare(b.obj.Created), a.id.compare(b.id),
		)
	})
	for _, r := range rows {
		if r.obj.NotServed || r.obj.Spec == nil {
			continue
		}
		if n := len(out); n > 0 && out[n-1].Namespace == r.obj.Namespace && out[n-1].Name == r.obj.Name {
			if !sameSpec(out[n-1].Spec, r.obj.Spec) {
				conflicts = append(conflicts, pushcontext.Conflict{
					Field: r.obj.Kind, Winner: out[n-1].Source, Loser: r.obj.Source, Detail: "objects of one name differ: the loser is not used",
				})
			}
			continue
		}
		out = append(out, r.obj)
	}
	slices.SortStableFunc(out, func(a, b *model.Config) int { return a.Created.Compare(b.Created) })
	return out, conflicts
}

func sameSpec(a, b any) bool {
	x, ok := a.(proto.Message)
	y, also := b.(proto.Message)
	if ok && also {
		return x == y || proto.Equal(x, y)
	}
	return reflect.DeepEqual(a, b)
}

// rules are the DestinationRules in force. Immutable.
type rules struct {
	byHost    map[string][]*rule // by ruleKey of the host pattern; oldest first
	conflicts []pushcontext.Conflict
}

// rule is what the DestinationRules of one namespace, host pattern and visibility say together.
type rule struct {
	*pushcontext.DestinationPolicy
	from []*model.Config
}

// newRules reads DestinationRules. What is made from the same objects under the same settings as in old
// keeps its pointer.
func newRules(rows []row[*model.Config], m *mesh, old *rules) *rules {
	objects, conflicts := inForce(rows, m.view.ConfigCluster)
	out := &rules{byHost: map[string][]*rule{}, conflicts: conflicts}
	for _, c := range objects {
		spec, ok := c.Spec.(*networking.DestinationRule)
		if !ok || spec.WorkloadSelector != nil {
			continue
		}
		host, ok := ruleHost(spec.Host, c.Namespace, m.view.DomainSuffix)
		if !ok {
			continue
		}
		out.add(host, c, pushcontext.NewExport(spec.ExportTo, m.view.Config.DefaultDestinationRuleExportTo, c.Namespace))
	}
	for key, list := range out.byHost {
		for i, r := range list {
			list[i] = out.settle(r, old, key)
		}
	}
	slices.SortFunc(out.conflicts, compareConflicts)
	return out
}

func (rs *rules) add(host string, c *model.Config, e pushcontext.Export) {
	key := ruleKey(host)
	for _, r := range rs.byHost[key] {
		if r.Namespace == c.Namespace && r.Export.Equal(e) {
			r.from = append(r.from, c)
			return
		}
	}
	rs.byHost[key] = append(rs.byHost[key], &rule{
		DestinationPolicy: &pushcontext.DestinationPolicy{Source: c.Source, Namespace: c.Namespace, Host: host, Export: e},
		from:              []*model.Config{c},
	})
}

// settle gives the rule with its objects merged: the first traffic policy and the first subset of each name
// count (DestinationRule merging of the Istio traffic API).
func (rs *rules) settle(r *rule, old *rules, key string) *rule {
	r.Spec = r.from[0].Spec.(*networking.DestinationRule)
	if len(r.from) > 1 {
		r.Spec = proto.Clone(r.Spec).(*networking.DestinationRule)
	}
	for _, c := range r.from[1:] {
		rs.merge(r, c)
	}
	if old == nil {
		return r
	}
	for _, was := range old.byHost[key] {
		if was.Namespace == r.Namespace && was.Export.Equal(r.Export) && slices.Equal(was.from, r.from) {
			return was
		}
	}
	return r
}

func (rs *rules) merge(r *rule, c *model.Config) {
	next := c.Spec.(*networking.DestinationRule)
	r.Merged = append(r.Merged, c.Source)
	lost := func(what string) {
		rs.conflicts = append(rs.conflicts, pushcontext.Conflict{
			Field: model.ConfigDestinationRule, Winner: r.Source, Loser: c.Source, Detail: what + " for " + r.Host + " is there already: the later one is not used",
		})
	}
	switch {
	case next.TrafficPolicy == nil:
	case r.Spec.TrafficPolicy == nil:
		r.Spec.TrafficPolicy = next.TrafficPolicy
	default:
		lost("trafficPolicy")
	}
	for _, s := range next.Subsets {
		if slices.ContainsFunc(r.Spec.Subsets, func(have *networking.Subset) bool { return have.GetName() == s.GetName() }) {
			lost("subset " + s.GetName())
		} else {
			r.Spec.Subsets = append(r.Spec.Subsets, s)
		}
	}
}

// ruleHost gives the pattern that a rule's host stands for: a short name is one of the rule's namespace.
// False if it can match nothing.
func ruleHost(host, namespace, suffix string) (string, bool) {
	switch {
	case host == "" || strings.HasPrefix(host, "*") && host != "*" && !strings.HasPrefix(host, "*."):
		return "", false
	case host == "*" || strings.Contains(host, "."):
		return host, true
	}
	return host + "." + namespace + ".svc." + suffix, true
}

// ruleKey is a pattern as an index has it: a suffix of hosts without its star, which is the rest of a host's
// name without making a string of it.
func ruleKey(pattern string) string {
	if strings.HasPrefix(pattern, "*.") {
		return pattern[1:]
	}
	return pattern
}

// match gives the policies for a host: those of more specific patterns first, then oldest first.
func (rs *rules) match(host string) []*pushcontext.DestinationPolicy {
	if rs == nil || len(rs.byHost) == 0 {
		return nil
	}
	out := policiesOf(nil, rs.byHost[ruleKey(host)])
	for i := range host {
		if host[i] == '.' && i > 0 && host[:i] != "*" {
			out = policiesOf(out, rs.byHost[host[i:]])
		}
	}
	if host != "*" {
		out = policiesOf(out, rs.byHost["*"])
	}
	return out
}

// scan gives what match gives, from a look at every pattern.
func (rs *rules) scan(host string) (out []*pushcontext.DestinationPolicy) {
	lists := slices.SortedFunc(maps.Values(rs.byHost), func(a, b []*rule) int {
		return cmp.Or(compareTrue(a[0].Host == host, b[0].Host == host), cmp.Compare(len(b[0].Host), len(a[0].Host)))
	})
	for _, list := range lists {
		suffix, wild := strings.CutPrefix(list[0].Host, "*")
		if list[0].Host == host || wild && len(suffix) < len(host) && strings.HasSuffix(host, suffix) {
			out = policiesOf(out, list)
		}
	}
	return out
}

func policiesOf(out []*pushcontext.DestinationPolicy, list []*rule) []*pushcontext.DestinationPolicy {
	for _, r := range list {
		out = append(out, r.DestinationPolicy)
	}
	return out
}

// differs tells the hosts for which some rule is not as it was.
func (rs *rules) differs(old *rules) func(host string) bool {
	changed := &rules{byHost: map[string][]*rule{}}
	compare := func(a, b *rules) {
		for key, list := range a.byHost {
			if !slices.Equal(list, b.byHost[key]) {
				changed.byHost[key] = []*rule{{}}
			}
		}
	}
	if old == nil {
		old = &rules{}
	}
	compare(rs, old)
	compare(old, rs)
	return func(host string) bool { return len(changed.match(host)) > 0 }
}

// samePolicy compares content; revisions do not count.
func samePolicy(a, b *pushcontext.DestinationPolicy) bool {
	return a == b || a.Namespace == b.Namespace && a.Host == b.Host && a.Export.Equal(b.Export) && sameSource(&a.Source, &b.Source) &&
		slices.EqualFunc(a.Merged, b.Merged, func(x, y model.Source) bool { return sameSource(&x, &y) }) && proto.Equal(a.Spec, b.Spec)
}

// passthrough lists the AUTO_PASSTHROUGH servers of Gateways, oldest first.
func passthrough(rows []row[*model.Config], config model.ClusterID) ([]pushcontext.AutoPassthrough, []pushcontext.Conflict) {
	objects, conflicts := inForce(rows, config)
	var out []pushcontext.AutoPassthrough
	for _, c := range objects {
		spec, ok := c.Spec.(*networking.Gateway)
		if !ok {
			continue
		}
		for _, s := range spec.Servers {
			port := s.GetPort().GetNumber()
			if s.GetTls().GetMode() != networking.ServerTLSSettings_AUTO_PASSTHROUGH || port == 0 || port > 65535 {
				continue
			}
			out = append(out, pushcontext.AutoPassthrough{
				Source: c.Source, Namespace: c.Namespace, Selector: maps.Clone(spec.Selector), Port: uint16(port), Hosts: slices.Clone(s.Hosts),
			})
		}
	}
	return out, conflicts
}

func samePassthrough(a, b pushcontext.AutoPassthrough) bool {
	return sameSource(&a.Source, &b.Source) && a.Namespace == b.Namespace && a.Port == b.Port && a.Selector.Equal(b.Selector) && slices.Equal(a.Hosts, b.Hosts)
}

func compareConflicts(a, b pushcontext.Conflict) int {
	return cmp.Or(strings.Compare(a.Field, b.Field), compareSources(&a.Winner, &b.Winner), compareSources(&a.Loser, &b.Loser), strings.Compare(a.Detail, b.Detail))
}

func compareSources(a, b *model.Source) int {
	return cmp.Or(a.Shard.Compare(b.Shard), strings.Compare(a.Object.String(), b.Object.String()))
}
