package wire

import (
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Protocol is one of the two forms of xDS.
type Protocol uint8

// The protocols: state of the world, and delta (incremental) xDS.
const (
	SotW Protocol = iota
	Delta
)

// String gives "sotw" or "delta".
func (p Protocol) String() string {
	if p == Delta {
		return "delta"
	}
	return "sotw"
}

// MarshalText gives String.
func (p Protocol) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Fault is the error_detail of a refused response.
type Fault struct {
	Code    int32
	Message string
}

// Request is a discovery request of either protocol. Byte slices within it point into the received
// message, which nobody changes.
type Request struct {
	Protocol Protocol // set before the request is read
	Repeats  *Repeats // of the stream, set before the request is read; may be nil

	Size    int // bytes of the message
	TypeURL string
	Nonce   string
	Node    []byte // encoded Node; nil when the message has none
	Fault   *Fault // nil unless the response is refused

	Names           List // SotW resource_names: the whole subscription
	Subscribe       List // delta
	Unsubscribe     List // delta
	InitialVersions List // delta; encoded map entries, see Versions
}

// List is a repeated string or bytes field in encoded form.
type List struct {
	runs   [][]byte  // each a sequence of tag, length, value
	shared *NameList // if the list is one that is known
	Count  int
}

// All yields the values in order.
func (l *List) All() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, b := range l.runs {
			for len(b) > 0 {
				_, _, n := protowire.ConsumeTag(b)
				v, m := protowire.ConsumeBytes(b[n:])
				if !yield(v) {
					return
				}
				b = b[n+m:]
			}
		}
	}
}

// Longest gives the length of the longest value; 0 for a list that repeats, since it was looked at when
// it came first.
func (l *List) Longest() (n int) {
	if l.shared != nil {
		return 0
	}
	for v := range l.All() {
		n = max(n, len(v))
	}
	return n
}

// Hash identifies the list's content within the process.
func (l *List) Hash(seed maphash.Seed) uint64 {
	if l.shared != nil {
		return l.shared.hash
	}
	var h maphash.Hash
	h.SetSeed(seed)
	for _, b := range l.runs {
		_, _ = h.Write(b)
	}
	return h.Sum64()
}

// add appends field, the encoding of one element; message is what it was cut from at offset at.
func (l *List) add(message []byte, at, end int) {
	l.Count++
	if n := len(l.runs); n > 0 {
		last := l.runs[n-1]
		if cap(last)-len(last) >= end-at && &last[:len(last)+1][len(last)] == &message[at] {
			l.runs[n-1] = last[:len(last)+end-at]
			return
		}
	}
	l.runs = append(l.runs, message[at:end])
}

// Versions yields the names and versions of initial_resource_versions.
func (r *Request) Versions() iter.Seq2[[]byte, []byte] {
	return func(yield func([]byte, []byte) bool) {
		for e := range r.InitialVersions.All() {
			k, v, _ := mapEntry(e)
			if !yield(k, v) {
				return
			}
		}
	}
}

var (
	errText = errors.New("a string is not valid UTF-8")
	errKind = errors.New("a field has the wrong wire type")
)

// Unmarshal reads an encoded request of the protocol. It keeps b.
func (r *Request) Unmarshal(b []byte) error {
	*r = Request{Protocol: r.Protocol, Repeats: r.Repeats, Size: len(b)}
	for at := 0; at < len(b); {
		num, typ, n := protowire.ConsumeTag(b[at:])
		if n < 0 {
			return protowire.ParseError(n)
		}
		m := protowire.ConsumeFieldValue(num, typ, b[at+n:])
		if m < 0 {
			return protowire.ParseError(m)
		}
		if err := r.field(num, typ, b, at, at+n, at+n+m); err != nil {
			return fmt.Errorf("field %d: %w", num, err)
		}
		at += n + m
	}
	return nil
}

// The fields of interest; the numbers are those of discovery.proto.
const (
	fieldOther = iota
	fieldNode
	fieldNames
	fieldSubscribe
	fieldUnsubscribe
	fieldInitial
	fieldType
	fieldNonce
	fieldFault
)

var fields = [2][8]uint8{
	SotW:  {2: fieldNode, 3: fieldNames, 4: fieldType, 5: fieldNonce, 6: fieldFault},
	Delta: {1: fieldNode, 2: fieldType, 3: fieldSubscribe, 4: fieldUnsubscribe, 5: fieldInitial, 6: fieldNonce, 7: fieldFault},
}

// field takes the field whose tag is at start, value at val, up to end.
func (r *Request) field(num protowire.Number, typ protowire.Type, b []byte, start, val, end int) error {
	if int(num) >= len(fields[r.Protocol]) {
		return nil
	}
	f := fields[r.Protocol][num]
	if f == fieldOther {
		return nil
	}
	if typ != protowire.BytesType {
		return errKind
	}
	v, _ := protowire.ConsumeBytes(b[val:end])
	if f >= fieldNames && f <= fieldUnsubscribe || f == fieldType || f == fieldNonce {
		if !utf8.Valid(v) {
			return errText
		}
	}
	return r.set(f, v, b, start, end)
}

func (r *Request) set(f uint8, v, b []byte, start, end int) (err error) {
	switch f {
	case fieldNode:
		r.Node = v
	case fieldNames:
		r.Names.add(b, start, end)
	case fieldSubscribe:
		r.Subscribe.add(b, start, end)
	case fieldUnsubscribe:
		r.Unsubscribe.add(b, start, end)
	case fieldInitial:
		r.InitialVersions.add(b, start, end)
		_, _, err = mapEntry(v)
	case fieldType:
		r.TypeURL = string(v)
	case fieldNonce:
		r.Nonce = string(v)
	case fieldFault:
		r.Fault, err = fault(v)
	}
	return err
}

// mapEntry reads an entry of map<string, string>.
func mapEntry(b []byte) (key, val []byte, err error) {
	err = scan(b, func(num protowire.Number, typ protowire.Type, v []byte) error {
		if num > 2 {
			return nil
		}
		if typ != protowire.BytesType {
			return errKind
		}
		if !utf8.Valid(v) {
			return errText
		}
		if num == 1 {
			key = v
		} else {
			val = v
		}
		return nil
	})
	return key, val, err
}

// fault reads a google.rpc.Status.
func fault(b []byte) (*Fault, error) {
	f := &Fault{}
	err := scan(b, func(num protowire.Number, typ protowire.Type, v []byte) error {
		switch {
		case num == 1 && typ == protowire.VarintType:
			code, _ := protowire.ConsumeVarint(v)
			f.Code = int32(code)
		case num == 2 && typ == protowire.BytesType:
			f.Message = string(v)
		}
		return nil
	})
	return f, err
}

// scan calls yield for every field of a message: for bytes the content, else the encoded value.
func scan(b []byte, yield func(protowire.Number, protowire.Type, []byte) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 {
			return protowire.ParseError(m)
		}
		v := b[n : n+m]
		if typ == protowire.BytesType {
			v, _ = protowire.ConsumeBytes(v)
		}
		if err := yield(num, typ, v); err != nil {
			return err
		}
		b = b[n+m:]
	}
	return nil
}
