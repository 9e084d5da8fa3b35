package validate_test

import (
	"math"
	"math/rand/v2"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
)

// step leads from a message into one of its fields: an item of a list, a value of a map, or a field's only message.
type step struct {
	field protoreflect.FieldDescriptor
	index int
	key   protoreflect.MapKey
}

// mutation changes one thing in an object: apply is given the message at the path.
type mutation struct {
	path  []step
	apply func(protoreflect.Message)
}

// in gives a copy of an object with the mutation; nil if the object has not what it is for.
func (m mutation) in(o proto.Message) proto.Message {
	out := proto.Clone(o)
	at := out.ProtoReflect()
	for _, s := range m.path {
		switch {
		case s.field.IsList():
			list := at.Mutable(s.field).List()
			if s.index >= list.Len() {
				return nil
			}
			at = list.Get(s.index).Message()
		case s.field.IsMap():
			table := at.Mutable(s.field).Map()
			if !table.Has(s.key) {
				return nil
			}
			at = table.Mutable(s.key).Message()
		default:
			at = at.Mutable(s.field).Message()
		}
	}
	m.apply(at)
	return out
}

// oddTexts are put where a text may stand. Each is right somewhere.
var oddTexts = []string{
	"", "a", "Ab", "a.b", "a.b.", "*", "*.a.example", "*a.example", "*-eu.example.com", "a.*", "a b", "a_b", "-a", "a-", "a/b", "./a", "*/a", "~/*", "~a/*", "~./b.c", "a/*.b", "a/b/c", "~", ".", "mesh", "a/mesh",
	"10.0.0.1", "10.0.0.0/8", "0.0.0.0", "::1", "fd00::/8", "unix:///x", "unix:///x/", "unix://x", "unix://@x", "unix://", "@x", "127.0.0.1:80", "10.0.0.1:80", "127.0.0.1:0", ":80",
	"HTTP", "HTTPS", "TLS", "TCP", "UDP", "gRPC", "HTTP_PROXY", "HBONE", "SCTP", "GET", "5xx", "5xx,503", "5xx,nope", "(", "[", "(?i)a", "a|", "/", "/a", ":path", ":method", "host", "x-a", "%REQ(x)%", "100%", "%BOGUS%", "a\nb", "ä",
	"r1/z1/s1", "r1/*", "r1/*/s1", "r1/z1/s1/x", "topology.istio.io/subzone", "topology.kubernetes.io/region", "app=web", "=x", "OK", "unavailable", "UNAVAILABLE", "http", "https", "301", "ECDHE-RSA-AES128-GCM-SHA256",
	"@request.auth.claims.sub", "@request.auth.claims[a][b]", "istio.io/rev",
	strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a.", 120) + "aaaaaaaaaaaaaaa.a", strings.Repeat("(a|b)", 300),
}

var (
	oddNumbers   = []int64{0, 1, 2, 80, 99, 100, 101, 199, 200, 301, 304, 308, 599, 600, 65535, 65536, 5000011, 5000012, 8388608, 8388609, math.MaxInt32, -1}
	oddReals     = []float64{0, 0.00001, 0.0001, 0.5, 1, 100, 100.5, -1}
	oddDurations = []*durationpb.Duration{{}, {Nanos: 1}, {Nanos: 1000}, {Nanos: 1000000}, {Nanos: 1500000}, {Nanos: 1500}, {Seconds: 1}, {Seconds: 1, Nanos: 500000000}, {Seconds: 3600}, {Seconds: 100 * 3600}, {Seconds: 315576000000}, {Seconds: -1}}
)

// oddValues gives what may be put in a field that is no message.
func oddValues(f protoreflect.FieldDescriptor) (out []protoreflect.Value) {
	switch f.Kind() {
	case protoreflect.StringKind:
		for _, s := range oddTexts {
			out = append(out, protoreflect.ValueOfString(s))
		}
	case protoreflect.BoolKind:
		return []protoreflect.Value{protoreflect.ValueOfBool(true), protoreflect.ValueOfBool(false)}
	case protoreflect.EnumKind:
		for i := range f.Enum().Values().Len() {
			out = append(out, protoreflect.ValueOfEnum(f.Enum().Values().Get(i).Number()))
		}
	case protoreflect.BytesKind:
		return []protoreflect.Value{protoreflect.ValueOfBytes(nil), protoreflect.ValueOfBytes(make([]byte, 1<<20+1))}
	case protoreflect.DoubleKind:
		for _, x := range oddReals {
			out = append(out, protoreflect.ValueOfFloat64(x))
		}
	default:
		for _, n := range oddNumbers {
			switch f.Kind() {
			case protoreflect.Int32Kind:
				out = append(out, protoreflect.ValueOfInt32(int32(n)))
			case protoreflect.Int64Kind:
				out = append(out, protoreflect.ValueOfInt64(n))
			case protoreflect.Uint32Kind:
				if n >= 0 {
					out = append(out, protoreflect.ValueOfUint32(uint32(n)))
				}
			case protoreflect.Uint64Kind:
				if n >= 0 {
					out = append(out, protoreflect.ValueOfUint64(uint64(n)))
				}
			}
		}
	}
	return out
}

