package conformance

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// run is a registry that is running.
type run struct {
	*recorder
	t      *testing.T
	cancel context.CancelFunc
	done   chan error
}

func start(t *testing.T, reg model.Registry) *run {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &run{recorder: newRecorder(reg.Key()), t: t, cancel: cancel, done: make(chan error, 1)}
	go func() {
		err := reg.Run(ctx, r.recorder)
		r.mu.Lock()
		r.returned = true
		r.mu.Unlock()
		r.done <- err
	}()
	t.Cleanup(cancel)
	return r
}

// stop ends the run and checks how it ended.
func (r *run) stop() {
	r.t.Helper()
	r.cancel()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case err := <-r.done:
		if err != nil && !errors.Is(err, context.Canceled) {
			r.t.Errorf("Run after its context ended: %v, want nil or %v", err, context.Canceled)
		}
	case <-late.C:
		r.t.Fatalf("Run has not returned %v after its context ended", patience)
	}
	for _, b := range r.breaches() {
		r.t.Error(b)
	}
}

// awaitWorld waits until the rows stand for the world.
func (r *run) awaitWorld(w World) {
	r.t.Helper()
	r.await(r.t, "the source's content arrives", func() bool { return r.replaces > 0 && worldOf(r.rows).equal(w) })
}

func (r *run) awaitState(s model.State) {
	r.t.Helper()
	r.await(r.t, "status "+string(s), func() bool { return r.status.State == s })
}

// Run runs every case. Cases do not run in parallel with each other, since each looks for leaked
// goroutines.
func Run(t *testing.T, h Harness) {
	var all []namedCase
	for _, c := range cases() {
		all = append(all, namedCase{c.name, func(t *testing.T) { c.run(t, h) }})
	}
	runCases(t, all)
}

type namedCase struct {
	name string
	run  func(*testing.T)
}

func runCases(t *testing.T, all []namedCase) {
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			t.Run("case", c.run) // its clean-up ends before the leak check
			goleak.VerifyNone(t, before)
		})
	}
}

type testCase struct {
	name string
	run  func(*testing.T, Harness)
}

func cases() []testCase {
	one := func(run func(*testing.T, Source)) func(*testing.T, Harness) {
		return func(t *testing.T, h Harness) { run(t, h.New(t, "c1")) }
	}
	return []testCase{
		{"first sync is one full truth", one(firstSync)},
		{"an empty source is a truth too", one(emptySource)},
		{"changes during the first sync", one(changeWhileSyncing)},
		{"increments add up to what a fresh instance reads", one(increments)},
		{"deletion", one(deletion)},
		{"a service that loses its last endpoint stays", one(lastEndpoint)},
		{"content that does not change is not put again", one(unchanged)},
		{"a burst of changes ends with the last", one(burst)},
		{"a service that goes and comes back", one(comesBack)},
		{"changes while a run ends", one(endAmidChanges)},
		{"instances that read the same give the same rows", one(sameRows)},
		{"an instance may run again", one(rerun)},
		{"a run that ends before it has synced", one(endEarly)},
		{"the source goes on after the end of a run", one(lateChanges)},
		{"a run that gives up", one(givesUp)},
		{"two instances side by side", one(sideBySide)},
		{"two clusters with equal names", twoClusters},
		{"lost contact keeps the data", one(lostContact)},
		{"contact again, and nothing has changed", one(relist)},
	}
}

func start3() World {
	return World{
		"a": {Port: 8080, Addresses: []string{"10.1.0.1", "10.1.0.2"}},
		"b": {Port: 9090, Addresses: []string{"10.1.0.3"}},
		"c": {Port: 7070},
	}
}

func firstSync(t *testing.T, s Source) {
	w := start3()
	s.Set(w)
	r := start(t, s.Registry())
	r.awaitWorld(w)
	r.awaitState(model.StateLive)
	r.stop()
}

func emptySource(t *testing.T, s Source) {
	r := start(t, s.Registry())
	r.awaitWorld(World{})
	r.awaitState(model.StateLive)
	r.stop()
}

func increments(t *testing.T, s Source) {
	r := start(t, s.Registry())
	r.awaitWorld(World{})
	w := World{}
	for _, step := range []func(){
		func() { w["a"] = Service{Port: 80, Addresses: []string{"10.1.0.1"}} },
		func() { w["b"] = Service{Port: 81, Addresses: []string{"10.1.0.2", "10.1.0.3"}} },
		func() { w["a"] = Service{Port: 80, Addresses: []string{"10.1.0.1", "10.1.0.4"}} },
		func() { w["a"] = Service{Port: 8080, Addresses: []string{"10.1.0.4"}} },
		func() { delete(w, "b"); w["c"] = Service{Port: 82} },
		func() { w["b"] = Service{Port: 83, Addresses: []string{"10.1.0.3"}} },
	} {
		step()
		s.Set(w.clone())
		r.awaitWorld(w)
	}
	fresh := start(t, s.Registry())
	fresh.awaitWorld(w)
	fresh.stop()
	r.stop()
}

