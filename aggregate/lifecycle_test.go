package aggregate_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/clusters/memory"
)

func wantAddrs(t *testing.T, h *hub, svc string, want ...string) {
	t.Helper()
	if want == nil {
		want = []string{}
	}
	if d := cmp.Diff(want, addrs(h.service(svc), "http")); d != "" {
		t.Errorf("endpoints of %s (-want +got):\n%s", svc, d)
	}
}

// Two members hold one service: union while both are attached, and only the other's when one goes
// (incidents 6 and 47).
func TestUnionAndDetach(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1, c2 := kube("c1"), kube("c2")
		h.Attach(registry(c1, service(c1, "a"), slice(c1, "a", "a-1", "10.0.0.1")))
		h.Attach(registry(c2, service(c2, "a"), slice(c2, "a", "a-1", "10.0.0.1"), service(c2, "only")))
		h.start()
		h.quiet()
		wantAddrs(t, h, "a", "c1/10.0.0.1:8080", "c2/10.0.0.1:8080")
		h.Detach(c2)
		h.quiet()
		wantAddrs(t, h, "a", "c1/10.0.0.1:8080")
		if h.service("only") != nil {
			t.Error("a service of the detached member alone is still there")
		}
	})
}

// One member that hangs delays readiness by its own timeout only (incidents 8 to 10).
func TestServingGate(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1, c2 := kube("c1"), kube("c2")
		slow := memory.New(c2)
		h.Attach(registry(c1, service(c1, "a")))
		h.Attach(slow)
		h.start()
		h.quiet()
		if h.Ready() || h.Current() != nil {
			t.Fatal("ready before every registry has synced")
		}
		time.Sleep(30 * time.Second)
		if pc := h.quiet(); !h.Ready() || pc.Shards[1].Status.State != "timeout" {
			t.Fatalf("after the timeout: ready %v, shards %+v", h.Ready(), pc.Shards)
		}
		slow.Replace(state(service(c2, "b")))
		if pc := h.quiet(); h.service("b") == nil || pc.Shards[1].Status.State != "live" {
			t.Errorf("late member did not join: %+v", pc.Shards)
		}
	})
}
