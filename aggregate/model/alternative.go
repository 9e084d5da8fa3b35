package model

import (
	"net/netip"
	"slices"
)

// AnyNetwork stands for all networks in an Alternative.
const AnyNetwork = "*"

// Alternative is an address at which proxies of another network dial an endpoint themselves, instead of at its own or through gateways.
type Alternative struct {
	Network string // of the proxies; AnyNetwork: of those that no other alternative is for
	IP      netip.Addr
	Port    uint16
	Name    string // what its source calls it
}

// Addr is the alternative as the address of something in a member.
func (a *Alternative) Addr(member ClusterID) Addr {
	return Addr{Cluster: member, AddrPort: netip.AddrPortFrom(a.IP, a.Port)}
}

// Alternatives are those of one endpoint, at most one for a network. They are shared, and never changed.
type Alternatives []Alternative

// For gives the one for proxies of a network, which has a name; nil if there is none. It may be called on nil.
func (a *Alternatives) For(network string) (found *Alternative) {
	if a == nil || network == "" {
		return nil
	}
	for i := range *a {
		switch x := &(*a)[i]; x.Network {
		case network:
			return x
		case AnyNetwork:
			found = x
		}
	}
	return found
}

// Equal compares them. It may be called on nil.
func (a *Alternatives) Equal(b *Alternatives) bool {
	return a == b || a != nil && b != nil && slices.Equal(*a, *b)
}
