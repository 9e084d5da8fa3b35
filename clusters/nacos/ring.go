package nacos

import (
	"math/rand/v2"
	"net"
	"slices"
	"sync"
)

// ring gives servers in turn, each as likely to be the first.
type ring struct {
	grpc uint16 // as the spec's grpcPort

	mu      sync.Mutex
	fixed   []server // guarded by mu: those of the spec
	servers []server // guarded by mu: with those of the address server
	at      int      // guarded by mu
}

func newRing(fixed []server, grpc uint16) *ring {
	r := &ring{fixed: fixed, grpc: grpc}
	r.listed(nil)
	return r
}

// listed sets what the address server lists.
func (r *ring) listed(list []server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := slices.Clone(r.fixed)
	for _, s := range list {
		if !slices.Contains(next, s) {
			next = append(next, s)
		}
	}
	if len(next) == len(r.servers) && !slices.ContainsFunc(next, func(s server) bool { return !slices.Contains(r.servers, s) }) {
		return
	}
	rand.Shuffle(len(next), func(i, j int) { next[i], next[j] = next[j], next[i] })
	r.servers, r.at = next, 0
}

func (r *ring) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.servers)
}

func (r *ring) has(s server) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.servers, s)
}

// next gives the next server; ok is false if there is none.
func (r *ring) next() (s server, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.servers) == 0 {
		return server{}, false
	}
	r.at %= len(r.servers)
	s = r.servers[r.at]
	r.at++
	return s, true
}

// prefer makes the server that another one named the next, if it is one of ours: credentials go nowhere else.
func (r *ring) prefer(to *resetError) {
	if to.host == "" {
		return
	}
	want, err := parseServer(net.JoinHostPort(to.host, to.port), r.grpc)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.servers, func(s server) bool { return s.host == want.host && s.http == want.http })
	if i >= 0 {
		r.at = i
	}
}
