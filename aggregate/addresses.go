package aggregate

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// The ranges of automatic addresses (as Istio allocates them). No packet is ever sent there: proxies tell services
// apart by them.
var (
	automatic4 = netip.MustParsePrefix("240.240.0.0/16")
	automatic6 = netip.MustParsePrefix("2001:2::/48")
)

// automatic4Size is the number of usable addresses: none ends in 0 or 255, which some programs refuse.
const automatic4Size = 256 * 254

// automatic are the addresses of services that are given some, IPv4 first.
type automatic map[hostKey][]netip.Prefix

// asker is a service that is to be given addresses.
type asker struct {
	key     hostKey
	created time.Time    // of its oldest definition
	had     []netip.Addr // in the order of its definitions
}

// newAutomatic gives addresses. It depends on nothing but its arguments, so all replicas give the same: first
// those that sources remember, to the oldest service that does; then one of each family at a place that the
// name decides, or the next that is free, again to the oldest first. So a service keeps its address whatever
// comes later.
func newAutomatic(askers []asker, reserved map[netip.Prefix]int) automatic {
	slices.SortFunc(askers, func(a, b asker) int { return cmp.Or(model.Older(a.created, b.created), compareHosts(a.key, b.key)) })
	g := giver{taken: map[netip.Addr]struct{}{}, out: automatic{}}
	for p := range reserved {
		if p.IsSingleIP() {
			g.taken[p.Addr()] = struct{}{}
		} else {
			g.ranges = append(g.ranges, p)
		}
	}
	for _, a := range askers {
		for _, addr := range a.had {
			g.give(a.key, addr)
		}
	}
	for _, a := range askers {
		g.fill(a.key)
	}
	for _, list := range g.out {
		slices.SortFunc(list, netip.Prefix.Compare)
	}
	return g.out
}

type giver struct {
	taken  map[netip.Addr]struct{}
	ranges []netip.Prefix // taken as a whole
	out    automatic
}

func (g *giver) give(k hostKey, a netip.Addr) bool {
	if _, taken := g.taken[a]; taken || slices.ContainsFunc(g.ranges, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return false
	}
	g.taken[a] = struct{}{}
	g.out[k] = append(g.out[k], netip.PrefixFrom(a, a.BitLen()))
	return true
}

// maxProbes is how many places are tried. So many are taken in a row only when hardly any are left.
const maxProbes = 4096

// fill gives a service an address of each family of which it has none. If it finds none, it goes without.
func (g *giver) fill(k hostKey) {
	h := fnv.New64a()
	h.Write([]byte(k.namespace + "/" + k.host))
	has := func(four bool) bool {
		return slices.ContainsFunc(g.out[k], func(p netip.Prefix) bool { return p.Addr().Is4() == four })
	}
	if !has(true) {
		g.probe(k, h.Sum64(), address4)
	}
	if !has(false) {
		g.probe(k, h.Sum64(), address6)
	}
}

func (g *giver) probe(k hostKey, place uint64, at func(uint64) netip.Addr) {
	for i := range uint64(maxProbes) {
		if g.give(k, at(place+i)) {
			return
		}
	}
}

func address4(n uint64) netip.Addr {
	n %= automatic4Size
	b := automatic4.Addr().As4()
	b[2], b[3] = byte(n/254), byte(1+n%254)
	return netip.AddrFrom4(b)
}

func address6(n uint64) netip.Addr {
	b := automatic6.Addr().As16()
	binary.BigEndian.PutUint64(b[8:], n)
	return netip.AddrFrom16(b)
}

// askerOf reads the definitions of one host: it asks for addresses if a ServiceEntry does, and none has an address
// or is a service object.
func askerOf(k hostKey, rows []row[*model.Service]) (a asker, ok bool) {
	a.key = k
	rows = slices.SortedFunc(slices.Values(rows), func(a, b row[*model.Service]) int {
		return cmp.Or(model.Older(a.obj.Created, b.obj.Created), a.id.compare(b.id))
	})
	for _, r := range rows {
		switch {
		case native(r.obj), !r.obj.AutoAddress && len(r.obj.Addresses) > 0:
			return a, false
		case r.obj.AutoAddress:
			if !ok {
				a.created, ok = r.obj.Created, true
			}
			a.had = append(a.had, r.obj.Automatic...)
		}
	}
	return a, ok
}

// addressIndex knows which rows matter to automatic addresses. It belongs to the controller goroutine.
type addressIndex struct {
	askers    map[hostKey]int      // rows that ask
	federated map[string]int       // FederatedServices, by host in lower case
	reserved  map[netip.Prefix]int // rows with addresses in the ranges of automatic ones
	changed   bool
}

func newAddressIndex() *addressIndex {
	return &addressIndex{askers: map[hostKey]int{}, federated: map[string]int{}, reserved: map[netip.Prefix]int{}}
}

// count takes a row in (1) or out (-1).
func (x *addressIndex) count(k hostKey, s *model.Service, n int) {
	if s.AutoAddress {
		add(x.askers, k, n)
		x.changed = true
		return
	}
	x.changed = x.changed || x.askers[k] > 0 || x.federated[strings.ToLower(s.Host)] > 0
	for _, p := range reserved(s) {
		add(x.reserved, p, n)
		x.changed = true
	}
}

// add counts, and forgets what is at zero.
func add[K comparable](m map[K]int, k K, n int) {
	if m[k] += n; m[k] == 0 {
		delete(m, k)
	}
}

// reserved are the addresses of a service that are among the automatic ones.
func reserved(s *model.Service) (out []netip.Prefix) {
	if s.AutoAddress {
		return nil
	}
	for _, p := range s.Addresses {
		if p.Bits() > automatic4.Bits() && automatic4.Contains(p.Addr()) || p.Bits() > automatic6.Bits() && automatic6.Contains(p.Addr()) {
			out = append(out, p)
		}
	}
	return out
}

// askers gives the services that ask for addresses.
func (s *state) askers() (out []asker) {
	for k := range s.addresses.askers {
		if a, ok := askerOf(k, s.hosts[k].services); ok {
			out = append(out, a)
		}
	}
	return out
}

// differs adds the hosts whose addresses are not as they were.
func (a automatic) differs(s *patternSet, old automatic) {
	for k, list := range a {
		if !slices.Equal(list, old[k]) {
			s.add(k.host)
		}
	}
	for k := range old {
		if _, still := a[k]; !still {
			s.add(k.host)
		}
	}
}
