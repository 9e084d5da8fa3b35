package xds

import (
	"bytes"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"

	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
)

// resource is one listed resource of a view. A resource that could not be built has no encoding;
// proxies keep what they have.
type resource struct {
	*wire.Resource // nil when the build failed
	name           string
	rev            uint64        // version since which its content is the same
	number         atomic.Uint64 // its number in a name table: era << 32 | id
}

// failed reports whether the resource exists but could not be built.
func (r *resource) failed() bool { return r.Resource == nil }

// id gives the resource's number in a table.
func (r *resource) id(t *names, typ int, g gen.Generator) uint32 {
	if n := r.number.Load(); uint32(n>>32) == t.era {
		return uint32(n)
	}
	id := t.intern(typ, g, r.name)
	r.number.Store(uint64(t.era)<<32 | uint64(id))
	return id
}

// built is everything one generator makes of one view for one class. It is immutable.
type built struct {
	resources []*resource
	traits    gen.Traits // that it depends on
	scope     string     // what TraitPolicy, if it is one of them, tells proxies apart by
	// unlisted: the generator failed to say what there is; nothing of the view is sent or removed.
	unlisted bool

	rev  uint64 // of the view
	step *step  // nil if it is not known what was made of the view before
}

// step is how a list differs from that of the view that its own replaced.
type step struct {
	from uint64      // revision of that view
	news []*resource // that were not there, or not as they are
	lost []string    // names that were
}

// stepped notes how the list differs from the one before.
func (b *built) stepped(before *built) {
	if before.unlisted || b.unlisted {
		return
	}
	s := &step{from: before.rev}
	was, kept := cursor{b: before}, 0
	for _, r := range b.resources {
		o := was.find(r.name)
		if o != nil {
			kept++
		}
		if o != r {
			s.news = append(s.news, r)
		}
	}
	if kept < len(before.resources) {
		is := cursor{b: b}
		for _, o := range before.resources {
			if is.find(o.name) == nil {
				s.lost = append(s.lost, o.name)
			}
		}
	}
	b.step = s
}

func (b *built) find(name string) *resource {
	if b == nil {
		return nil
	}
	for _, r := range b.resources {
		if r.name == name {
			return r
		}
	}
	return nil
}

// cursor finds resources of a list by name, most quickly in the list's own order.
type cursor struct {
	b    *built
	next int
}

func (c *cursor) find(name string) *resource {
	if c.b == nil {
		return nil
	}
	for i := c.next; i < min(c.next+2, len(c.b.resources)); i++ { // the names may differ by one
		if c.b.resources[i].name == name {
			c.next = i + 1
			return c.b.resources[i]
		}
	}
	for i, r := range c.b.resources {
		if r.name == name {
			c.next = i + 1
			return r
		}
	}
	return nil
}

// at finds a resource that most likely stands at index i.
func (b *built) at(i int, name string) *resource {
	if i < len(b.resources) && b.resources[i].name == name {
		return b.resources[i]
	}
	return b.find(name)
}

// perProxy are traits that hardly two proxies share: what depends on them is not kept, or a view
// would collect an entry for every proxy that ever connected. What most proxies have is, and the rest
// is made from it.
const perProxy = gen.TraitIP

// factory builds resources.
type factory struct {
	generators []gen.Generator
	budget     int64 // bytes of memoised encodings, above which nothing more is kept
	kept       *atomic.Int64
	rosters    *rosters
	metrics    *metrics
	failed     func(Failure)
}

// of gives what a generator makes of the view that the key means to an audience, and the version at
// which that last changed. It is nil if there is no such view.
func (f *factory) of(pc *pushcontext.PushContext, typ int, key pushcontext.ViewKey, a *audience) (*built, uint64) {
	view, rev := pc.View(key, &a.reader)
	if view == nil {
		return nil, rev
	}
	return f.derive(view, typ, key, a), rev
}

func (f *factory) derive(view pushcontext.View, typ int, key pushcontext.ViewKey, a *audience) *built {
	g := f.generators[typ]
	traits, err := traitsOf(g, view)
	if err != nil {
		f.report(typ, key, "", err)
		return &built{unlisted: true}
	}
	shared := f.shared(view, typ, key, traits&^perProxy, a)
	if traits&perProxy == 0 {
		return shared
	}
	a.used |= perProxy
	own, err := narrowed(g, view, a.class.Keep(traits))
	switch {
	case err != nil:
		f.report(typ, key, "", err)
		return &built{unlisted: true}
	case own == own.Keep(traits&^perProxy):
		return shared
	}
	b, _ := f.build(view, typ, key, own, shared)
	return b
}

