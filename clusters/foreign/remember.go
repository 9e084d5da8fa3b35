package foreign

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	"github.com/isthmus-mesh/isthmus/clusters/dns"
)

// maxRemembered bounds how many names are remembered. Beyond that all are forgotten: what is in use is soon asked again.
const maxRemembered = 10_000

// Resolver is one that remembers its last good answers, so that a registry that replaces another has the addresses of the same names from
// the start, also while DNS fails. It is for all registries of a process. Make one with Remember.
type Resolver struct {
	dns.Resolver

	mu   sync.Mutex
	last map[string]*[2][]netip.Addr // guarded by mu: by name and family
}

// Remember gives a resolver that remembers what r says.
func Remember(r dns.Resolver) *Resolver {
	return &Resolver{Resolver: r, last: map[string]*[2][]netip.Addr{}}
}

// Lookup implements dns.Resolver.
func (r *Resolver) Lookup(ctx context.Context, name string, f dns.Family) (dns.Answer, error) {
	a, err := r.Resolver.Lookup(ctx, name, f)
	if err != nil {
		return a, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last[name] == nil {
		if len(r.last) >= maxRemembered {
			clear(r.last)
		}
		r.last[name] = &[2][]netip.Addr{}
	}
	r.last[name][f] = slices.Clone(a.Addrs)
	return a, nil
}

// addresses are the last ones that a name had, in the order in which a dns.Registry gives them; nil if it had none.
func (r *Resolver) addresses(name string) []netip.Addr {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.last[name]
	if l == nil {
		return nil
	}
	out := slices.Concat(l[dns.IPv4], l[dns.IPv6])
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}
