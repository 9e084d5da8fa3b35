package wire

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// Resource is one encoded xDS resource. It is immutable; every response that holds it shares its
// bytes.
type Resource struct {
	Name string
	// Version is a hash of the content: equal on all replicas and over restarts.
	Version string
	// Sum is the hash as a number.
	Sum uint64

	body  []byte
	delta mem.Buffer // field resources of a DeltaDiscoveryResponse
	sotw  mem.Buffer // field resources of a DiscoveryResponse; the tail of delta
}

// Field numbers of discovery.proto.
const (
	anyType, anyValue                             = 1, 2
	resourceVersion, resourceAny, resourceName    = 1, 2, 3
	resourceAlias                                 = 4
	responseVersion, responseResources            = 1, 2
	responseType, responseNonce, responseRemovals = 4, 5, 6
	hashBytes                                     = 8
)

// NewResource wraps body, the encoding of a message of type typeURL.
func NewResource(typeURL, name string, body []byte) *Resource {
	sum := sha256.Sum256(body)
	r := &Resource{Name: name, Sum: binary.BigEndian.Uint64(sum[:]), Version: base64.RawURLEncoding.EncodeToString(sum[:hashBytes])}

	var inner []byte // Resource without its Any
	inner = appendString(inner, resourceVersion, r.Version)
	inner = appendString(inner, resourceName, name)
	anySize := fieldSize(anyType, len(typeURL)) + fieldSize(anyValue, len(body))
	size := len(inner) + fieldSize(resourceAny, anySize)

	b := make([]byte, 0, fieldSize(responseResources, size))
	b = protowire.AppendTag(b, responseResources, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(size))
	b = append(b, inner...)
	// The Any comes last and its field number is that of DiscoveryResponse.resources: from here on
	// the bytes are the SotW form.
	tail := len(b)
	b = protowire.AppendTag(b, resourceAny, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(anySize))
	b = appendString(b, anyType, typeURL)
	b = protowire.AppendTag(b, anyValue, protowire.BytesType)
	b = protowire.AppendBytes(b, body)

	r.body = b[len(b)-len(body):]
	r.delta, r.sotw = mem.SliceBuffer(b), mem.SliceBuffer(b[tail:])
	return r
}

// NewAbsent is the answer of a delta server for a name that there is nothing behind, of a type whose client
// waits for one: a resource without content that has its own name for an alias (virtual hosts on demand).
func NewAbsent(name string) *Resource {
	r := &Resource{Name: name, Version: "0"}
	inner := appendString(nil, resourceVersion, r.Version)
	inner = appendString(inner, resourceName, name)
	inner = appendString(inner, resourceAlias, name)
	b := protowire.AppendTag(nil, responseResources, protowire.BytesType)
	r.delta, r.sotw = mem.SliceBuffer(protowire.AppendBytes(b, inner)), mem.SliceBuffer(nil)
	return r
}

// Body is the encoded message. It must not be changed.
func (r *Resource) Body() []byte { return r.body }

// Size is the number of bytes that the resource holds.
func (r *Resource) Size() int { return r.delta.Len() }

func fieldSize(num protowire.Number, n int) int {
	return protowire.SizeTag(num) + protowire.SizeBytes(n)
}

func appendString(b []byte, num protowire.Number, s string) []byte {
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return protowire.AppendString(b, s)
}

// Response is a discovery response of either protocol, ready to be sent.
type Response struct {
	buffers mem.BufferSlice
	size    int
}

// Head is what a response says beside its resources.
type Head struct {
	Protocol Protocol
	Version  string
	TypeURL  string
	Nonce    string
	Removed  []string // delta only
	Count    int      // how many resources will be added, as a hint
}

// NewResponse starts a response without resources.
func NewResponse(h Head) *Response {
	b := make([]byte, 0, len(h.Version)+len(h.TypeURL)+len(h.Nonce)+12)
	b = appendString(b, responseVersion, h.Version)
	b = appendString(b, responseType, h.TypeURL)
	b = appendString(b, responseNonce, h.Nonce)
	for _, n := range h.Removed {
		b = appendString(b, responseRemovals, n)
	}
	r := &Response{buffers: make(mem.BufferSlice, 1, h.Count+1), size: len(b)}
	r.buffers[0] = mem.SliceBuffer(b)
	return r
}

// Add appends a resource in the form of the protocol.
func (r *Response) Add(p Protocol, res *Resource) {
	b := res.sotw
	if p == Delta {
		b = res.delta
	}
	r.buffers = append(r.buffers, b)
	r.size += b.Len()
}

// Size is the length of the encoded response.
func (r *Response) Size() int { return r.size }

// Bytes gives the encoded response.
func (r *Response) Bytes() []byte { return r.buffers.Materialize() }
