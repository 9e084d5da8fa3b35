package gen

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// addrSet remembers addresses and tells those apart that were added once only. It may call an address
// contested that is not; then the exact, slower way decides. With thousands of services, few addresses
// are, and a table must not need a map of all of them each time.
type addrSet struct {
	once, twice []uint64
	shift       uint
}

// newAddrSet makes a set for n addresses: 16 bits for each.
func newAddrSet(n int) *addrSet {
	words := 1 << max(bits.Len(uint(n/4)), 4)
	return &addrSet{once: make([]uint64, words), twice: make([]uint64, words), shift: uint(64 - bits.Len(uint(words*64-1)))}
}

func (s *addrSet) slot(a netip.Addr) (word int, bit uint64) {
	raw := a.As16()
	h := binary.BigEndian.Uint64(raw[:8])*0x9e3779b97f4a7c15 + binary.BigEndian.Uint64(raw[8:])
	h = (h ^ h>>29) * 0xbf58476d1ce4e5b9 >> s.shift
	return int(h / 64), 1 << (h % 64)
}

func (s *addrSet) add(a netip.Addr) {
	w, b := s.slot(a)
	s.twice[w] |= s.once[w] & b
	s.once[w] |= b
}

// contested is true for every address that was added more than once.
func (s *addrSet) contested(a netip.Addr) bool {
	w, b := s.slot(a)
	return s.twice[w]&b != 0
}
