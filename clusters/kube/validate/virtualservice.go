package validate

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

const meshGateway = "mesh"

// virtualService checks a VirtualService. One without hosts is a delegate: routes that another takes in.
func virtualService(c *checker, s *networking.VirtualService) {
	c.exportTo(s.ExportTo, false)
	mesh := gatewayNames(c, "gateways", s.Gateways) || len(s.Gateways) == 0
	hosts(c, s, mesh)
	if mesh {
		claimRoutes(c, s)
	}
	if len(s.Http)+len(s.Tls)+len(s.Tcp) == 0 {
		c.refuse(CodeRequired, "it has no routes: give it http, tls or tcp")
	}
	size(c, s)
	httpRoutes(c, s)
	var tls, tcp []proto.Message
	for i, t := range s.Tls {
		at := c.item("tls", i)
		tlsRoute(at, t, s.Hosts)
		for j, m := range t.GetMatch() {
			tls = again(at.item("match", j), tls, m)
		}
	}
	for i, t := range s.Tcp {
		at := c.item("tcp", i)
		tcpRoute(at, t)
		if len(t.GetMatch()) == 0 && i < len(s.Tcp)-1 {
			at.warn(CodeUnreachable, "it takes all connections before those behind it: move it to the end")
		}
		for j, m := range t.GetMatch() {
			tcp = again(at.item("match", j), tcp, m)
		}
	}
}

// again warns of a match that is among those before it, and gives these with it.
func again(c *checker, before []proto.Message, m proto.Message) []proto.Message {
	const most = 256 // comparing each with each must stay cheap
	if slices.ContainsFunc(before, func(b proto.Message) bool { return proto.Equal(b, m) }) {
		c.warn(CodeUnreachable, "an earlier match is the same: leave it out")
	}
	if len(before) < most {
		before = append(before, m)
	}
	return before
}

// claimRoutes refuses matches by claims of tokens, which only gateways verify.
func claimRoutes(c *checker, s *networking.VirtualService) {
	for i, h := range s.Http {
		for j, m := range h.GetMatch() {
			for _, k := range sorted(m.GetHeaders()) {
				c.item("http", i).item("match", j).at("headers["+k+"]").unless(!isClaim(k), CodeHeader, "claims of tokens are matched at gateways only")
			}
			for _, k := range sorted(m.GetWithoutHeaders()) {
				c.item("http", i).item("match", j).at("withoutHeaders["+k+"]").unless(!isClaim(k), CodeHeader, "claims of tokens are matched at gateways only")
			}
		}
	}
}

// largest is how many routes one object may make for a proxy: each host has all of them.
const largest = 1 << 18

func size(c *checker, s *networking.VirtualService) {
	routes := 0
	for _, h := range s.Http {
		routes += max(len(h.GetMatch()), 1)
	}
	if n := routes * len(s.Hosts); n > largest {
		c.refuse(CodeRange, "%d hosts with %d routes each make %d for every proxy, at most %d: share hosts or routes out to several VirtualServices", len(s.Hosts), routes, n, largest)
	}
}

func hosts(c *checker, s *networking.VirtualService, mesh bool) {
	if len(s.Hosts) == 0 {
		delegate(c, s)
		return
	}
	seen, valid := once[string]{}, true
	for i, h := range s.Hosts {
		at := c.item("hosts", i)
		if !at.host(h) {
			valid = false
			continue
		}
		at.unless(h != "*" || !mesh, CodeHost, "\"*\" is for gateways only: name the hosts, or leave mesh out of gateways")
		seen.check(at, strings.ToLower(h), CodeDuplicate, "host")
	}
	if !valid {
		return
	}
	for i, h := range s.Hosts {
		if wide := wider(seen, strings.ToLower(h)); wide != "" {
			c.item("hosts", i).refuse(CodeDuplicate, "%q is among the hosts of %q: leave one of them out, or give it a VirtualService of its own", h, wide)
		}
	}
}

// wider gives a pattern of the list that has a host, or all hosts of a pattern; "" for none.
func wider(list once[string], host string) string {
	if host != "*" && list["*"] {
		return "*"
	}
	for i := range host {
		if wide := "*" + host[i:]; wide != host && list[wide] {
			return wide
		}
	}
	return ""
}

