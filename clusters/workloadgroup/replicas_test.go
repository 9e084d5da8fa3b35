package workloadgroup_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/clusters/workloadgroup"
)

// TestMovesToAnotherReplica: whoever the proxy came to last sees to the entry.
func TestMovesToAnotherReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		a, b := run(t, s, "hub-a", workloadgroup.Options{}), run(t, s, "hub-b", workloadgroup.Options{})
		defer a.stop()
		defer b.stop()
		old, next := vm("10.3.0.1"), vm("10.3.0.1")
		a.Connected(old)
		synctest.Wait()
		b.Connected(next)
		synctest.Wait()
		a.Disconnected(old)
		after(time.Minute)
		if c := s.entry(t, "legacy-10.3.0.1-dc1").Annotations[workloadgroup.AnnotationController]; c != "hub-b" {
			t.Errorf("the controller is %s, want hub-b", c)
		}
		b.Disconnected(next)
		after(time.Minute)
		if left := s.names(); len(left) > 0 {
			t.Errorf("entries %v are left", left)
		}
	})
}

// TestReplicaDies: what it left behind goes, unless its proxy comes to another.
func TestReplicaDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		a, b := run(t, s, "hub-a", workloadgroup.Options{}), run(t, s, "hub-b", workloadgroup.Options{})
		defer b.stop()
		a.Connected(vm("10.3.0.1"))
		a.Connected(vm("10.3.0.2"))
		after(time.Second)
		a.stop()
		b.Connected(vm("10.3.0.2"))
		after(50 * time.Second)
		if n := len(s.names()); n != 2 {
			t.Errorf("%d entries while it is not known that the replica is dead, want 2", n)
		}
		after(2 * time.Minute)
		if left := s.names(); len(left) != 1 || left[0] != "vms/legacy-10.3.0.2-dc1" {
			t.Errorf("entries %v are left, want the one whose proxy is connected", left)
		}
	})
}

// TestRestartUnderTheSameName: entries of an earlier life go when their proxies do not come back.
func TestRestartUnderTheSameName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		r := run(t, s, "hub", workloadgroup.Options{})
		r.Connected(vm("10.3.0.1"))
		r.Connected(vm("10.3.0.2"))
		after(time.Second)
		r.stop()
		r = run(t, s, "hub", workloadgroup.Options{})
		defer r.stop()
		r.Connected(vm("10.3.0.2"))
		after(2 * time.Minute)
		if left := s.names(); len(left) != 1 || left[0] != "vms/legacy-10.3.0.2-dc1" {
			t.Errorf("entries %v are left, want the one whose proxy came back", left)
		}
	})
}

// TestManyAndAnotherReplica: a replica with much to write is not taken for dead by another.
func TestManyAndAnotherReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		a, b := run(t, s, "hub-a", workloadgroup.Options{}), run(t, s, "hub-b", workloadgroup.Options{})
		defer a.stop()
		defer b.stop()
		for i := range 3000 {
			a.Connected(vm(fmt.Sprintf("10.3.%d.%d", i/250, i%250)))
		}
		after(10 * time.Minute)
		if n := len(s.names()); n != 3000 {
			t.Errorf("%d entries of connected proxies, want 3000", n)
		}
	})
}

// TestTakenForDead: a replica that can't say that it lives loses entries of connected proxies to another, and has them again
// once it can.
func TestTakenForDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		var away atomic.Bool
		cut := &cutOff{shared: s, away: &away}
		a, b := run(t, cut, "hub-a", workloadgroup.Options{}), run(t, s, "hub-b", workloadgroup.Options{})
		defer a.stop()
		defer b.stop()
		a.Connected(vm("10.3.0.1"))
		after(time.Second)
		away.Store(true)
		after(4 * time.Minute)
		if n := len(s.names()); n != 0 {
			t.Errorf("%d entries of a replica that is taken for dead", n)
		}
		away.Store(false)
		after(2 * time.Minute)
		if e := s.entry(t, "legacy-10.3.0.1-dc1"); e.Annotations[workloadgroup.AnnotationDisconnected] != "" {
			t.Error("the entry of a connected proxy is noted as gone")
		}
	})
}

// cutOff is a replica's own way to what it shares with others.
type cutOff struct {
	*shared
	away *atomic.Bool
}

func (c *cutOff) Alive(ctx context.Context, controller string) (map[string]bool, error) {
	if c.away.Load() {
		return nil, errors.New("no way")
	}
	return c.shared.Alive(ctx, controller)
}

// TestHalfOpenStream: a replica whose stream does not know yet that its proxy has gone elsewhere takes nothing back.
func TestHalfOpenStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		a, b := run(t, s, "hub-a", workloadgroup.Options{}), run(t, s, "hub-b", workloadgroup.Options{})
		defer a.stop()
		defer b.stop()
		old, next := vm("10.3.0.1"), vm("10.3.0.1")
		a.Connected(old)
		after(time.Second)
		b.Connected(next)
		after(time.Second)
		a.GroupsChanged()
		after(time.Minute)
		a.Disconnected(old)
		after(5 * time.Minute)
		if e := s.entry(t, "legacy-10.3.0.1-dc1"); e.Annotations[workloadgroup.AnnotationController] != "hub-b" || e.Annotations[workloadgroup.AnnotationDisconnected] != "" {
			t.Errorf("annotations %v, want those of hub-b", e.Annotations)
		}
	})
}
