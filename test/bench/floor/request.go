package floor

import (
	"encoding/binary"
	"fmt"
	"io"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// request is the one thing that the floor reads of a request: its type.
type request struct {
	delta   bool
	typeURL string
}

// maxType bounds what is read as a type URL.
const maxType = 1024

// read skips over every field but the type, without copying.
func (q *request) read(data mem.BufferSlice) error {
	r := data.Reader()
	defer func() { _ = r.Close() }()
	want := protowire.Number(sotwType)
	if q.delta {
		want = deltaType
	}
	for r.Remaining() > 0 {
		tag, err := binary.ReadUvarint(r)
		if err != nil {
			return fmt.Errorf("request: %w", err)
		}
		size, err := binary.ReadUvarint(r)
		if num, typ := protowire.DecodeTag(tag); err != nil || typ != protowire.BytesType || size > uint64(r.Remaining()) {
			return fmt.Errorf("request: field %d can't be read", num)
		} else if num == want && size <= maxType {
			b := make([]byte, size)
			if _, err := io.ReadFull(r, b); err != nil {
				return fmt.Errorf("request: %w", err)
			}
			q.typeURL = string(b)
			continue
		}
		if _, err := r.Discard(int(size)); err != nil {
			return fmt.Errorf("request: %w", err)
		}
	}
	return nil
}
