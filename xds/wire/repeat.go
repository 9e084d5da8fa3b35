package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/maphash"
	"runtime"
	"sync"
	"weak"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// repeatFrom is the length in bytes from which a list of names is remembered.
const repeatFrom = 512

// NameList is a list of names as it is encoded in SotW requests. It is immutable and shared by the
// streams that sent it.
type NameList struct {
	encoded []byte
	count   int
	hash    uint64
}

// NameLists are the lists that streams sent last. Every SotW request repeats the whole subscription:
// one that is known is found by comparing bytes, without parsing, copying or hashing it.
type NameLists struct {
	seed maphash.Seed

	mu    sync.Mutex
	known map[uint64]weak.Pointer[NameList] // guarded by mu; by hash
}

// NewNameLists makes an empty set. Lists in it have the hash that List.Hash gives for the seed.
func NewNameLists(seed maphash.Seed) *NameLists {
	return &NameLists{seed: seed, known: map[uint64]weak.Pointer[NameList]{}}
}

// share gives the shared form of a list.
func (s *NameLists) share(l *List) *NameList {
	h := l.Hash(s.seed)
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.known[h].Value(); n != nil && l.equal(n.encoded) {
		return n
	}
	n := &NameList{encoded: bytes.Join(l.runs, nil), count: l.Count, hash: h}
	p := weak.Make(n)
	s.known[h] = p
	runtime.AddCleanup(n, func(h uint64) { s.forget(h, p) }, h)
	return n
}

func (s *NameLists) forget(h uint64, p weak.Pointer[NameList]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[h] == p {
		delete(s.known, h)
	}
}

// Repeats are the lists that one stream sent last, by type. It belongs to the goroutine that reads
// the stream's requests.
type Repeats struct {
	lists *NameLists
	last  map[string]*NameList
}

// Stream starts the memory of one stream.
func (s *NameLists) Stream() *Repeats { return &Repeats{lists: s, last: map[string]*NameList{}} }

func (x *Repeats) note(r *Request) {
	switch l := &r.Names; {
	case l.shared != nil:
		x.last[r.TypeURL] = l.shared
	case l.size() >= repeatFrom:
		x.last[r.TypeURL] = x.lists.share(l)
	default:
		delete(x.last, r.TypeURL)
	}
}

func (l *List) size() (n int) {
	for _, b := range l.runs {
		n += len(b)
	}
	return n
}

// equal reports whether the list is encoded as b.
func (l *List) equal(b []byte) bool {
	for _, r := range l.runs {
		if !bytes.HasPrefix(b, r) {
			return false
		}
		b = b[len(r):]
	}
	return len(b) == 0
}

// Read reads an encoded request of the protocol, whose buffers stay the caller's.
func (r *Request) Read(data mem.BufferSlice) error {
	if x := r.Repeats; x != nil && r.Protocol == SotW {
		rest, list := x.cut(data)
		if list == nil {
			rest = data.Materialize()
		}
		if err := r.Unmarshal(rest); err != nil {
			return err
		}
		r.Size = data.Len()
		if list != nil {
			r.Names = List{runs: [][]byte{list.encoded}, Count: list.count, shared: list}
		}
		x.note(r)
		return nil
	}
	return r.Unmarshal(data.Materialize())
}

// cut splits a request into a list of names that is known and a copy of the rest; the list is nil if
// the request's names are others.
func (x *Repeats) cut(data mem.BufferSlice) (rest []byte, list *NameList) {
	if len(x.last) == 0 || data.Len() < repeatFrom {
		return nil, nil
	}
	rd := data.Reader()
	defer func() { _ = rd.Close() }()
	for rd.Remaining() > 0 {
		if startsNames(rd) {
			if list != nil {
				return nil, nil // it goes on: another list
			}
			if list = x.next(rd); list == nil {
				return nil, nil
			}
			continue
		}
		var err error
		if rest, err = copyField(rest, rd); err != nil {
			return nil, nil // the parser says what is wrong
		}
	}
	return rest, list
}

// namesTag begins every element of resource_names.
var namesTag = byte(protowire.EncodeTag(3, protowire.BytesType))

func startsNames(rd *mem.Reader) bool {
	var first [1][]byte
	p, err := rd.Peek(1, first[:0])
	return err == nil && p[0][0] == namesTag
}

// next skips the known list that comes next, the longest if one begins with another.
func (x *Repeats) next(rd *mem.Reader) (found *NameList) {
	for _, n := range x.last {
		if (found == nil || len(n.encoded) > len(found.encoded)) && ahead(rd, n.encoded) {
			found = n
		}
	}
	if found != nil {
		_, _ = rd.Discard(len(found.encoded))
	}
	return found
}

func ahead(rd *mem.Reader, want []byte) bool {
	if rd.Remaining() < len(want) {
		return false
	}
	parts, err := rd.Peek(len(want), nil)
	if err != nil {
		return false
	}
	for _, p := range parts {
		if !bytes.HasPrefix(want, p) {
			return false
		}
		want = want[len(p):]
	}
	return true
}

var errField = errors.New("not a field of bytes")

// copyField moves one field of bytes to the end of b.
func copyField(b []byte, rd *mem.Reader) ([]byte, error) {
	tag, err := binary.ReadUvarint(rd)
	if err != nil {
		return nil, err
	}
	if _, typ := protowire.DecodeTag(tag); typ != protowire.BytesType {
		return nil, errField
	}
	n, err := binary.ReadUvarint(rd)
	if err != nil || n > uint64(rd.Remaining()) {
		return nil, errField
	}
	b = protowire.AppendVarint(protowire.AppendVarint(b, tag), n)
	parts, err := rd.Peek(int(n), nil)
	if err != nil {
		return nil, err
	}
	for _, p := range parts {
		b = append(b, p...)
	}
	_, err = rd.Discard(int(n))
	return b, err
}