// shared gives what proxies of equal class have in common.
func (f *factory) shared(view pushcontext.View, typ int, key pushcontext.ViewKey, t gen.Traits, a *audience) *built {
	g := f.generators[typ]
	c, scope, err := reducedFor(g, view, t, a)
	if err != nil {
		f.report(typ, key, "", err)
		return &built{unlisted: true}
	}
	if f.kept.Load() > f.budget {
		b, _ := f.build(view, typ, key, c.class, nil)
		return b
	}
	memo, k := view.Derived(), pushcontext.MemoKey{Generator: uint8(typ), Class: a.number(c)}
	kept, ok := memo.Do(k, func() any {
		before, _ := memo.Before(k).(*built)
		if before != nil && (before.traits != t || before.scope != scope) {
			before = nil // it was made for other proxies
		}
		b, size := f.build(view, typ, key, c.class, before)
		b.traits, b.scope, b.rev = t, scope, view.Revision()
		if before != nil {
			b.stepped(before)
		}
		f.kept.Add(size)
		runtime.AddCleanup(b, func(n int64) { f.kept.Add(-n) }, size)
		return b
	}).(*built)
	if !ok { // it panicked, which cost another stream
		kept = &built{unlisted: true}
	}
	return kept
}

// reducedFor gives the class that resources of a view are kept for. What policies tell proxies apart by
// differs from view to view, so there the generator has the word.
func reducedFor(g gen.Generator, view pushcontext.View, t gen.Traits, a *audience) (c *reducedClass, scope string, err error) {
	n, ok := g.(gen.Narrower)
	if !ok || t&gen.TraitPolicy == 0 {
		return a.reduce(t), "", nil
	}
	defer recovered(&err)
	return a.narrow(t, n.Narrow(view, a.class.Keep(t))), n.Scope(view), nil
}

// build makes what is not as it was before, which may be nil.
func (f *factory) build(view pushcontext.View, typ int, key pushcontext.ViewKey, c gen.Class, before *built) (*built, int64) {
	g := f.generators[typ]
	names, bodies, err := listOf(g, view, c)
	if err != nil {
		f.report(typ, key, "", err)
		return &built{unlisted: true}, 0
	}
	b, size, made := &built{resources: make([]*resource, len(names))}, int64(0), 0
	was := cursor{b: before}
	for i, n := range names {
		var body []byte
		if bodies != nil {
			body = bodies[i]
		} else if body, err = bodyOf(g, view, c, n); err != nil {
			f.report(typ, key, n, err)
			b.resources[i] = &resource{name: n, rev: view.Revision()}
			continue
		}
		r := was.find(n)
		if r == nil || r.failed() || !bytes.Equal(r.Body(), body) {
			r = &resource{Resource: wire.NewResource(g.TypeURL(), n, body), rev: view.Revision()}
			r.name = r.Resource.Name
			made++
		}
		b.resources[i] = r
		size += int64(r.Size())
	}
	f.metrics.built(typ, made)
	return b, size
}

// Failure is a resource that could not be built. Proxies keep their last good one.
type Failure struct {
	TypeURL string
	Name    string // "" when the view could not be listed
	View    pushcontext.ViewKey
	Err     string
}

func (f *factory) report(typ int, key pushcontext.ViewKey, name string, err error) {
	f.metrics.internalErrors.Inc()
	f.failed(Failure{TypeURL: f.generators[typ].TypeURL(), Name: name, View: key, Err: err.Error()})
}

// A panic while generating costs what was being generated, no more.

func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
	}
}

func traitsOf(g gen.Generator, v pushcontext.View) (t gen.Traits, err error) {
	defer recovered(&err)
	return g.Traits(v), nil
}

func narrowed(g gen.Generator, v pushcontext.View, c gen.Class) (out gen.Class, err error) {
	defer recovered(&err)
	if n, ok := g.(gen.Narrower); ok {
		return n.Narrow(v, c), nil
	}
	return c, nil
}

// listOf gives names and, of a generator that makes all at once, the bodies.
func listOf(g gen.Generator, v pushcontext.View, c gen.Class) (names []string, bodies [][]byte, err error) {
	defer recovered(&err)
	if b, ok := g.(gen.Bundler); ok {
		return b.Bundle(v, c)
	}
	return g.Names(v, c), nil, nil
}

func bodyOf(g gen.Generator, v pushcontext.View, c gen.Class, name string) (b []byte, err error) {
	defer recovered(&err)
	return g.Build(v, c, name)
}

// keyOf asks for the view of a name that any client may have made up.
func keyOf(g gen.Generator, name string) (k pushcontext.ViewKey, ok bool) {
	defer func() {
		if recover() != nil {
			k, ok = pushcontext.ViewKey{}, false
		}
	}()
	return g.Key(name)
}
