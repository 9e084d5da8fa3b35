package evaluate

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
)

// Evaluate tells what becomes of a request.
func (c *Config) Evaluate(request Request) *Result {
	r := request.withDefaults()
	out := &Result{}
	l := c.listener(&r, out)
	if l == nil {
		out.Kind = NoListener
		return out
	}
	chain := match(l, &r)
	if chain == nil {
		out.Kind = Closed
		out.step("filter chain", "", "none matches, so the connection is closed")
		return out
	}
	out.step("filter chain", chain.Name, chainWhy(l, chain), configOf(chain.Metadata)...)
	c.filters(chain, &r, out)
	out.verdict()
	return out
}

// Names of the listeners that intercepted connections enter by.
const (
	virtualInbound  = "virtualInbound"
	virtualOutbound = "virtualOutbound"
)

// listener finds the listener that takes the connection. One that intercepted connections enter by hands them on to the
// listener of their original destination, if there is one (Listener.use_original_dst).
func (c *Config) listener(r *Request, out *Result) *listenerv3.Listener {
	if r.Inbound {
		if l := c.listeners[virtualInbound]; l != nil {
			out.step("listener", l.Name, "inbound connections enter here")
			return l
		}
	}
	if l, why := c.at(r.Destination); l != nil {
		out.step("listener", l.Name, why)
		return l
	}
	if l := c.listeners[virtualOutbound]; l != nil && !r.Inbound {
		out.step("listener", l.Name, "no listener is for "+r.Destination.String()+", so the one stays that intercepted connections enter by")
		return l
	}
	return nil
}

// at finds the listener of an address: that of the very address, else of all addresses of the port.
func (c *Config) at(a netip.AddrPort) (found *listenerv3.Listener, why string) {
	var wild *listenerv3.Listener
	for _, name := range sortedKeys(c.listeners) {
		l := c.listeners[name]
		if l.UseOriginalDst.GetValue() || name == virtualInbound {
			continue
		}
		for _, x := range addressesOf(l) {
			switch {
			case x == a:
				return l, "it is for " + a.String()
			case wild == nil && x.Port() == a.Port() && x.Addr().IsUnspecified() && (x.Addr().Is6() || a.Addr().Is4()):
				wild = l
			}
		}
	}
	if wild != nil {
		return wild, "it is for all addresses at port " + portText(a.Port())
	}
	return nil, ""
}

func addressesOf(l *listenerv3.Listener) (out []netip.AddrPort) {
	all := []*corev3.Address{l.Address}
	for _, x := range l.AdditionalAddresses {
		all = append(all, x.Address)
	}
	for _, x := range all {
		s := x.GetSocketAddress()
		if ip, err := netip.ParseAddr(s.GetAddress()); err == nil {
			out = append(out, netip.AddrPortFrom(ip, uint16(s.GetPortValue())))
		}
	}
	return out
}

// level is one step of the search for a filter chain: how specifically a chain matches at it, or that it does not. What
// does not care matches least.
type level func(m *listenerv3.FilterChainMatch, r *seen) (specificity int, ok bool)

// seen is what listener filters have found out of a connection.
type seen struct {
	*Request
	serverName string
	transport  string
	protocols  []string
}

// levels are the steps in Envoy's order (FilterChainMatch): only the chains that match a step most specifically take
// part in the next, and there is no way back.
var levels = []level{matchPort, matchDestination, matchServerName, matchTransport, matchProtocols, matchSource, matchSourcePort}

// match finds the filter chain of a connection; nil if none matches.
func match(l *listenerv3.Listener, r *Request) *listenerv3.FilterChain {
	s := inspect(l, r)
	if l.FilterChainMatcher != nil {
		return chosen(l, s)
	}
	left := l.FilterChains
	for _, step := range levels {
		var best []*listenerv3.FilterChain
		most := -1
		for _, chain := range left {
			how, ok := step(chain.FilterChainMatch, s)
			switch {
			case !ok || how < most:
			case how > most:
				best, most = []*listenerv3.FilterChain{chain}, how
			default:
				best = append(best, chain)
			}
		}
		left = best
	}
	if len(left) > 0 {
		return left[0]
	}
	return l.DefaultFilterChain
}

// inspect does what listener filters do.
func inspect(l *listenerv3.Listener, r *Request) *seen {
	s := &seen{Request: r, transport: "raw_buffer"}
	has := func(name string) bool {
		return slices.ContainsFunc(l.ListenerFilters, func(f *listenerv3.ListenerFilter) bool { return strings.Contains(f.Name, name) })
	}
	switch {
	case r.TLS && has("tls_inspector"):
		s.transport, s.serverName, s.protocols = "tls", strings.ToLower(r.ServerName), r.ALPN
	case !r.TLS && has("http_inspector"):
		switch r.Protocol {
		case HTTP1:
			s.protocols = []string{"http/1.1"}
		case HTTP2:
			s.protocols = []string{"h2c"}
		}
	}
	return s
}

