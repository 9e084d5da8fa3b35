package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// changeWhileSyncing relies on the recorder, which notes every Put before Replace.
func changeWhileSyncing(t *testing.T, s Source) {
	w := start3()
	s.Set(w)
	r := start(t, s.Registry())
	for i := range 5 {
		w = w.clone()
		w["a"] = Service{Port: 8080, Addresses: []string{fmt.Sprintf("10.1.0.%d", 10+i)}}
		s.Set(w)
	}
	r.awaitWorld(w)
	r.stop()
}

// rowsOf are the rows as text, by kind and key; without times, which may say when an instance saw
// something.
func (r *run) rowsOf() map[model.RowKey][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[model.RowKey][]byte, len(r.rows))
	for k, o := range r.rows {
		out[k] = times.ReplaceAll(fingerprint(o), nil)
	}
	return out
}

var times = regexp.MustCompile(`"Time":"[^"]*"`)

func (r *run) wantRows(want map[model.RowKey][]byte) {
	r.t.Helper()
	got := r.rowsOf()
	for k, text := range want {
		if !bytes.Equal(got[k], text) {
			r.t.Errorf("row %v:\n  now %s\n  was %s", k, got[k], text)
		}
	}
	if len(got) != len(want) {
		r.t.Errorf("%d rows, want %d", len(got), len(want))
	}
}

// sameRows: what one instance has learnt step by step, another must read as the same rows, or each
// swap would be a change.
func sameRows(t *testing.T, s Source) {
	w := start3()
	s.Set(w)
	old := start(t, s.Registry())
	old.awaitWorld(w)
	w = w.clone()
	w["a"] = Service{Port: 8080, Addresses: []string{"10.1.0.2", "10.1.0.7"}}
	delete(w, "c")
	s.Set(w)
	old.awaitWorld(w)
	next := start(t, s.Registry())
	next.awaitWorld(w)
	next.wantRows(old.rowsOf())
	old.stop()
	next.stop()
}

// lateChanges: nothing that was started for a run may write to its sink once it has returned. A second
// instance sees the same changes, so by the time that it has them the first had time to misbehave.
func lateChanges(t *testing.T, s Source) {
	w := start3()
	s.Set(w)
	reg := s.Registry()
	old := start(t, reg)
	old.awaitWorld(w)
	old.cancel()
	w = w.clone()
	w["d"] = Service{Port: 60, Addresses: []string{"10.1.0.9"}}
	s.Set(w) // while it ends
	old.stop()
	rows := old.rowsOf()
	next := start(t, reg)
	for i := range 3 {
		w = w.clone()
		w["e"] = Service{Port: 61, Addresses: []string{fmt.Sprintf("10.1.1.%d", i)}}
		s.Set(w)
		next.awaitWorld(w)
	}
	next.stop()
	old.wantRows(rows)
	for _, b := range old.breaches() {
		t.Error(b)
	}
}

// givesUp: an error of Run is the source's own, and takes nothing from the next run.
func givesUp(t *testing.T, s Source) {
	failer, ok := s.(Failer)
	if !ok {
		t.Skip("nothing makes a run of this registry give up")
	}
	w := start3()
	s.Set(w)
	reg := s.Registry()
	r := start(t, reg)
	r.awaitWorld(w)
	broken := errors.New("broken")
	failer.Fail(broken)
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case err := <-r.done:
		if !errors.Is(err, broken) {
			t.Errorf("Run gave up with %v, want %v", err, broken)
		}
	case <-late.C:
		t.Fatalf("Run has not given up within %v", patience)
	}
	next := start(t, reg)
	next.awaitWorld(w)
	next.stop()
}

// twoClusters: equal names, each registry tells of its own cluster alone (the recorder notes rows and
// addresses of another), and the end of one is nothing to the other.
func twoClusters(t *testing.T, h Harness) {
	one, two := h.New(t, "c1"), h.New(t, "c2")
	east, west := start3(), World{"a": {Port: 8080, Addresses: []string{"10.1.0.1"}}, "b": {Port: 1, Addresses: []string{"10.1.0.8"}}}
	one.Set(east)
	two.Set(west)
	a, b := start(t, one.Registry()), start(t, two.Registry())
	if a.key == b.key {
		t.Fatalf("both registries are %s", a.key)
	}
	a.awaitWorld(east)
	b.awaitWorld(west)
	one.Set(World{})
	a.awaitWorld(World{})
	west = west.clone()
	west["c"] = Service{Port: 7070}
	two.Set(west)
	b.awaitWorld(west)
	a.stop()
	delete(west, "b")
	two.Set(west.clone())
	b.awaitWorld(west)
	b.stop()
}

// relist: contact is lost and found, and the rows are what they were, to the last field.
func relist(t *testing.T, s Source) {
	cut, ok := s.(Cutter)
	if !ok {
		t.Skip("contact with this source can't be lost")
	}
	w := start3()
	s.Set(w)
	r := start(t, s.Registry())
	r.awaitWorld(w)
	r.awaitState(model.StateLive)
	rows := r.rowsOf()
	for range 3 {
		cut.Cut()
		r.awaitState(model.StateStale)
		cut.Restore()
		r.awaitState(model.StateLive)
		r.wantRows(rows)
	}
	r.stop()
}
