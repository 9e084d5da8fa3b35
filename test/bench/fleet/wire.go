package fleet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of discovery.proto. Both responses agree on the first four, both requests on the
// list of names.
const (
	responseVersion   = 1
	responseResources = 2
	responseType      = 4
	responseNonce     = 5

	requestNames = 3
)

// maxHead bounds the strings of a response that are read: versions, type URLs and nonces are short.
const maxHead = 4096

// codec sends requests that are encoded already and hands responses over undecoded. Its messages
// are *frame.
type codec struct{}

type frame struct{ data mem.BufferSlice }

func (codec) Name() string { return "proto" }

func (codec) Marshal(v any) (mem.BufferSlice, error) { return v.(*frame).data, nil }

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	data.Ref()
	v.(*frame).data = data
	return nil
}

// head is what a response says beside its resources.
type head struct{ version, typeURL, nonce string }

// readHead scans a response until it has seen all of the head. Every field of it occurs once, at
// any place: most servers write the type behind the resources.
func readHead(data mem.BufferSlice, delta bool) (head, error) {
	var h head
	r := data.Reader()
	defer func() { _ = r.Close() }()
	for r.Remaining() > 0 && !h.complete(delta) {
		if err := h.field(r); err != nil {
			return h, fmt.Errorf("response of %d bytes: %w", data.Len(), err)
		}
	}
	return h, nil
}

func (h *head) complete(delta bool) bool {
	return h.typeURL != "" && h.nonce != "" && (delta || h.version != "")
}

func (h *head) field(r *mem.Reader) error {
	num, size, err := nextField(r)
	if err != nil {
		return err
	}
	var to *string
	switch num {
	case responseVersion:
		to = &h.version
	case responseType:
		to = &h.typeURL
	case responseNonce:
		to = &h.nonce
	default:
		return skip(r, size)
	}
	if size > maxHead {
		return errors.New("a version, type or nonce is too long")
	}
	b := make([]byte, size)
	_, err = io.ReadFull(r, b)
	*to = string(b)
	return err
}

func nextField(r *mem.Reader) (protowire.Number, int, error) {
	tag, err := binary.ReadUvarint(r)
	if err != nil {
		return 0, 0, err
	}
	num, typ := protowire.DecodeTag(tag)
	if typ != protowire.BytesType {
		return 0, 0, errors.New("a field is not of bytes")
	}
	size, err := binary.ReadUvarint(r)
	if err != nil || size > uint64(r.Remaining()) {
		return 0, 0, io.ErrUnexpectedEOF
	}
	return num, int(size), nil
}

func skip(r *mem.Reader, n int) error {
	_, err := r.Discard(n)
	return err
}

// resources yields the bodies (the encoded clusters, listeners …) of a response.
func resources(b []byte, delta bool, yield func(body []byte)) {
	each(b, func(num protowire.Number, v []byte) {
		if num != responseResources {
			return
		}
		if delta {
			v = last(v, 2) // Resource.resource
		}
		yield(last(v, 2)) // Any.value
	})
}

// each calls yield for every field that is of bytes.
func each(b []byte, yield func(protowire.Number, []byte)) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 {
			return
		}
		if typ == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(b[n:])
			yield(num, v)
		}
		b = b[n+m:]
	}
}

// last gives a field of bytes; nil if there is none.
func last(b []byte, want protowire.Number) (v []byte) {
	each(b, func(num protowire.Number, x []byte) {
		if num == want {
			v = x
		}
	})
	return v
}

// contains reports whether the marker lies anywhere in the data, across buffers too.
func contains(data mem.BufferSlice, marker []byte) bool {
	keep := len(marker) - 1
	var seam []byte // the end of what came before
	for _, b := range data {
		d := b.ReadOnlyData()
		joined := append(seam, d[:min(keep, len(d))]...)
		if bytes.Contains(d, marker) || bytes.Contains(joined, marker) {
			return true
		}
		if len(d) >= keep {
			joined = append(joined[:0], d[len(d)-keep:]...)
		}
		seam = joined[max(0, len(joined)-keep):]
	}
	return false
}

// encodeNames gives the list of names as it stands in a request of either protocol.
func encodeNames(names []string) []byte {
	var b []byte
	for _, n := range names {
		b = protowire.AppendTag(b, requestNames, protowire.BytesType)
		b = protowire.AppendString(b, n)
	}
	return b
}

// request is a DiscoveryRequest or DeltaDiscoveryRequest; empty fields are left out. names are
// encoded and shared by many streams.
type request struct {
	head
	node, names []byte
}

func (q request) encode(delta bool) *frame {
	fields := [...]struct {
		num protowire.Number
		val []byte
	}{{1, []byte(q.version)}, {2, q.node}, {0, q.names}, {4, []byte(q.typeURL)}, {5, []byte(q.nonce)}}
	if delta {
		fields[0].val = nil
		fields[1].num, fields[3].num, fields[4].num = 1, 2, 6
	}
	var own []byte
	f := &frame{}
	for _, x := range fields {
		switch {
		case len(x.val) == 0:
		case x.num == 0:
			f.data = append(f.data, mem.SliceBuffer(own), mem.SliceBuffer(x.val))
			own = nil
		default:
			own = protowire.AppendBytes(protowire.AppendTag(own, x.num, protowire.BytesType), x.val)
		}
	}
	f.data = append(f.data, mem.SliceBuffer(own))
	return f
}
