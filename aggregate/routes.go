package aggregate

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// routes are the VirtualServices in force. Immutable.
type routes struct {
	objects   []*model.Config // in force, oldest first; those without hosts are delegates
	contested []pushcontext.Conflict
	made      map[string]*route             // by "namespace/name"
	all       []*pushcontext.VirtualService // oldest first
	byHost    patterns[*pushcontext.VirtualService]
	hosts     map[string]struct{} // of which it matters with which ports there is a service
	conflicts []pushcontext.Conflict
}

// route is one VirtualService and what it was made from.
type route struct {
	*pushcontext.VirtualService
	from      []*model.Config   // the object, and what its delegates are; nil for one that is not there
	ports     map[string]uint16 // of services with one port, by host
	meant     map[string]string // hosts of services, by what destinations say
	delegated int               // routes and conditions that come from delegates, at most
	conflicts []pushcontext.Conflict
}

// routeSources is what VirtualServices are made from beside themselves.
type routeSources struct {
	*mesh
	rules     *rules
	aliases   *aliases
	directory directory
}

// newRoutes makes VirtualServices of objects in force. What says the same as in old keeps its pointer, and the whole does if
// all is made from the same; unless anew, that is not made again.
func newRoutes(objects []*model.Config, contested []pushcontext.Conflict, src routeSources, old *routes, anew bool) *routes {
	out := &routes{objects: objects, contested: contested, made: map[string]*route{}, hosts: map[string]struct{}{}}
	if old == nil {
		old = &routes{}
	}
	delegates := map[string]*model.Config{}
	for _, c := range objects {
		if s, ok := c.Spec.(*networking.VirtualService); ok && len(s.Hosts) == 0 {
			delegates[c.Namespace+"/"+c.Name] = c
		}
	}
	for _, c := range objects {
		s, ok := c.Spec.(*networking.VirtualService)
		if !ok || len(s.Hosts) == 0 {
			continue
		}
		name := c.Namespace + "/" + c.Name
		r := old.made[name]
		if anew || r == nil || !r.current(c, delegates, src) {
			r = compileRoute(c, delegates, src, r)
		}
		out.made[name] = r
		out.add(r)
	}
	if slices.Equal(objects, old.objects) && slices.EqualFunc(contested, old.contested, sameConflict) && maps.Equal(out.made, old.made) {
		return old
	}
	out.conflicts = slices.Concat(contested, out.conflicts, out.rivals())
	slices.SortFunc(out.conflicts, compareConflicts)
	return out
}

// current reports whether a route would be made from what it was made from.
func (r *route) current(c *model.Config, delegates map[string]*model.Config, src routeSources) bool {
	if r.from[0] != c {
		return false
	}
	for i, name := range delegateNames(c) {
		if delegates[name] != r.from[i+1] {
			return false
		}
	}
	for host, n := range r.ports {
		if src.directory.port(host) != n {
			return false
		}
	}
	for host, to := range r.meant {
		if src.meant(host) != to {
			return false
		}
	}
	return maps.EqualFunc(r.Policies, routePolicies(r.Spec, src), samePolicies)
}

func (rs *routes) add(r *route) {
	v := r.VirtualService
	rs.all, rs.conflicts = append(rs.all, v), append(rs.conflicts, r.conflicts...)
	for d := range r.ports {
		rs.hosts[strings.ToLower(d)] = struct{}{}
	}
	for d := range r.meant {
		rs.hosts[d] = struct{}{}
	}
	for d := range v.Policies {
		rs.hosts[strings.ToLower(d)] = struct{}{}
	}
	if !v.Bound(pushcontext.MeshGateway) {
		return
	}
	for _, h := range v.Hosts {
		rs.byHost.add(h, v)
	}
}

