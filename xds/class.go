package xds

import (
	"cmp"
	"slices"
	"sync"

	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// idleClasses is how many classes of proxies that are gone stay known: proxies that restart find what
// was built for them.
const idleClasses = 256

// classes numbers the classes that resources are kept for. A number is never given twice.
type classes struct {
	mu      sync.Mutex
	members map[gen.Class]*class // guarded by mu
	last    uint32               // guarded by mu; the newest number
	idle    int                  // guarded by mu; members that nobody uses
	left    uint64               // guarded by mu; counts how often a member became idle
}

// class is a numbered class.
type class struct {
	id     uint32    // read-only
	traits gen.Class // read-only
	users  int       // guarded by classes.mu; audiences
	left   uint64    // guarded by classes.mu; when the last user left
}

func newClasses() *classes { return &classes{members: map[gen.Class]*class{}} }

// join gives a class its number and counts a user.
func (c *classes) join(k gen.Class) *class {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.members[k]
	if m == nil {
		c.last++
		c.idle++
		m = &class{id: c.last, traits: k}
		c.members[k] = m
	}
	if m.users++; m.users == 1 {
		c.idle--
	}
	return m
}

// leave counts a user less. If many classes have none, the longer half of these is forgotten; what was
// built for them goes with the views that hold it.
func (c *classes) leave(m *class) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.users--; m.users > 0 {
		return
	}
	c.left++
	c.idle++
	m.left = c.left
	if c.idle > idleClasses {
		c.forget()
	}
}

// forget is called with mu held.
func (c *classes) forget() {
	var idle []*class
	for _, m := range c.members {
		if m.users == 0 {
			idle = append(idle, m)
		}
	}
	slices.SortFunc(idle, func(a, b *class) int { return cmp.Compare(a.left, b.left) })
	for _, m := range idle[:len(idle)/2] {
		delete(c.members, m.traits)
		c.idle--
	}
}

// count gives how many classes connected proxies have.
func (c *classes) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.members) - c.idle
}

// audience is who resources are made for: a proxy's class, its place in the mesh, and its class reduced
// to each set of traits asked for lately. It is owned by one goroutine.
type audience struct {
	class   gen.Class
	reader  pushcontext.Reader
	classes *classes
	reduced []reducedClass // those asked for lately: see forget
	crowd   int            // how many of these are too many
	used    gen.Traits     // all that were asked for
	labels  []string       // names of the labels that were, sorted
}

type reducedClass struct {
	traits gen.Traits
	class  gen.Class
	member *class // once resources are kept for it
	asked  bool   // for, since old ones were forgotten
}

// fewReduced is how many reduced classes an audience may have before it looks for old ones, manyReduced how many at all.
const (
	fewReduced  = 32
	manyReduced = 512
)

// reduce gives the class reduced to traits. What it gives is good until the next call.
func (a *audience) reduce(t gen.Traits) *reducedClass {
	a.used |= t
	return a.find(func(c *reducedClass) bool { return c.traits == t }, func() gen.Class { return a.class.Keep(t) }, t)
}

// narrow gives what a view's policies leave of the class reduced to traits, as reduce does.
func (a *audience) narrow(t gen.Traits, narrowed gen.Class) *reducedClass {
	a.used |= t
	a.name(narrowed.Labels.Keys())
	return a.find(func(c *reducedClass) bool { return c.traits == t && c.class == narrowed }, func() gen.Class { return narrowed }, t)
}

func (a *audience) find(is func(*reducedClass) bool, made func() gen.Class, t gen.Traits) *reducedClass {
	for i := range a.reduced {
		if c := &a.reduced[i]; is(c) {
			c.asked = true
			return c
		}
	}
	if len(a.reduced) >= max(a.crowd, fewReduced) {
		a.forget()
	}
	a.reduced = append(a.reduced, reducedClass{traits: t, class: made(), asked: true})
	return &a.reduced[len(a.reduced)-1]
}

// forget drops the classes that nobody asked for since the last time: policies that come and go would leave ever more. A
// class that comes back has its number again while that is known.
func (a *audience) forget() {
	all := len(a.reduced) >= manyReduced
	a.reduced = slices.DeleteFunc(a.reduced, func(c reducedClass) bool {
		if c.asked && !all {
			return false
		}
		a.disuse(&c)
		return true
	})
	for i := range a.reduced {
		a.reduced[i].asked = false
	}
	a.crowd = min(2*len(a.reduced), manyReduced)
}

// name notes that labels were asked for.
func (a *audience) name(labels []string) {
	for _, l := range labels {
		if i, known := slices.BinarySearch(a.labels, l); !known {
			a.labels = slices.Insert(a.labels, i, l)
		}
	}
}

// number gives the number under which resources for the reduced class are kept.
func (a *audience) number(c *reducedClass) uint32 {
	if c.member == nil {
		c.member = a.classes.join(c.class)
	}
	return c.member.id
}

// leave ends the use of the audience's classes.
func (a *audience) leave() {
	for i := range a.reduced {
		a.disuse(&a.reduced[i])
	}
}

func (a *audience) disuse(c *reducedClass) {
	if c.member != nil {
		a.classes.leave(c.member)
		c.member = nil
	}
}
