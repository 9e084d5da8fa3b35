package kubeapi

import (
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"k8s.io/apimachinery/pkg/runtime"
)

func framed(size int) string {
	return string(binary.BigEndian.AppendUint32(nil, uint32(size))) + strings.Repeat("x", size)
}

// However many events there are, each has its bound, and it makes no difference how they are cut in reads.
func TestEventsAreBounded(t *testing.T) {
	t.Parallel()
	event := func(size int) string { return `{"a":{"b":"}\"{"},"c":"` + strings.Repeat("x", size) + "\"}\n" }
	for name, c := range map[string]struct {
		media, text string
		ok          bool
	}{
		"many":                   {"json", strings.Repeat(event(maxEvent/3), 9), true},
		"long":                   {"json", event(10) + event(maxEvent), false},
		"long, of lines":         {"json", "{" + strings.Repeat("\n", maxEvent), false},
		"no object":              {"json", strings.Repeat("1 ", maxEvent), false},
		"nothing":                {"json", strings.Repeat(" ", maxEvent+1), false},
		"ends too often":         {"json", "}}" + strings.Repeat("{}", maxEvent), false},
		"framed":                 {"protobuf", strings.Repeat(framed(maxEvent/3), 9) + framed(0) + framed(maxEvent), true},
		"framed, long":           {"protobuf", framed(7) + framed(maxEvent+1), false},
		"framed, will be long":   {"protobuf", framed(7) + "\xff\xff\xff\xff", false},
		"framed, that looks odd": {"protobuf", framed(0) + "\x00\x00", true},
	} {
		for how, cut := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "end": iotest.DataErrReader,
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				media := map[string]string{"json": "application/json", "protobuf": runtime.ContentTypeProtobuf + ";stream=watch"}[c.media]
				resp := &http.Response{Header: http.Header{"Content-Type": {media}}, Body: io.NopCloser(cut(strings.NewReader(c.text)))}
				_, err := io.Copy(io.Discard, newEvents(resp))
				if c.ok && err != nil || !c.ok && !errors.Is(err, ErrUnreadable) {
					t.Errorf("error %v", err)
				}
			})
		}
	}
}
