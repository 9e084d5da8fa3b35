package nacos

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// payload is the one message of the protocol, Payload of nacos_grpc_service.proto: JSON with the name of its class.
type payload struct {
	class   string            // metadata.type
	headers map[string]string // metadata.headers
	body    []byte            // body.value
}

// Field numbers of nacos_grpc_service.proto, and of google.protobuf.Any.
const (
	fieldMetadata = 2
	fieldBody     = 3
	fieldType     = 3
	fieldHeaders  = 7
	fieldValue    = 2
	fieldMapKey   = 1
	fieldMapValue = 2
)

func appendField(b []byte, n protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
}

func (p *payload) marshal() []byte {
	meta := appendField(nil, fieldType, []byte(p.class))
	for _, k := range slices.Sorted(maps.Keys(p.headers)) {
		entry := appendField(nil, fieldMapKey, []byte(k))
		meta = appendField(meta, fieldHeaders, appendField(entry, fieldMapValue, []byte(p.headers[k])))
	}
	return appendField(appendField(nil, fieldMetadata, meta), fieldBody, appendField(nil, fieldValue, p.body))
}

// fields calls f for each field that holds bytes; others are skipped.
func fields(b []byte, f func(n protowire.Number, v []byte) error) error {
	for len(b) > 0 {
		n, typ, size := protowire.ConsumeTag(b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
		if typ != protowire.BytesType {
			if size = protowire.ConsumeFieldValue(n, typ, b); size < 0 {
				return protowire.ParseError(size)
			}
			b = b[size:]
			continue
		}
		v, size := protowire.ConsumeBytes(b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		if err := f(n, v); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}

// unmarshal copies what it keeps of b.
func (p *payload) unmarshal(b []byte) error {
	*p = payload{}
	return fields(b, func(n protowire.Number, v []byte) error {
		switch n {
		case fieldMetadata:
			return p.metadata(v)
		case fieldBody:
			return fields(v, func(n protowire.Number, v []byte) error {
				if n == fieldValue {
					p.body = slices.Clone(v)
				}
				return nil
			})
		}
		return nil
	})
}

func (p *payload) metadata(b []byte) error {
	return fields(b, func(n protowire.Number, v []byte) error {
		switch n {
		case fieldType:
			p.class = string(v)
		case fieldHeaders:
			return p.header(v)
		}
		return nil
	})
}

func (p *payload) header(b []byte) error {
	var key, value string
	err := fields(b, func(n protowire.Number, v []byte) error {
		switch n {
		case fieldMapKey:
			key = string(v)
		case fieldMapValue:
			value = string(v)
		}
		return nil
	})
	if p.headers == nil {
		p.headers = map[string]string{}
	}
	p.headers[key] = value
	return err
}

// codec lets gRPC carry payloads.
type codec struct{}

var _ encoding.CodecV2 = codec{}

// Name is part of the content type: bodies are protobuf.
func (codec) Name() string { return "proto" }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	p, ok := v.(*payload)
	if !ok {
		return nil, fmt.Errorf("%T is no payload", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(p.marshal())}, nil
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	p, ok := v.(*payload)
	if !ok {
		return fmt.Errorf("%T is no payload", v)
	}
	if err := p.unmarshal(data.Materialize()); err != nil {
		return errors.New("the message is no payload")
	}
	return nil
}
