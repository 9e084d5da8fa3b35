package kubeapi

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// maxEvent is how many bytes one event of a watch may have. An object has 1.5 MiB at most where it is stored,
// and may be longer as JSON.
const maxEvent = 4 << 20

// events is the body of a watch, which goes on for ever while each of its events is bounded: what decodes them
// holds an event until it is whole.
type events struct {
	io.ReadCloser
	step func(p []byte) (most int) // of the bytes that are in the event, or will be
}

// newEvents tells events apart as they are encoded: messages with their length before them, or JSON objects.
func newEvents(resp *http.Response) *events {
	e := &events{ReadCloser: resp.Body, step: (&jsonEvents{}).step}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), runtime.ContentTypeProtobuf) {
		e.step = (&framedEvents{}).step
	}
	return e
}

// Read implements io.Reader.
func (e *events) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	if most := e.step(p[:n]); most > maxEvent {
		return 0, fmt.Errorf("%w: an event of more than %d bytes", ErrUnreadable, maxEvent)
	}
	return n, err
}

// jsonEvents follows JSON just so far as to know where an object ends.
type jsonEvents struct {
	size, depth     int
	quoted, escaped bool
}

func (j *jsonEvents) step(p []byte) (most int) {
	for _, b := range p {
		j.size++
		most = max(most, j.size)
		switch {
		case j.escaped:
			j.escaped = false
		case j.quoted:
			j.escaped, j.quoted = b == '\\', b != '"'
		case b == '"':
			j.quoted = true
		case b == '{':
			j.depth++
		case b == '}':
			if j.depth--; j.depth == 0 {
				j.size = 0
			}
		}
	}
	return most
}

// framedEvents follows messages that come after their length: four bytes, the highest first.
type framedEvents struct {
	head []byte
	left int // bytes of the message that are to come
}

func (f *framedEvents) step(p []byte) (most int) {
	for len(p) > 0 {
		if f.left > 0 {
			n := min(f.left, len(p))
			p, f.left = p[n:], f.left-n
			continue
		}
		n := min(4-len(f.head), len(p))
		f.head, p = append(f.head, p[:n]...), p[n:]
		if len(f.head) == 4 {
			f.left, f.head = int(binary.BigEndian.Uint32(f.head)), f.head[:0]
			most = max(most, f.left)
		}
	}
	return most
}
