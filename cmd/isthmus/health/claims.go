package health

import (
	"net/netip"
	"strconv"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

const (
	everywhere = "*" // a claim that holds in every cluster, or for every namespace
	anywhere   = "?" // stands for each claim, wherever it holds
)

// place is a thing that only one service can have, for the proxies of a cluster and a namespace.
type place struct {
	what      string
	cluster   string
	namespace string
}

// claims are the places that are taken.
type claims map[place]struct{}

// take claims a thing, and reports whether it was taken already for some of the proxies.
func (c claims) take(what, cluster string, e pushcontext.Export) (taken bool) {
	namespaces := e.Namespaces
	if e.Public {
		namespaces = []string{everywhere}
	}
	for _, ns := range namespaces {
		for _, in := range covers(cluster) {
			for _, n := range covers(ns) {
				_, there := c[place{what, in, n}]
				taken = taken || there
			}
		}
	}
	if taken {
		return true
	}
	for _, ns := range namespaces {
		for _, in := range []string{cluster, anywhere} {
			for _, n := range []string{ns, anywhere} {
				c[place{what, in, n}] = struct{}{}
			}
		}
	}
	return false
}

// covers are the claims that meet one.
func covers(scope string) []string {
	if scope == everywhere {
		return []string{anywhere}
	}
	return []string{scope, everywhere}
}

func scope(c model.ClusterID) string {
	if c == "" {
		return everywhere
	}
	return string(c)
}

// hiddenClusters counts service ports whose cluster would have the name of another service's.
func hiddenClusters(pc *pushcontext.PushContext) int {
	n := 0
	for _, h := range pc.Hosts() {
		if len(h.Services) < 2 {
			continue
		}
		taken := claims{}
		for _, s := range h.Services {
			for i, p := range s.Shape.Ports {
				if !first(s.Shape.Ports, i) {
					continue
				}
				if taken.take(strconv.Itoa(int(p.Number)), scope(s.Shape.Key.Cluster), s.Shape.Export) {
					n++
				}
			}
		}
	}
	return n
}

// first reports whether port i is the first of its number that proxies serve.
func first(ports []model.Port, i int) bool {
	if ports[i].Protocol == model.ProtocolUDP {
		return false
	}
	for _, p := range ports[:i] {
		if p.Number == ports[i].Number && p.Protocol != model.ProtocolUDP {
			return false
		}
	}
	return true
}

// outboundConflicts counts TCP service ports that are not served, somewhere, where they would be.
func outboundConflicts(pc *pushcontext.PushContext) int {
	n := 0
	for key := range pc.Keys(pushcontext.ViewPort) {
		taken, hosts := claims{}, map[string]struct{}{}
		for _, s := range pc.Port(key.Port).Services {
			p, ok := tcpPort(s, key.Port)
			if _, again := hosts[s.Key.Host]; !ok || again {
				continue // one host is one place, however many define it
			}
			hosts[s.Key.Host] = struct{}{}
			if takePlaces(taken, s, p) {
				n++
			}
		}
	}
	return n
}

// tcpPort gives the port of the number if connections to it are told apart by address alone.
func tcpPort(s *pushcontext.ShapeView, number uint16) (model.Port, bool) {
	for _, p := range s.Ports {
		if p.Number == number && p.Protocol != model.ProtocolUDP {
			return p, p.Protocol.IsTCP() || p.Protocol.Sniffed()
		}
	}
	return model.Port{}, false
}

// takePlaces claims what a connection to the service's port goes to: its addresses; without any, the
// port itself, or the server name if TLS has one.
func takePlaces(taken claims, s *pushcontext.ShapeView, p model.Port) (lost bool) {
	places := addresses(s)
	switch {
	case len(places) > 0:
		for a := range places {
			lost = taken.take(a.prefix.String(), a.cluster, s.Export) || lost
		}
		return lost
	case s.Native && s.Resolution == model.Passthrough:
		return false // headless: reached at the addresses of its pods
	case p.Protocol == model.ProtocolTLS || p.Protocol == model.ProtocolHTTPS:
		return taken.take("tls "+s.Key.Host, scope(s.Key.Cluster), s.Export)
	}
	return taken.take("", scope(s.Key.Cluster), s.Export)
}

type address struct {
	cluster string
	prefix  netip.Prefix
}

// addresses are a service's own, each with the cluster in which it holds.
func addresses(s *pushcontext.ShapeView) map[address]struct{} {
	out := map[address]struct{}{}
	for cluster, list := range s.Addresses {
		in := scope(cluster)
		switch {
		case s.Key.Cluster != "":
			in = string(s.Key.Cluster)
		case s.MeshAddresses:
			in = everywhere
		}
		for _, x := range list {
			if !x.Addr().IsUnspecified() {
				out[address{in, x}] = struct{}{}
			}
		}
	}
	return out
}
