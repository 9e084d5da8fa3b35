package workloadgroup_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/clusters/workloadgroup"
)

// TestMany: entries are written 50 a second, and no more than the limit are known at once.
func TestMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		r := run(t, s, "hub", workloadgroup.Options{Limit: 100})
		defer r.stop()
		for i := range 200 {
			r.Connected(vm(fmt.Sprintf("10.3.1.%d", i)))
		}
		synctest.Wait()
		if n := len(s.names()); n > 51 {
			t.Errorf("%d entries at once, want 50 or so", n)
		}
		after(time.Minute)
		if n := len(s.names()); n != 100 {
			t.Errorf("%d entries, want 100", n)
		}
	})
}

// TestRemovalsGoFirst: after a mass of disconnections entries that have outlived their proxies are removed, before any that are new
// or mended are written; each costs one write.
func TestRemovalsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		r := run(t, s, "hub", workloadgroup.Options{})
		defer r.stop()
		const n = 500
		var all []*workloadgroup.Proxy
		for i := range n {
			all = append(all, vm(fmt.Sprintf("10.3.%d.%d", i/250, i%250)))
			r.Connected(all[i])
		}
		after(time.Minute)
		before := s.written()
		for _, p := range all {
			r.Disconnected(p)
		}
		after(11 * time.Second) // past the grace; what was noted by then is some 500
		for i := range n {
			r.Connected(vm(fmt.Sprintf("10.4.%d.%d", i/250, i%250)))
		}
		after(11 * time.Second)
		s.mu.Lock()
		defer s.mu.Unlock()
		created := 0
		for i, what := range s.writes[before:] {
			switch {
			case !strings.HasPrefix(what, "delete "):
				if strings.Contains(what, "-10.4.") {
					created++
				}
			case created > 0:
				t.Fatalf("write %d, %s, came after %d new entries", i, what, created)
			}
		}
		for k := range s.entries {
			if strings.Contains(k.Name, "-10.3.") {
				t.Errorf("%s is still there", k)
			}
		}
	})
}

// TestManyVanish: 2 000 proxies that vanish at once have no entries a minute later. Each removal is one request, unless
// somebody else has written the entry meanwhile: then it is read first.
func TestManyVanish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		var reads atomic.Int32
		s.fail = func(op string) error {
			if op == "get" {
				reads.Add(1)
			}
			return nil
		}
		r := run(t, s, "hub", workloadgroup.Options{})
		defer r.stop()
		const n = 2000
		var all []*workloadgroup.Proxy
		for i := range n {
			all = append(all, vm(fmt.Sprintf("10.3.%d.%d", i/250, i%250)))
			r.Connected(all[i])
		}
		after(2 * time.Minute)
		if got := len(s.names()); got != n {
			t.Fatalf("%d entries, want %d", got, n)
		}
		const others = 7
		s.mu.Lock()
		for i := range others {
			k := workloadgroup.Key{Namespace: "vms", Name: fmt.Sprintf("legacy-10.3.7.%d-dc1", i)}
			next := *s.entries[k]
			s.version++
			next.Version = strconv.Itoa(s.version)
			s.entries[k] = &next
		}
		s.mu.Unlock()
		for _, p := range all {
			r.Disconnected(p)
		}
		after(10 * time.Second)
		before := reads.Load()
		after(50 * time.Second)
		if left := s.names(); len(left) > 0 {
			t.Errorf("%d entries are left, the first %s", len(left), left[0])
		}
		if got := reads.Load() - before; got > others {
			t.Errorf("%d entries were read to be removed, want %d at most", got, others)
		}
	})
}
