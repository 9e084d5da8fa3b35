package script

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/clusters/dns"
)

// resolver is the DNS of a scenario: what it was not told fails.
type resolver struct {
	mu      sync.Mutex
	answers map[string]reply // guarded by mu
}

type reply struct {
	addrs []netip.Addr
	ttl   time.Duration
	fault string
}

// Lookup implements dns.Resolver.
func (r *resolver) Lookup(_ context.Context, name string, f dns.Family) (dns.Answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, ok := r.answers[name]
	switch {
	case !ok:
		return dns.Answer{}, errors.New("SERVFAIL")
	case a.fault != "":
		return dns.Answer{}, errors.New(a.fault)
	}
	out := dns.Answer{TTL: a.ttl}
	for _, x := range a.addrs {
		if x.Is4() == (f == dns.IPv4) {
			out.Addrs = append(out.Addrs, x)
		}
	}
	return out, nil
}

// answer says what a name has from now on: addresses for a time, or a fault.
func (r *resolver) answer(name string, args []string) error {
	var a reply
	var err error
	if a.ttl, err = time.ParseDuration(args[0]); err != nil {
		a.fault = args[0]
	}
	for _, x := range args[1:] {
		addr, err := netip.ParseAddr(x)
		if err != nil {
			return err
		}
		a.addrs = append(a.addrs, addr)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answers == nil {
		r.answers = map[string]reply{}
	}
	r.answers[name] = a
	return nil
}

// copy answers as another does.
func (r *resolver) copy(from *resolver) {
	from.mu.Lock()
	answers := maps.Clone(from.answers)
	from.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers = answers
}