// rivals are the VirtualServices of sidecars of which a host is an older one's, for all who may use it. Rules for connections are
// those of all, so only ones with rules for HTTP are in each other's way.
func (rs *routes) rivals() (out []pushcontext.Conflict) {
	for key, list := range rs.byHost.lists {
		for i, v := range list {
			if len(v.Spec.GetHttp()) == 0 {
				continue
			}
			older := slices.IndexFunc(list[:i], func(o *pushcontext.VirtualService) bool {
				return o != v && len(o.Spec.GetHttp()) > 0 && o.Export.Covers(v.Export)
			})
			if older >= 0 {
				out = append(out, pushcontext.Conflict{
					Field: model.ConfigVirtualService, Winner: list[older].Source, Loser: v.Source,
					Detail: "both are for " + patternOf(key) + " in sidecars: the older one, or else the first by name, is used",
				})
			}
		}
	}
	return out
}

// match gives the VirtualServices of sidecars for a host: those with more specific hosts first, then oldest first.
func (rs *routes) match(host string) []*pushcontext.VirtualService {
	if rs == nil {
		return nil
	}
	return rs.byHost.match(host)
}

// meant gives the host of the service that a name, in lower case, stands for.
func (s routeSources) meant(name string) string {
	return s.directory.spelled(s.aliases.final(name))
}

// directory tells the definitions of the services of a host, of all namespaces; case does not count.
type directory func(host string) []row[*model.Service]

// has reports whether there is a service of the host.
func (d directory) has(host string) bool {
	return slices.ContainsFunc(d(host), func(r row[*model.Service]) bool { return !imported(r.obj) })
}

// spelled gives a host as its services have it; of several spellings the host itself, else the first.
func (d directory) spelled(host string) string {
	var out string
	for _, r := range d(host) {
		if r.obj.Host == host {
			return host
		}
		if out == "" || r.obj.Host < out {
			out = r.obj.Host
		}
	}
	return cmp.Or(out, host)
}

// port gives the port of the services of a host, if they have one only; 0 otherwise.
func (d directory) port(host string) (n uint16) {
	for _, r := range d(host) {
		for _, p := range r.obj.Ports {
			if n != 0 && n != p.Number {
				return 0
			}
			n = p.Number
		}
	}
	return n
}

// namespace gives that of the first service of the host: service objects before ServiceEntries, then the oldest.
func (d directory) namespace(host string) string {
	rows := slices.Clone(d(host))
	if len(rows) == 0 {
		return ""
	}
	return slices.MinFunc(rows, func(a, b row[*model.Service]) int {
		return cmp.Or(compareTrue(native(a.obj), native(b.obj)), model.Older(a.obj.Created, b.obj.Created), strings.Compare(a.obj.Namespace, b.obj.Namespace))
	}).obj.Namespace
}

// sameRoute compares content; revisions do not count.
func sameRoute(a, b *pushcontext.VirtualService) bool {
	return a == b || sameSource(&a.Source, &b.Source) && slices.EqualFunc(a.Delegates, b.Delegates, func(x, y model.Source) bool { return sameSource(&x, &y) }) &&
		slices.Equal(a.Origins, b.Origins) && a.Namespace == b.Namespace && a.Created.Equal(b.Created) && slices.Equal(a.Hosts, b.Hosts) && slices.Equal(a.Gateways, b.Gateways) &&
		a.Export.Equal(b.Export) && slices.Equal(a.Destinations, b.Destinations) && maps.EqualFunc(a.Policies, b.Policies, samePolicies) && proto.Equal(a.Spec, b.Spec)
}

func samePolicies(a, b *pushcontext.DestinationPolicies) bool {
	return a == b || a.Namespace == b.Namespace && slices.EqualFunc(a.Policies, b.Policies, samePolicy)
}

// telling gives the rules for a host; nil if none of them tells what is asked for.
func (rs *rules) telling(host string, d directory, tells func(*pushcontext.DestinationPolicy) bool) *pushcontext.DestinationPolicies {
	if !rs.tell {
		return nil
	}
	list := rs.match(host)
	if !slices.ContainsFunc(list, tells) {
		return nil
	}
	return &pushcontext.DestinationPolicies{Namespace: d.namespace(host), Policies: list}
}
