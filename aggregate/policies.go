package aggregate

import (
	"cmp"
	"maps"
	"net/netip"
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
	model.ConfigDestinationRule, model.ConfigPeerAuthentication, model.ConfigGateway, model.ConfigVirtualService,
	model.ConfigSidecar, model.ConfigTelemetry, model.ConfigNetworkGateway, model.ConfigResolvedHost, model.ConfigFederatedService,
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
	byHost    patterns[*rule] // those for some workloads first, then oldest first
	tell      bool            // some rule says what VirtualServices have to know of destinations
	conflicts []pushcontext.Conflict
}

// rule is what the DestinationRules of one namespace, host pattern, visibility and selector say together.
type rule struct {
	*pushcontext.DestinationPolicy
	from []*model.Config
}

// newRules reads DestinationRules. What is made from the same objects under the same settings as in old
// keeps its pointer.
func newRules(rows []row[*model.Config], m *mesh, old *rules) *rules {
	objects, conflicts := inForce(rows, m.view.ConfigCluster)
	out := &rules{conflicts: conflicts}
	for _, c := range objects {
		spec, ok := c.Spec.(*networking.DestinationRule)
		if !ok {
			continue
		}
		host, ok := ruleHost(spec.Host, c.Namespace, m.view.DomainSuffix)
		if !ok {
			continue
		}
		out.add(host, c, pushcontext.NewExport(spec.ExportTo, m.view.Config.DefaultDestinationRuleExportTo, c.Namespace), spec.GetWorkloadSelector().GetMatchLabels())
	}
	for key, list := range out.byHost.lists {
		slices.SortStableFunc(list, func(a, b *rule) int { return compareTrue(len(a.Selector) > 0, len(b.Selector) > 0) })
		for i, r := range list {
			list[i] = out.settle(r, old, key)
			out.tell = out.tell || list[i].Hashes() || list[i].Steers(m.view)
		}
	}
	slices.SortFunc(out.conflicts, compareConflicts)
	return out
}

func (rs *rules) add(host string, c *model.Config, e pushcontext.Export, selector model.Labels) {
	key := patternKey(host)
	for _, r := range rs.byHost.lists[key] {
		if r.Namespace == c.Namespace && r.Export.Equal(e) && r.Selector.Equal(selector) {
			r.from = append(r.from, c)
			return
		}
	}
	rs.byHost.set(key, append(rs.byHost.lists[key], &rule{
		DestinationPolicy: &pushcontext.DestinationPolicy{Source: c.Source, Namespace: c.Namespace, Host: host, Export: e, Selector: selector},
		from:              []*model.Config{c},
	}))
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
	for _, was := range old.byHost.lists[key] {
		if was.Namespace == r.Namespace && was.Export.Equal(r.Export) && was.Selector.Equal(r.Selector) && slices.Equal(was.from, r.from) {
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

// ruleHost gives the pattern that a rule's host stands for: a short name is one of the rule's namespace. False if it
// can match nothing.
func ruleHost(host, namespace, suffix string) (string, bool) {
	if _, err := netip.ParseAddr(host); err == nil {
		return host, true // an address of IPv6 has no dot either
	}
	switch {
	case host == "":
		return "", false
	case host == "*" || strings.Contains(host, "."):
		return host, true
	}
	return host + "." + namespace + ".svc." + suffix, true
}

// match gives the policies for a host: those of more specific patterns first, then those for some workloads, then
// oldest first.
func (rs *rules) match(host string) []*pushcontext.DestinationPolicy {
	if rs == nil {
		return nil
	}
	return policiesOf(rs.byHost.match(host))
}

// scan gives what match gives, from a look at every pattern.
func (rs *rules) scan(host string) []*pushcontext.DestinationPolicy {
	return policiesOf(rs.byHost.scan(host))
}

func policiesOf(list []*rule) (out []*pushcontext.DestinationPolicy) {
	for _, r := range list {
		out = append(out, r.DestinationPolicy)
	}
	return out
}

// samePolicy compares content; revisions do not count.
func samePolicy(a, b *pushcontext.DestinationPolicy) bool {
	return a == b || a.Namespace == b.Namespace && a.Host == b.Host && a.Export.Equal(b.Export) && a.Selector.Equal(b.Selector) && sameSource(&a.Source, &b.Source) &&
		slices.EqualFunc(a.Merged, b.Merged, func(x, y model.Source) bool { return sameSource(&x, &y) }) && proto.Equal(a.Spec, b.Spec)
}

// passthrough lists the AUTO_PASSTHROUGH servers of Gateways in force.
func passthrough(objects []*model.Config) []pushcontext.AutoPassthrough {
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
	return out
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