func matchPort(m *listenerv3.FilterChainMatch, r *seen) (int, bool) {
	p := m.GetDestinationPort()
	if p == nil {
		return 0, true
	}
	return 1, p.Value == uint32(r.Destination.Port())
}

func matchDestination(m *listenerv3.FilterChainMatch, r *seen) (int, bool) {
	return longest(m.GetPrefixRanges(), r.Destination.Addr())
}

func matchSource(m *listenerv3.FilterChainMatch, r *seen) (int, bool) {
	return longest(m.GetSourcePrefixRanges(), r.Source.Addr())
}

// longest gives the length of the longest range that an address is in. A range of everything is no more specific than none
// (seen with Envoy 1.40).
func longest(ranges []*corev3.CidrRange, a netip.Addr) (int, bool) {
	if len(ranges) == 0 {
		return 0, true
	}
	best := -1
	for _, x := range ranges {
		ip, err := netip.ParseAddr(x.AddressPrefix)
		if err != nil {
			continue
		}
		if p, err := ip.Prefix(int(x.PrefixLen.GetValue())); err == nil && p.Contains(a) {
			best = max(best, p.Bits())
		}
	}
	return best, best >= 0
}

// matchServerName prefers the name itself, then the longest "*.suffix".
func matchServerName(m *listenerv3.FilterChainMatch, r *seen) (int, bool) {
	if len(m.GetServerNames()) == 0 {
		return 0, true
	}
	best := -1
	for _, n := range m.ServerNames {
		n = strings.ToLower(n)
		switch suffix, wild := strings.CutPrefix(n, "*"); {
		case r.serverName == "":
		case n == r.serverName:
			best = max(best, 1<<16)
		case wild && strings.HasSuffix(r.serverName, suffix) && len(r.serverName) > len(suffix):
			best = max(best, 1+len(suffix))
		}
	}
	return best, best >= 0
}

func matchTransport(m *listenerv3.FilterChainMatch, r *seen) (int, bool) {
	if m.GetTransportProtocol() == "" {
		return 0, true
	}
	return 1, m.TransportProtocol == r.transport
}

// matchProtocols prefers what the client names first.
func matchProtocols(m *listenerv3.FilterChainMatch, r *seen) (int, bool) {
	if len(m.GetApplicationProtocols()) == 0 {
		return 0, true
	}
	for i, p := range r.protocols {
		if slices.Contains(m.ApplicationProtocols, p) {
			return len(r.protocols) - i, true
		}
	}
	return 0, false
}

func matchSourcePort(m *listenerv3.FilterChainMatch, r *seen) (int, bool) {
	if len(m.GetSourcePorts()) == 0 {
		return 0, true
	}
	return 1, slices.Contains(m.SourcePorts, uint32(r.Source.Port()))
}

// chainWhy says what a chain asks for.
func chainWhy(l *listenerv3.Listener, chain *listenerv3.FilterChain) string {
	switch {
	case chain == l.DefaultFilterChain:
		return "no other matches"
	case l.FilterChainMatcher != nil:
		return "the listener chooses it by server name and application protocols"
	}
	m := chain.FilterChainMatch
	var asks []string
	ask := func(what string, values ...string) {
		if len(values) > 0 {
			asks = append(asks, what+" "+strings.Join(values, ", "))
		}
	}
	if p := m.GetDestinationPort(); p != nil {
		ask("port", portText(uint16(p.Value)))
	}
	ask("address", rangesText(m.GetPrefixRanges())...)
	ask("server name", m.GetServerNames()...)
	if t := m.GetTransportProtocol(); t != "" {
		ask("transport", t)
	}
	ask("application protocol", m.GetApplicationProtocols()...)
	ask("source", rangesText(m.GetSourcePrefixRanges())...)
	for _, p := range m.GetSourcePorts() {
		ask("source port", uintText(p))
	}
	if len(asks) == 0 {
		return "it takes every connection"
	}
	return "it takes " + strings.Join(asks, "; ")
}

func rangesText(ranges []*corev3.CidrRange) (out []string) {
	for _, x := range ranges {
		out = append(out, x.AddressPrefix+"/"+uintText(x.PrefixLen.GetValue()))
	}
	return out
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	out := make([]K, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
