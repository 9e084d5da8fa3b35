package debug

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

func (h *handler) services(r *http.Request) (any, error) {
	pc, err := h.snapshot()
	if err != nil {
		return nil, err
	}
	namespace := r.URL.Query().Get("namespace")
	out := []Service{}
	for v := range pc.Services() {
		if namespace == "" || v.Shape.Key.Namespace == namespace {
			out = append(out, service(v))
		}
	}
	slices.SortFunc(out, func(a, b Service) int {
		return cmp.Or(strings.Compare(a.Hostname, b.Hostname), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.ClusterLocal, b.ClusterLocal))
	})
	return out, nil
}

func service(v *pushcontext.ServiceView) Service {
	s := v.Shape
	out := Service{
		Hostname: s.Key.Host, Namespace: s.Key.Namespace, ClusterLocal: string(s.Key.Cluster),
		Ports: []Port{}, Addresses: virtualAddresses(s), Resolution: s.Resolution.String(), External: s.External,
		Traffic: traffic(s.Traffic), NodeLocal: s.NodeLocal,
		ExportTo: exportTo(s.Export), ServiceAccounts: s.ServiceAccounts, Created: s.Created, Version: v.Revision(),
		Endpoints: counts(v), LeftOut: len(v.LeftOut), Conflicts: len(s.Conflicts), Sources: []string{},
	}
	for _, p := range s.Ports {
		out.Ports = append(out.Ports, Port{Name: p.Name, Port: p.Number, Protocol: p.Protocol.String()})
	}
	for _, c := range s.Contributions {
		if name := c.Source.Shard.String(); !slices.Contains(out.Sources, name) {
			out.Sources = append(out.Sources, name)
		}
	}
	return out
}

func traffic(t model.TrafficDistribution) string {
	return map[model.TrafficDistribution]string{model.TrafficPreferSameZone: "PreferSameZone", model.TrafficPreferSameNode: "PreferSameNode"}[t]
}

func virtualAddresses(s *pushcontext.ShapeView) map[string][]string {
	out := map[string][]string{}
	for cluster, list := range s.Addresses {
		for _, p := range list {
			a := p.String()
			if p.IsSingleIP() {
				a = p.Addr().String()
			}
			out[string(cluster)] = append(out[string(cluster)], a)
		}
	}
	return out
}

func exportTo(e pushcontext.Export) []string {
	switch {
	case e.Public:
		return []string{"*"}
	case len(e.Namespaces) == 0:
		return []string{"~"}
	}
	return e.Namespaces
}

// counts counts addresses, not ports: an endpoint behind two ports is one.
func counts(v *pushcontext.ServiceView) map[string]Count {
	type instance struct {
		cluster model.ClusterID
		ip      string
	}
	seen := map[instance]bool{}
	for _, e := range all(v) {
		ip := e.Addr.Host
		if a := e.Addr.AddrPort.Addr(); a.IsValid() {
			ip = a.String()
		}
		k := instance{e.Addr.Cluster, ip}
		seen[k] = seen[k] || e.Health == model.Healthy
	}
	out := map[string]Count{}
	for k, healthy := range seen {
		c := out[string(k.cluster)]
		c.Total++
		if healthy {
			c.Healthy++
		}
		out[string(k.cluster)] = c
	}
	return out
}

// all yields every endpoint, with the name of its port.
func all(v *pushcontext.ServiceView) func(func(string, *model.Endpoint) bool) {
	return func(yield func(string, *model.Endpoint) bool) {
		for _, p := range v.Endpoints {
			for _, l := range p.Localities {
				for _, e := range l.Endpoints {
					if !yield(p.Port, e) {
						return
					}
				}
			}
		}
	}
}

// findHosts gives what a person means by a host: the host itself, or else every host that it
// abbreviates ("reviews", "reviews.shop" or "reviews.shop.svc" for "reviews.shop.svc.cluster.local").
func findHosts(pc *pushcontext.PushContext, name string) []*pushcontext.HostView {
	if h := pc.Host(name); h != nil {
		return []*pushcontext.HostView{h}
	}
	var out []*pushcontext.HostView
	for host, h := range pc.Hosts() {
		if stands(pc, name, host) {
			out = append(out, h)
		}
	}
	slices.SortFunc(out, func(a, b *pushcontext.HostView) int { return strings.Compare(a.Host, b.Host) })
	return out
}

// stands reports whether a name is the host, or short for it.
func stands(pc *pushcontext.PushContext, name, host string) bool {
	return name == host || strings.HasSuffix(host, ".svc."+pc.Mesh.DomainSuffix) && strings.HasPrefix(host, name+".")
}

// findServices resolves ?host= and ?namespace=.
func findServices(pc *pushcontext.PushContext, r *http.Request) ([]*pushcontext.ServiceView, error) {
	host, namespace := r.URL.Query().Get("host"), r.URL.Query().Get("namespace")
	if host == "" {
		return nil, badRequest("host is missing: ?host=HOST")
	}
	hosts := findHosts(pc, host)
	if len(hosts) > 1 {
		names := make([]string, 0, len(hosts))
		for _, h := range hosts {
			names = append(names, h.Host)
		}
		return nil, badRequest("host %q is ambiguous: %s", host, strings.Join(names, ", "))
	}
	var out []*pushcontext.ServiceView
	for _, h := range hosts {
		for _, s := range h.Services {
			if namespace == "" || s.Shape.Key.Namespace == namespace {
				out = append(out, s)
			}
		}
	}
	if len(out) == 0 {
		return nil, notFound("no service has the host %q%s: 'isthmus service list' shows those that exist", host, inNamespace(namespace))
	}
	return out, nil
}

func inNamespace(ns string) string {
	if ns == "" {
		return ""
	}
	return " in namespace " + ns
}
