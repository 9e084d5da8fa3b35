package aggregate

import (
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

func ep(host string) *model.Endpoints { return &model.Endpoints{Host: host} }

func rk(key string) model.RowKey { return model.RowKey{Kind: model.RowEndpoints, Key: key} }

func put(m *mailbox, key, host string) { m.Put(model.Event{Row: rk(key), Obj: ep(host)}) }

func del(m *mailbox, key string) { m.Put(model.Event{Row: rk(key)}) }

// taken lists a batch as "replace(n)", "key=host" and "key-".
func taken(b batch) []string {
	out := []string{}
	if b.full != nil {
		out = append(out, fmt.Sprintf("replace(%d)", b.full.Len()))
	}
	for _, e := range b.events {
		if e.Obj == nil {
			out = append(out, e.Row.Key+"-")
		} else {
			out = append(out, e.Row.Key+"="+e.Obj.(*model.Endpoints).Host)
		}
	}
	return out
}

func full(keys ...string) *model.ShardState {
	b := model.NewShardBuilder()
	for _, k := range keys {
		b.Add(k, ep("full"))
	}
	return b.Build()
}

func TestMailboxCoalesces(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		do   func(*mailbox)
		want []string
	}{
		{"latest value per key, in order of first touch", func(m *mailbox) { put(m, "a", "1"); put(m, "b", "1"); put(m, "a", "2") }, []string{"a=2", "b=1"}},
		{"a key that the writer never saw is erased", func(m *mailbox) { put(m, "a", "1"); del(m, "a") }, []string{}},
		{"deleting an unknown key is nothing", func(m *mailbox) { del(m, "a") }, []string{}},
		{"a known key's deletion is told", func(m *mailbox) { del(m, "known") }, []string{"known-"}},
		{"deleted and put again", func(m *mailbox) { del(m, "known"); put(m, "known", "2") }, []string{"known=2"}},
		{"put and deleted, known before", func(m *mailbox) { put(m, "known", "2"); del(m, "known") }, []string{"known-"}},
		{"a full truth discards earlier puts", func(m *mailbox) { put(m, "a", "1"); m.Replace(full("x")) }, []string{"replace(1)"}},
		{"later puts follow the full truth", func(m *mailbox) { m.Replace(full("x")); put(m, "a", "1"); del(m, "x"); del(m, "y") }, []string{"replace(1)", "a=1", "x-"}},
		{"the writer forgets what a full truth lacks", func(m *mailbox) { m.Replace(full()); del(m, "known") }, []string{"replace(0)"}},
		{"the newest full truth is kept", func(m *mailbox) { m.Replace(full("x")); m.Replace(full("y", "z")) }, []string{"replace(2)"}},
		{"after close nothing is taken", func(m *mailbox) { put(m, "a", "1"); m.close(); put(m, "b", "1"); m.Replace(full("x")); del(m, "known") }, []string{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := newMailbox(func() {})
			m.Replace(full("known"))
			m.take(10)
			tc.do(m)
			if d := cmp.Diff(tc.want, taken(m.take(10))); d != "" {
				t.Errorf("taken (-want +got):\n%s", d)
			}
		})
	}
}

func TestMailboxIgnoresPutBeforeReplace(t *testing.T) {
	t.Parallel()
	m := newMailbox(func() {})
	put(m, "a", "1")
	if got := taken(m.take(10)); len(got) != 0 {
		t.Errorf("taken: %v", got)
	}
	if early := m.tooEarly(); early != 1 {
		t.Errorf("early puts: %d, want 1", early)
	}
}

func TestMailboxBudgetAndAge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMailbox(func() {})
		m.Replace(full())
		m.take(1)
		begin := time.Now()
		for i := range 5 {
			put(m, fmt.Sprint(i), "1")
			time.Sleep(time.Second)
		}
		put(m, "0", "2") // does not make the key younger
		if n, at := m.depth(); n != 5 || !at.Equal(begin) {
			t.Errorf("depth %d, oldest after %v", n, at.Sub(begin))
		}
		b := m.take(3)
		if len(b.events) != 3 || !b.more || !b.oldest.Equal(begin) {
			t.Errorf("first turn: %v, more %v, oldest %v", taken(b), b.more, b.oldest.Sub(begin))
		}
		b = m.take(3)
		if len(b.events) != 2 || b.more || b.oldest.Sub(begin) != 3*time.Second {
			t.Errorf("second turn: %v, more %v, oldest %v", taken(b), b.more, b.oldest.Sub(begin))
		}
		if n, at := m.depth(); n != 0 || !at.IsZero() {
			t.Errorf("empty mailbox: depth %d, oldest %v", n, at)
		}
	})
}

