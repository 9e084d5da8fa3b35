package consul

import (
	"cmp"
	"net/url"
	"strings"

	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
)

// scope is one list of services: that of a datacenter, of a namespace in it, or of what a peer exports. Empty parts are those
// of the agent that is asked.
type scope struct{ dc, ns, partition, peer string }

// scopes are those of a spec: the datacenters, and what the peers export to that of the agent.
func scopes(spec *api.ConsulSpec) (out []scope) {
	dcs, namespaces := cmp.Or(len(spec.Datacenters), 1), cmp.Or(len(spec.Namespaces), 1)
	at := func(list []string, i int) string {
		if len(list) == 0 {
			return ""
		}
		return list[i]
	}
	for n := range namespaces {
		base := scope{ns: at(spec.Namespaces, n), partition: spec.Partition}
		for d := range dcs {
			s := base
			s.dc = at(spec.Datacenters, d)
			out = append(out, s)
		}
		for _, p := range spec.Peers {
			s := base
			s.peer = p
			out = append(out, s)
		}
	}
	return out
}

// params select the scope in a request.
func (s scope) params() url.Values {
	v := url.Values{}
	for key, value := range map[string]string{"dc": s.dc, "ns": s.ns, "partition": s.partition, "peer": s.peer} {
		if value != "" {
			v.Set(key, value)
		}
	}
	return v
}

// String is for people, and begins the keys of services where there are several scopes.
func (s scope) String() string {
	var parts []string
	for _, p := range []struct{ word, value string }{{"", s.dc}, {"peer:", s.peer}, {"partition:", s.partition}, {"namespace:", s.ns}} {
		if p.value != "" {
			parts = append(parts, p.word+p.value)
		}
	}
	return strings.Join(parts, "/")
}

// suffix follows a service's name in its host, in the words that Consul's own DNS names have: the parts that are not the
// default ones, and the datacenter, of which local is the agent's own.
func (s scope) suffix(local string) string {
	var b strings.Builder
	if s.ns != "" && s.ns != "default" {
		b.WriteString(s.ns + ".ns.")
	}
	if s.partition != "" && s.partition != "default" {
		b.WriteString(s.partition + ".ap.")
	}
	if s.peer != "" {
		return b.String() + s.peer + ".peer.consul"
	}
	return b.String() + cmp.Or(s.dc, local) + ".consul"
}
