package client_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/mcp/client"
	"github.com/isthmus-mesh/isthmus/mcp/mcptest"
)

// Whatever a server goes through, a client that has followed it ends with what one reads that comes new. Objects with errors
// are left out here: what of them is in force depends on the past.
func TestRandomHistories(t *testing.T) {
	t.Parallel()
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := &history{rand: rand.New(rand.NewPCG(seed, 7)), server: mcptest.Start(t)}
				if seed%2 == 1 {
					h.server.Misbehave(func(f *mcptest.Faults) { f.NoDelta = true })
				}
				if seed%3 == 0 {
					h.server.HashVersions()
				}
				h.up = true
				o := client.Options{Name: "up", Addresses: []string{"a:1"}, Dial: h.server.Dial}
				old := run(t, o)
				for range 120 {
					h.step()
				}
				h.rest()
				fresh := run(t, o)
				fresh.state(model.StateLive)
				old.state(model.StateLive)
				synctest.Wait()
				want, got := fresh.texts(), old.texts()
				for k, w := range want {
					if g := got[k]; !bytes.Equal(w, g) {
						t.Errorf("%v:\n have %s\n want %s", k, g, w)
					}
				}
				if len(want) != len(got) {
					t.Errorf("%d rows, want %d", len(got), len(want))
				}
				old.stop()
				fresh.stop()
			})
		})
	}
}

// history drives a server at random.
type history struct {
	rand   *rand.Rand
	server *mcptest.Server
	up     bool
}

func (h *history) step() {
	name := fmt.Sprint("n", h.rand.IntN(6))
	switch h.rand.IntN(14) {
	case 0, 1, 2:
		h.server.Set("ServiceEntry", se(name, fmt.Sprint("10.1.0.", h.rand.IntN(9))), se("other", "10.2.0.1"))
	case 3:
		h.server.Delete("ServiceEntry", "shop/"+name+".example.com")
	case 4, 5:
		h.server.Set("VirtualService", vs(name, name+".example.com", fmt.Sprint("v", h.rand.IntN(3), ".example.com")))
	case 6:
		h.server.Delete("VirtualService", "shop/"+name)
	case 7:
		h.server.Push("ServiceEntry")
	case 8:
		h.server.Drop()
	case 9:
		h.toggle()
	case 10:
		if !h.up { // it counts from its start
			h.server.RestartIndex()
		}
	case 11:
		n := h.rand.IntN(60)
		h.server.Misbehave(func(f *mcptest.Faults) { f.DropAfter = n })
	case 12: // it learns versions and forgets them, which only an upgrade does
		if !h.up {
			known := []string{seURL, seBeta, seAlpha}[h.rand.IntN(3)]
			h.server.Misbehave(func(f *mcptest.Faults) {
				f.Unknown = map[string]bool{seURL: known != seURL, seBeta: known != seBeta, seAlpha: known != seAlpha}
			})
		}
	case 13:
		h.nameless()
	}
	if h.rand.IntN(3) == 0 {
		time.Sleep(time.Duration(h.rand.IntN(3000)) * time.Millisecond)
	}
}

// nameless sends, or ends to send, what nobody can read.
func (h *history) nameless() {
	var raw map[string][]mcptest.Raw
	if h.rand.IntN(2) == 0 {
		raw = map[string][]mcptest.Raw{"ServiceEntry": {{Body: &anypb.Any{TypeUrl: "x", Value: []byte("y")}}}}
	}
	h.server.Misbehave(func(f *mcptest.Faults) { f.Raw = raw })
}

func (h *history) toggle() {
	if h.up = !h.up; h.up {
		h.server.Up()
	} else {
		h.server.Down()
	}
}

// rest ends all trouble, and gives what waits its time.
func (h *history) rest() {
	if !h.up {
		h.toggle()
	}
	h.server.Misbehave(func(f *mcptest.Faults) { f.DropAfter, f.Raw = 0, nil })
	for _, kind := range []string{"ServiceEntry", "VirtualService"} {
		h.server.Push(kind)
	}
	time.Sleep(3 * time.Minute)
	synctest.Wait()
}

var whenAndWhich = regexp.MustCompile(`"(Time|Created|Revision)":"[^"]*"`)

// texts are the rows, without what depends on when they were read.
func (r *running) texts() map[model.RowKey][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[model.RowKey][]byte{}
	for k, o := range r.rows {
		text, err := json.Marshal(o)
		if err != nil {
			text = fmt.Append(nil, err)
		}
		out[k] = whenAndWhich.ReplaceAll(text, nil)
	}
	return out
}
