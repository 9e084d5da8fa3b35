package wire

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// Codec is a gRPC codec that passes a [*Response] on as it is and reads into a [*Request]. Every
// other message, those of the health and reflection services for example, goes through the
// ordinary protobuf codec.
type Codec struct{ proto encoding.CodecV2 }

// NewCodec makes a Codec.
func NewCodec() Codec { return Codec{proto: encoding.GetCodecV2(proto.Name)} }

// Name is that of the protobuf codec: both write the same bytes.
func (Codec) Name() string { return proto.Name }

// Marshal implements encoding.CodecV2.
func (c Codec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(*Response); ok {
		return r.buffers, nil
	}
	return c.proto.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c Codec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*Request)
	if !ok {
		return c.proto.Unmarshal(data, v)
	}
	if err := r.Read(data); err != nil {
		return fmt.Errorf("discovery request: %w", err)
	}
	return nil
}
