package gen

import (
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// serverHosts finds what a server has in common with VirtualServices, of which there may be as many as it has hosts.
type serverHosts struct {
	all      []pushcontext.GatewayHost
	whole    map[string][]string // namespaces by host
	patterns []pushcontext.GatewayHost
}

func hostsOfServer(s *pushcontext.GatewayServer) *serverHosts {
	return s.Derived().Do(pushcontext.MemoKey{Generator: memoServerHosts}, func() any {
		out := &serverHosts{all: s.Hosts, whole: map[string][]string{}}
		for _, h := range s.Hosts {
			if strings.HasPrefix(h.Host, "*") {
				out.patterns = append(out.patterns, h)
			} else {
				out.whole[h.Host] = append(out.whole[h.Host], h.Namespace)
			}
		}
		return out
	}).(*serverHosts)
}

// inCommon are those hosts of a VirtualService that are among the server's, and those of the server among its patterns.
func (x *serverHosts) inCommon(v *pushcontext.VirtualService) []string {
	var out []string
	add := func(host string) {
		if host = canonical(host); headerText(host) && !slices.Contains(out, host) {
			out = append(out, host)
		}
	}
	for _, host := range v.Hosts {
		if x.has(host, v.Namespace) {
			add(host)
		}
		if !strings.HasPrefix(host, "*") {
			continue
		}
		for _, h := range x.all {
			if takesFrom(h.Namespace, v.Namespace) && pushcontext.HostMatches(host, h.Host) {
				add(h.Host)
			}
		}
	}
	return out
}

// has reports whether the server takes a host from a namespace.
func (x *serverHosts) has(host, namespace string) bool {
	if slices.ContainsFunc(x.whole[host], func(n string) bool { return takesFrom(n, namespace) }) {
		return true
	}
	return slices.ContainsFunc(x.patterns, func(h pushcontext.GatewayHost) bool {
		return takesFrom(h.Namespace, namespace) && pushcontext.HostMatches(h.Host, host)
	})
}

func takesFrom(allowed, namespace string) bool { return allowed == "*" || allowed == namespace }