// deepest is how many messages in one another are made that an object does not have.
const deepest = 2

// mutations are all that an object allows, one change each.
func mutations(m protoreflect.Message, path []step, made int) (out []mutation) {
	add := func(apply func(protoreflect.Message)) { out = append(out, mutation{path, apply}) }
	into := func(s step, next protoreflect.Message, made int) {
		if made <= deepest {
			out = append(out, mutations(next, append(path[:len(path):len(path)], s), made)...)
		}
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if m.Has(f) {
			add(func(m protoreflect.Message) { m.Clear(f) })
		}
		switch {
		case f.IsMap():
			out = append(out, ofMap(m, f, path, into, made)...)
		case f.IsList():
			out = append(out, ofList(m, f, path, into, made)...)
		case f.Kind() == protoreflect.MessageKind:
			add(func(m protoreflect.Message) { m.Mutable(f) })
			if f.Message().FullName() == "google.protobuf.Duration" {
				for _, d := range oddDurations {
					add(func(m protoreflect.Message) { m.Set(f, protoreflect.ValueOfMessage(proto.Clone(d).ProtoReflect())) })
				}
				continue
			}
			next := made
			if !m.Has(f) {
				next++
			}
			into(step{field: f}, m.Get(f).Message(), next)
		default:
			for _, v := range oddValues(f) {
				add(func(m protoreflect.Message) { m.Set(f, v) })
			}
		}
	}
	return out
}

func ofList(m protoreflect.Message, f protoreflect.FieldDescriptor, path []step, into func(step, protoreflect.Message, int), made int) (out []mutation) {
	add := func(apply func(protoreflect.List)) {
		out = append(out, mutation{path, func(m protoreflect.Message) { apply(m.Mutable(f).List()) }})
	}
	list := m.Get(f).List()
	if list.Len() > 0 {
		add(func(l protoreflect.List) {
			if l.Len() > 0 {
				l.Append(l.Get(0))
			}
		})
	}
	if f.Kind() == protoreflect.MessageKind {
		add(func(l protoreflect.List) { l.AppendMutable() })
		for i := range min(list.Len(), 4) {
			into(step{field: f, index: i}, list.Get(i).Message(), made)
		}
		return out
	}
	for _, v := range oddValues(f) {
		add(func(l protoreflect.List) { l.Append(v) })
		if list.Len() > 0 {
			add(func(l protoreflect.List) { l.Truncate(0); l.Append(v) })
		}
	}
	return out
}

func ofMap(m protoreflect.Message, f protoreflect.FieldDescriptor, path []step, into func(step, protoreflect.Message, int), made int) (out []mutation) {
	add := func(apply func(protoreflect.Map)) {
		out = append(out, mutation{path, func(m protoreflect.Message) { apply(m.Mutable(f).Map()) }})
	}
	messages := f.MapValue().Kind() == protoreflect.MessageKind
	for _, k := range oddTexts {
		key := protoreflect.ValueOfString(k).MapKey()
		switch {
		case f.MapKey().Kind() != protoreflect.StringKind:
		case messages:
			add(func(t protoreflect.Map) { t.Mutable(key) })
		default:
			add(func(t protoreflect.Map) { t.Set(key, oddValues(f.MapValue())[1]) })
		}
	}
	m.Get(f).Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		if messages {
			into(step{field: f, key: k}, v.Message(), made)
			return true
		}
		for _, odd := range oddValues(f.MapValue()) {
			add(func(t protoreflect.Map) { t.Set(k, odd) })
		}
		return true
	})
	return out
}

// mutants are an object, copies of it with each mutation, and some with two.
func mutants(o proto.Message, pairs int, r *rand.Rand) []proto.Message {
	all, out := mutations(o.ProtoReflect(), nil, 0), []proto.Message{o}
	for _, m := range all {
		out = append(out, m.in(o))
	}
	for range pairs {
		if one := all[r.IntN(len(all))].in(o); one != nil {
			if two := all[r.IntN(len(all))].in(one); two != nil {
				out = append(out, two)
			}
		}
	}
	return out
}
