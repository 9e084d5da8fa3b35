package xds

import (
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
	// unlisted: the generator failed to say what there is; nothing of the view is sent or removed.
	unlisted bool
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

// inherit makes resources that are as they were as old as they were.
func (b *built) inherit(before *built) {
	for i, r := range b.resources {
		if o := before.at(i, r.name); o != nil && !o.failed() && !r.failed() && o.Version == r.Version {
			r.rev = o.rev
		}
	}
}

// at finds a resource that most likely stands at index i.
func (b *built) at(i int, name string) *resource {
	if i < len(b.resources) && b.resources[i].name == name {
		return b.resources[i]
	}
	return b.find(name)
}

// perProxy are traits that hardly two proxies share: what depends on them is not kept, or a view
// would collect an entry for every proxy that ever connected.
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
	c := a.reduce(traits)
	memo, k := view.Derived(), pushcontext.MemoKey{Generator: uint8(typ), Class: c.id}
	if traits&perProxy != 0 || f.kept.Load() > f.budget {
		b, _ := f.build(view, typ, key, c.class)
		return b
	}
	return memo.Do(k, func() any {
		b, size := f.build(view, typ, key, c.class)
		b.traits = traits
		if before, ok := memo.Before(k).(*built); ok && before.traits == traits {
			b.inherit(before)
		}
		f.kept.Add(size)
		runtime.AddCleanup(b, func(n int64) { f.kept.Add(-n) }, size)
		return b
	}).(*built)
}

func (f *factory) build(view pushcontext.View, typ int, key pushcontext.ViewKey, c gen.Class) (*built, int64) {
	g := f.generators[typ]
	names, err := namesOf(g, view, c)
	if err != nil {
		f.report(typ, key, "", err)
		return &built{unlisted: true}, 0
	}
	b, size := &built{resources: make([]*resource, len(names))}, int64(0)
	for i, n := range names {
		r := &resource{name: n, rev: view.Revision()}
		if body, err := bodyOf(g, view, c, n); err != nil {
			f.report(typ, key, n, err)
		} else {
			r.Resource = wire.NewResource(g.TypeURL(), n, body)
			r.name = r.Resource.Name
			size += int64(r.Size())
		}
		b.resources[i] = r
	}
	f.metrics.built(typ, len(names))
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

func namesOf(g gen.Generator, v pushcontext.View, c gen.Class) (n []string, err error) {
	defer recovered(&err)
	return g.Names(v, c), nil
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