// Incidents of the kind "queue grows while nobody reads": the size follows keys, not events.
func TestMailboxIsBoundedByKeys(t *testing.T) {
	t.Parallel()
	woken := 0
	m := newMailbox(func() { woken++ })
	m.Replace(full("a", "b"))
	m.take(1)
	woken = 0
	for i := range 10_000 {
		put(m, "a", fmt.Sprint(i))
		put(m, fmt.Sprintf("new-%d", i), "1")
		del(m, fmt.Sprintf("new-%d", i))
		del(m, "b")
	}
	if n, _ := m.depth(); n != 2 || m.order.Len() != 2 || len(m.events) != 2 || len(m.known) != 2 {
		t.Errorf("depth %d, order %d, events %d, known %d: all should be 2", n, m.order.Len(), len(m.events), len(m.known))
	}
	if d := cmp.Diff([]string{"a=9999", "b-"}, taken(m.take(10))); d != "" {
		t.Error(d)
	}
}

func TestMailboxStatus(t *testing.T) {
	t.Parallel()
	m := newMailbox(func() {})
	m.Status(model.Status{State: model.StateStale})
	m.Status(model.Status{State: model.StateLive})
	if b := m.take(1); b.status == nil || b.status.State != model.StateLive {
		t.Errorf("status: %+v, want the latest", b.status)
	}
	if b := m.take(1); b.status != nil {
		t.Errorf("status taken twice: %+v", b.status)
	}
	m.Status(model.Status{State: model.StateStale})
	m.Replace(full())
	if b := m.take(1); b.status != nil {
		t.Errorf("status %+v is older than the full truth", b.status)
	}
}

// writer is a mailbox with what it was told and what a writer has taken from it.
type writer struct {
	*mailbox
	t           *testing.T
	truth, seen map[model.RowKey]model.Object
}

func (w *writer) take() {
	b := w.mailbox.take(2)
	if b.full != nil {
		w.seen = maps.Collect(b.full.Rows())
	}
	for _, e := range b.events {
		if e.Obj != nil {
			w.seen[e.Row] = e.Obj
			continue
		}
		if _, ok := w.seen[e.Row]; !ok {
			w.t.Fatalf("deletion of %v, which the writer never saw", e.Row)
		}
		delete(w.seen, e.Row)
	}
}

// do carries out one operation: put, delete, take, or a full truth of a few rows.
func (w *writer) do(i int, op byte) {
	k := rk(fmt.Sprint(op % 8))
	switch {
	case op >= 250:
		b := model.NewShardBuilder()
		for j := range int(op) - 248 {
			b.Add(fmt.Sprint(j), ep(fmt.Sprint(i)))
		}
		s := b.Build()
		w.truth = maps.Collect(s.Rows())
		w.Replace(s)
	case op >= 200:
		w.take()
	case op >= 100:
		delete(w.truth, k)
		w.Put(model.Event{Row: k})
	default:
		w.truth[k] = ep(fmt.Sprint(i))
		w.Put(model.Event{Row: k, Obj: w.truth[k]})
	}
}

// Against a model: whatever comes, a writer that takes now and then ends with the truth.
func FuzzMailbox(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 250, 4, 100, 251, 5, 101})
	f.Fuzz(func(t *testing.T, ops []byte) {
		w := &writer{newMailbox(func() {}), t, map[model.RowKey]model.Object{}, map[model.RowKey]model.Object{}}
		w.Replace(full())
		for i, op := range ops {
			w.do(i, op)
			if len(w.events) != w.order.Len() || w.order.Len() > 8 {
				t.Fatalf("%d events in order, %d by key", w.order.Len(), len(w.events))
			}
		}
		for n, _ := w.depth(); n > 0; n, _ = w.depth() {
			w.take()
		}
		w.take()
		if !maps.Equal(w.seen, w.truth) {
			t.Fatalf("the writer has %v, want %v", w.seen, w.truth)
		}
	})
}

// A service that a source adds with its endpoints must not be seen without them in between.
func TestMailboxHandsOverTogetherWhatWasPutTogether(t *testing.T) {
	t.Parallel()
	var seen [][]string
	var m *mailbox
	m = newMailbox(func() { seen = append(seen, taken(m.take(10))) }) // a writer that is as fast as can be
	m.Replace(full("c"))
	seen = nil
	m.Put(model.Event{Row: rk("a"), Obj: ep("1")}, model.Event{Row: rk("b"), Obj: ep("1")}, model.Event{Row: rk("c")})
	m.Put()
	if d := cmp.Diff([][]string{{"a=1", "b=1", "c-"}}, seen); d != "" {
		t.Error(d)
	}
}
