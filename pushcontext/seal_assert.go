//go:build isthmus_assert

package pushcontext

import (
	"fmt"
	"hash/maphash"
	"reflect"
	"time"

	"google.golang.org/protobuf/proto"
)

// seal holds the newest snapshot together with a checksum of all that can be reached from it. Built
// with the tag isthmus_assert, a snapshot is checked when the next one takes its place.
type seal struct {
	seed maphash.Seed
	pc   *PushContext
	sum  uint64
}

// next panics if the current snapshot changed since it was published, and seals its successor.
func (s *seal) next(pc *PushContext) {
	if s.pc == nil {
		s.seed = maphash.MakeSeed()
	} else if checksum(s.seed, s.pc) != s.sum {
		panic(fmt.Sprintf("pushcontext: version %d changed after it was published", s.pc.Version))
	}
	s.pc, s.sum = pc, checksum(s.seed, pc)
}

// checksum hashes the content of a snapshot except memos, which fill up as they are used.
func checksum(seed maphash.Seed, pc *PushContext) uint64 {
	w := walker{seed: seed, seen: map[any]uint64{}}
	sum := w.hash(reflect.ValueOf([]any{pc.Version, pc.Time, pc.Mesh, pc.Shards, pc.Configs, pc.noTargets, pc.Gateways, pc.VirtualServices, pc.scopes.content()}))
	for _, v := range pc.hosts.all() {
		sum += w.hash(reflect.ValueOf(v))
	}
	for _, v := range pc.ports.all() {
		sum += w.hash(reflect.ValueOf(v))
	}
	for _, v := range pc.instances.all() {
		sum += w.hash(reflect.ValueOf(v))
	}
	return sum
}

// content is what does not fill up as it is used.
func (s *Scopes) content() []any {
	if s == nil {
		return nil
	}
	return []any{s.root, s.spaces, s.routes}
}

type walker struct {
	seed maphash.Seed
	seen map[any]uint64 // by pointer; 0 while being walked
}

func (w *walker) hash(v reflect.Value) uint64 {
	switch v.Kind() {
	case reflect.Pointer:
		return w.pointer(v)
	case reflect.Interface:
		if v.IsNil() {
			return 1
		}
		return w.hash(v.Elem())
	case reflect.Struct:
		return w.fields(v)
	case reflect.Slice, reflect.Array:
		sum := uint64(v.Len())
		for i := range v.Len() {
			sum = sum*31 + w.hash(v.Index(i))
		}
		return sum
	case reflect.Map:
		sum := uint64(v.Len())
		for it := v.MapRange(); it.Next(); {
			sum += w.hash(it.Key())*31 + w.hash(it.Value())
		}
		return sum
	default:
		return maphash.String(w.seed, fmt.Sprint(v))
	}
}

func (w *walker) pointer(v reflect.Value) uint64 {
	if v.IsNil() {
		return 1
	}
	key := [2]any{v.Type(), v.Pointer()}
	if sum, ok := w.seen[key]; ok {
		return sum
	}
	w.seen[key] = 0
	sum := uint64(0)
	if m, ok := message(v); ok {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			panic(err)
		}
		sum = maphash.Bytes(w.seed, b)
	} else {
		sum = w.hash(v.Elem())
	}
	w.seen[key] = sum
	return sum
}

func message(v reflect.Value) (proto.Message, bool) {
	if !v.CanInterface() {
		return nil, false
	}
	m, ok := v.Interface().(proto.Message)
	return m, ok
}

func (w *walker) fields(v reflect.Value) uint64 {
	if v.Type() == reflect.TypeFor[Memo]() || v.Type() == reflect.TypeFor[time.Location]() {
		return 1
	}
	sum := uint64(7)
	for i := range v.NumField() {
		sum = sum*31 + w.hash(v.Field(i))
	}
	return sum
}