// delegate checks a VirtualService without hosts.
func delegate(c *checker, s *networking.VirtualService) {
	switch {
	case len(s.Gateways) > 0:
		c.at("hosts").refuse(CodeRequired, "it names no hosts; what others delegate to (no hosts) names no gateways either")
	case len(s.Tls)+len(s.Tcp) > 0:
		c.at("hosts").refuse(CodeRequired, "it names no hosts; what others delegate to (no hosts) has http routes only")
	}
	for i, h := range s.Http {
		c.item("http", i).at("delegate").unless(h.GetDelegate() == nil, CodeExclusive, "a delegate can't delegate: move the route to the VirtualService that has hosts")
	}
}

// gatewayNames checks the names of gateways and reports whether the mesh is one.
func gatewayNames(c *checker, field string, names []string) (mesh bool) {
	for i, g := range names {
		at := c.item(field, i)
		if g == meshGateway {
			mesh = true
			continue
		}
		namespace, name, both := strings.Cut(g, "/")
		if !both {
			namespace, name = "", g
		}
		ok := both && nameLabel.MatchString(namespace) && nameLabel.MatchString(name) || !both && isFQDN(name)
		if at.unless(ok, CodeName, "%q is not a gateway: write a name, namespace/name, or mesh", g) && !both && strings.Contains(g, ".") {
			at.add(CodeDeprecated, model.SeverityInfo, "names with dots are of an older form: write namespace/name")
		}
	}
	return mesh
}

func tlsRoute(c *checker, t *networking.TLSRoute, hosts []string) {
	if len(t.GetMatch()) == 0 {
		c.at("match").refuse(CodeRequired, "it has no match: give it one with sniHosts")
	}
	for i, m := range t.GetMatch() {
		at := c.item("match", i)
		at.unless(len(m.GetSniHosts()) > 0, CodeRequired, "it has no sniHosts")
		for j, sni := range m.GetSniHosts() {
			s := at.item("sniHosts", j)
			switch {
			case isAddress(sni):
				s.warn(CodeHost, "an address is no server name: clients do not send it")
			case s.host(sni):
				s.unless(len(hosts) == 0 || slices.ContainsFunc(hosts, func(h string) bool { return covers(h, sni) }), CodeHost, "%q is among none of the VirtualService's hosts: add it there", sni)
				if isPartial(sni) {
					s.warn(CodeIneffective, "proxies match server names by whole labels: no connection has this one; write \"*.suffix\"")
				}
			}
		}
		subnets(at, m.GetDestinationSubnets())
		at.at("port").optionalPort(m.GetPort())
		at.at("sourceLabels").labels(m.GetSourceLabels())
		gatewayNames(at, "gateways", m.GetGateways())
	}
	destinations(c, t.GetRoute())
}

// covers reports whether a pattern is for a host or for all hosts of another pattern.
func covers(pattern, host string) bool {
	pattern, host = strings.ToLower(pattern), strings.ToLower(host)
	suffix, wild := strings.CutPrefix(pattern, "*")
	return pattern == host || wild && strings.HasSuffix(host, suffix)
}

func subnets(c *checker, list []string) {
	for i, s := range list {
		c.item("destinationSubnets", i).unless(isPrefix(s) || isAddress(s), CodeAddress, "%q is neither an address nor a range", s)
	}
}

func tcpRoute(c *checker, t *networking.TCPRoute) {
	for i, m := range t.GetMatch() {
		at := c.item("match", i)
		subnets(at, m.GetDestinationSubnets())
		at.at("port").optionalPort(m.GetPort())
		at.at("sourceLabels").labels(m.GetSourceLabels())
		gatewayNames(at, "gateways", m.GetGateways())
	}
	destinations(c, t.GetRoute())
}

func destinations(c *checker, list []*networking.RouteDestination) {
	c.at("route").unless(len(list) > 0, CodeRequired, "it has no destination")
	weights := make([]int32, len(list))
	for i, d := range list {
		destination(c.item("route", i).at("destination"), d.GetDestination())
		weights[i] = d.GetWeight()
	}
	weigh(c, weights)
}
