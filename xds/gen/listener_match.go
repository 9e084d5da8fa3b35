package gen

import (
	"net/netip"
	"slices"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
)

// Envoy looks for the longest range that has the original destination, then for the server name among the chains of that
// range only: there is no way back to a wider range. So a chain for a wider range is for the narrower ones in it as well, as
// far as these say nothing of its server names. Two chains of equal matches would make Envoy refuse the listener: the first
// rule has the match.

// everywhere stands for the absence of a range, and for that of all addresses: to Envoy they are the same.
var everywhere netip.Prefix

// chainTable says which rule is for a server name in a range; "" is all connections.
type chainTable struct {
	ranges []netip.Prefix // everywhere first, then wider ones before narrower ones
	owner  map[netip.Prefix]map[string]int
}

func newChainTable(rules []chainRule) *chainTable {
	t := &chainTable{owner: map[netip.Prefix]map[string]int{everywhere: {}}}
	for i, r := range rules {
		for _, at := range orJust(r.ranges, everywhere) {
			if at.IsValid() && at.Bits() == 0 {
				at = everywhere
			}
			if t.owner[at] == nil {
				t.owner[at] = map[string]int{}
				t.ranges = append(t.ranges, at)
			}
			for _, name := range orJust(r.names, "") {
				if _, taken := t.owner[at][name]; !taken {
					t.owner[at][name] = i
				}
			}
		}
	}
	slices.SortFunc(t.ranges, func(a, b netip.Prefix) int {
		if a.Bits() != b.Bits() {
			return a.Bits() - b.Bits()
		}
		return a.Addr().Compare(b.Addr())
	})
	t.ranges = append([]netip.Prefix{everywhere}, t.ranges...)
	t.inherit()
	return t
}

func orJust[T any](list []T, one T) []T {
	if len(list) == 0 {
		return []T{one}
	}
	return list
}

// inherit adds to each range what is for the next wider one. What is for all connections everywhere is not: that chain is
// the default, which Envoy comes to anyway.
func (t *chainTable) inherit() {
	for i, at := range t.ranges {
		if i == 0 {
			continue
		}
		own, add := t.owner[at], map[string]int{}
		wider := t.wider(i)
		for name, rule := range t.owner[wider] {
			if !covers(own, name) && (wider != everywhere || name != "") {
				add[name] = rule
			}
		}
		for name, rule := range add {
			own[name] = rule
		}
	}
}

// wider gives the narrowest of the ranges before that contains range i.
func (t *chainTable) wider(i int) netip.Prefix {
	at := t.ranges[i]
	for _, p := range slices.Backward(t.ranges[1:i]) {
		if p.Bits() < at.Bits() && p.Contains(at.Addr()) {
			return p
		}
	}
	return everywhere
}

// covers reports whether all connections of a server name, or of a pattern of them, find one of the names.
func covers(names map[string]int, name string) bool {
	for {
		if _, ok := names[name]; ok {
			return true
		}
		if name == "" {
			return false
		}
		_, rest, ok := strings.Cut(strings.TrimPrefix(name, "*."), ".")
		if name = "*." + rest; !ok {
			name = ""
		}
	}
}

// matches are those of each rule's chains; the default chain has none. A chain without ranges is for all.
func (t *chainTable) matches() map[int][]*listenerv3.FilterChainMatch {
	out, made := map[int][]*listenerv3.FilterChainMatch{}, map[sameChain]*listenerv3.FilterChainMatch{}
	for i, at := range t.ranges {
		for rule, names := range t.namesAt(at) {
			if i == 0 && names[0] == "" {
				if names = names[1:]; len(names) == 0 {
					continue
				}
			}
			key := sameChain{rule, strings.Join(names, " "), i == 0}
			m := made[key]
			if m == nil {
				if m = (&listenerv3.FilterChainMatch{}); names[0] != "" {
					m.ServerNames = names
				}
				made[key], out[rule] = m, append(out[rule], m)
			}
			if i > 0 {
				m.PrefixRanges = append(m.PrefixRanges, cidr(at))
			}
		}
	}
	return out
}

// sameChain tells the chains of a rule apart: one for each set of names, everywhere or in ranges.
type sameChain struct {
	rule       int
	names      string
	everywhere bool
}

// namesAt gives the server names in a range by rule, sorted.
func (t *chainTable) namesAt(at netip.Prefix) map[int][]string {
	out := map[int][]string{}
	for name, rule := range t.owner[at] {
		out[rule] = append(out[rule], name)
	}
	for _, names := range out {
		slices.Sort(names)
	}
	return out
}

// fallback gives the rule for connections that no other is for.
func (t *chainTable) fallback() (rule int, ok bool) {
	rule, ok = t.owner[everywhere][""]
	return rule, ok
}

// open are the ranges in which some server names only have a rule.
func (t *chainTable) open() (out []netip.Prefix) {
	for _, at := range t.ranges[1:] {
		if !covers(t.owner[at], "") {
			out = append(out, at)
		}
	}
	return out
}
