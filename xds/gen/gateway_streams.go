package gen

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// serverStream is where a server's connections go that are not routed by request.
type serverStream struct {
	names  []string // server names; "" for any
	routes []*networking.RouteDestination
	by     *pushcontext.VirtualService
}

// streamsAt reads the routes of connections. In cleartext, and where TLS ends, the first TCP route counts that holds
// at the server. TLS that passes through is routed by its server name: with TLS routes and, where none names it, with the TCP
// routes of VirtualServices that have it as a host.
func streamsAt(s *routerServer) []serverStream {
	t := s.tls()
	switch {
	case t == nil:
		out := firstOf(tcpStreams(s))
		for i := range out {
			out[i].names = []string{""}
		}
		return out
	case t.Mode == networking.ServerTLSSettings_AUTO_PASSTHROUGH:
		return nil
	case !passesThrough(t):
		out := firstOf(tcpStreams(s))
		for i := range out {
			out[i].names = s.serverNames()
		}
		return out
	}
	out := tlsStreams(s)
	for _, x := range tcpStreams(s) {
		hosts := hostsOfServer(s.GatewayServer).inCommon(x.by)
		if x.names = sniNames(hosts); len(hosts) > 0 && len(x.names) > 0 {
			out = append(out, x)
		}
	}
	return out
}

func firstOf(list []serverStream) []serverStream { return list[:min(len(list), 1)] }

// tcpStreams has the first TCP route of each VirtualService that holds at the server.
func tcpStreams(s *routerServer) (out []serverStream) {
	for _, v := range s.bound {
		for _, r := range v.Spec.GetTcp() {
			if s.holds(r) && len(r.GetRoute()) > 0 {
				out = append(out, serverStream{routes: r.Route, by: v})
				break
			}
		}
	}
	return out
}

func tlsStreams(s *routerServer) (out []serverStream) {
	for _, v := range s.bound {
		for _, r := range v.Spec.GetTls() {
			for _, m := range r.GetMatch() {
				if names := sniNames(m.GetSniHosts()); len(names) > 0 && len(r.GetRoute()) > 0 && s.admits(m) {
					out = append(out, serverStream{names: names, routes: r.Route, by: v})
				}
			}
		}
	}
	return out
}

// holds reports whether a rule is for the server: one of its matches is, or it has none.
func (s *routerServer) holds(r *networking.TCPRoute) bool {
	return len(r.GetMatch()) == 0 || slices.ContainsFunc(r.Match, func(m *networking.L4MatchAttributes) bool { return s.admits(m) })
}

// admits reports whether a match is for the server. Where connections come from and go to tells nothing at a gateway.
func (s *routerServer) admits(m streamMatch) bool {
	if p := m.GetPort(); p != 0 && p != uint32(s.number) {
		return false
	}
	return len(m.GetGateways()) == 0 || slices.Contains(m.GetGateways(), s.Name())
}

// serverNames are the names by which clients choose the server.
func (s *routerServer) serverNames() []string {
	var hosts []string
	for _, h := range s.Hosts {
		hosts = append(hosts, h.Host)
	}
	return sniNames(hosts)
}

// sniNames gives hosts as Envoy matches them as server names, each once: "" stands for all. It leaves out what can't be matched.
func sniNames(hosts []string) []string {
	r := chainRule{}
	if !matchNames(&r, hosts) {
		return nil
	}
	slices.Sort(r.names)
	return orJust(r.names, "")
}