func deletion(t *testing.T, s Source) {
	w := start3()
	s.Set(w)
	r := start(t, s.Registry())
	r.awaitWorld(w)
	s.Set(World{})
	r.awaitWorld(World{})
	r.await(t, "rows of deleted services go", func() bool {
		for k := range r.rows {
			if k.Kind != model.RowConfig {
				return false
			}
		}
		return true
	})
	r.stop()
}

func lastEndpoint(t *testing.T, s Source) {
	s.Set(World{"a": {Port: 80, Addresses: []string{"10.1.0.1"}}})
	r := start(t, s.Registry())
	r.awaitWorld(World{"a": {Port: 80, Addresses: []string{"10.1.0.1"}}})
	s.Set(World{"a": {Port: 80}})
	r.awaitWorld(World{"a": {Port: 80}})
	r.stop()
}

// unchanged relies on the recorder, which notes every Put of equal content.
func unchanged(t *testing.T, s Source) {
	w := start3()
	s.Set(w)
	r := start(t, s.Registry())
	r.awaitWorld(w)
	s.Set(w.clone())
	w["d"] = Service{Port: 60, Addresses: []string{"10.1.0.9"}}
	s.Set(w.clone())
	r.awaitWorld(w)
	r.stop()
}

func burst(t *testing.T, s Source) {
	r := start(t, s.Registry())
	r.awaitWorld(World{})
	w := World{}
	for i := range 30 {
		w["a"] = Service{Port: uint16(1000 + i), Addresses: []string{fmt.Sprintf("10.1.0.%d", 1+i)}}
		w[fmt.Sprint("s", i%4)] = Service{Port: uint16(2000 + i)}
		s.Set(w.clone())
	}
	delete(w, "s1")
	s.Set(w.clone())
	r.awaitWorld(w)
	r.stop()
}

func comesBack(t *testing.T, s Source) {
	w := start3()
	s.Set(w.clone())
	r := start(t, s.Registry())
	r.awaitWorld(w)
	for range 2 {
		without := w.clone()
		delete(without, "a")
		s.Set(without.clone())
		r.awaitWorld(without)
		s.Set(w.clone())
		r.awaitWorld(w)
	}
	r.stop()
}

// endAmidChanges relies on the recorder, which notes every call after the end of Run.
func endAmidChanges(t *testing.T, s Source) {
	w := start3()
	s.Set(w.clone())
	r := start(t, s.Registry())
	r.awaitWorld(w)
	for i := range 10 {
		if i == 5 {
			r.cancel()
		}
		w["a"] = Service{Port: 8080, Addresses: []string{fmt.Sprintf("10.1.1.%d", 1+i)}}
		s.Set(w.clone())
	}
	r.stop()
	s.Set(World{})
	if b := r.breaches(); len(b) > 0 {
		t.Error(b)
	}
}

func rerun(t *testing.T, s Source) {
	w := start3()
	s.Set(w)
	reg := s.Registry()
	first := start(t, reg)
	first.awaitWorld(w)
	first.stop()
	delete(w, "a")
	s.Set(w.clone())
	second := start(t, reg)
	second.awaitWorld(w)
	second.stop()
}

func endEarly(t *testing.T, s Source) {
	s.Set(start3())
	start(t, s.Registry()).stop()
}

// sideBySide is what a swap needs: the new instance syncs while the old one runs, and the end of one
// does not disturb the other.
func sideBySide(t *testing.T, s Source) {
	w := start3()
	s.Set(w)
	old := start(t, s.Registry())
	old.awaitWorld(w)
	next := start(t, s.Registry())
	next.awaitWorld(w)
	old.stop()
	delete(w, "b")
	s.Set(w.clone())
	next.awaitWorld(w)
	next.stop()
}

func lostContact(t *testing.T, s Source) {
	cut, ok := s.(Cutter)
	if !ok {
		t.Skip("contact with this source can't be lost")
	}
	w := start3()
	s.Set(w)
	r := start(t, s.Registry())
	r.awaitWorld(w)
	cut.Cut()
	r.awaitState(model.StateStale)
	r.awaitWorld(w)
	cut.Restore()
	r.awaitState(model.StateLive)
	w["d"] = Service{Port: 60, Addresses: []string{"10.1.0.9"}}
	s.Set(w.clone())
	r.awaitWorld(w)
	r.stop()
}
