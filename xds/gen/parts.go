package gen

import (
	"net/netip"
	"sync"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// partTraits are those that a listener of one service depends on.
const partTraits = TraitType | TraitInterception | TraitFamilies | TraitExtensions | TraitScope | TraitSpans

// partKey is everything that a resource which a port has for one service alone depends on beside that
// service.
type partKey struct {
	port     uint16
	bind     netip.Addr     // of a listener; invalid for a route table
	class    Class          // of a listener, reduced to partTraits
	protocol model.Protocol // of a listener
	routes   routeKey       // of a route table
}

// partCache keeps these resources of one service, encoded: with thousands of services on a port, a
// change of one must not encode the others again.
type partCache struct {
	mu    sync.Mutex
	bytes map[partKey][]byte // guarded by mu
}

// part gives a resource of the service, made at most once per key but for a race.
func part(s *pushcontext.ShapeView, k partKey, encode func() ([]byte, error)) ([]byte, error) {
	c := s.Derived().Do(pushcontext.MemoKey{Generator: memoParts},
		func() any { return &partCache{bytes: map[partKey][]byte{}} }).(*partCache)
	c.mu.Lock()
	b := c.bytes[k]
	c.mu.Unlock()
	if b != nil {
		return b, nil
	}
	b, err := encode()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes[k] = b
	return b, nil
}
