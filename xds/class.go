package xds

import (
	"sync"

	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// classes numbers the classes that resources were built for. A number is never given twice.
type classes struct {
	mu  sync.RWMutex
	ids map[gen.Class]uint32 // guarded by mu
}

func newClasses() *classes { return &classes{ids: map[gen.Class]uint32{}} }

func (c *classes) id(k gen.Class) uint32 {
	c.mu.RLock()
	id, ok := c.ids[k]
	c.mu.RUnlock()
	if ok {
		return id
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if id, ok = c.ids[k]; !ok {
		id = uint32(len(c.ids) + 1)
		c.ids[k] = id
	}
	return id
}

func (c *classes) count() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.ids)
}

// audience is who resources are made for: a proxy's class, its place in the mesh, and the numbers of
// its class reduced to each set of traits asked for so far. It is owned by one goroutine.
type audience struct {
	class   gen.Class
	reader  pushcontext.Reader
	classes *classes
	reduced []reducedClass
	used    gen.Traits // all that were asked for
}

type reducedClass struct {
	traits gen.Traits
	id     uint32
	class  gen.Class
}

func (a *audience) reduce(t gen.Traits) *reducedClass {
	a.used |= t
	for i := range a.reduced {
		if a.reduced[i].traits == t {
			return &a.reduced[i]
		}
	}
	c := a.class.Keep(t)
	a.reduced = append(a.reduced, reducedClass{traits: t, id: a.classes.id(c), class: c})
	return &a.reduced[len(a.reduced)-1]
}
