package conformance

import (
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Fixed describes a provider whose registries have what they were made with, and never change.
type Fixed struct {
	// New makes an instance of a cluster's registry, which has the one service of a world. Every instance of a cluster has the same key.
	New func(t *testing.T, cluster model.ClusterID, w World) model.Registry
}

// RunFixed runs every case of the suite that is about something else than changes: of these there are none but another instance.
func RunFixed(t *testing.T, h Fixed) {
	runCases(t, []namedCase{
		{"first sync is one full truth, and nothing follows", h.firstSync},
		{"an instance may run again", h.rerun},
		{"a run that ends before it has synced", h.endEarly},
		{"instances that read the same give the same rows", h.sameRows},
		{"another instance takes over", h.takeOver},
		{"two clusters with equal names", h.twoClusters},
	})
}

func worlds() []World {
	return []World{
		{"a": {Port: 8080, Addresses: []string{"10.1.0.1", "10.1.0.2"}}},
		{"a": {Port: 9090, Addresses: []string{"10.1.0.2"}}},
		{"a": {Port: 9090}},
	}
}

func (h Fixed) firstSync(t *testing.T) {
	for _, w := range worlds() {
		r := start(t, h.New(t, "c1", w))
		r.awaitWorld(w)
		r.awaitState(model.StateLive)
		rows := r.rowsOf()
		r.stop()
		r.wantRows(rows)
		if r.replaces != 1 {
			t.Errorf("%d full truths", r.replaces)
		}
	}
}

func (h Fixed) rerun(t *testing.T) {
	w := worlds()[0]
	reg := h.New(t, "c1", w)
	first := start(t, reg)
	first.awaitWorld(w)
	first.stop()
	second := start(t, reg)
	second.awaitWorld(w)
	second.wantRows(first.rowsOf())
	second.stop()
}

func (h Fixed) endEarly(t *testing.T) { start(t, h.New(t, "c1", worlds()[0])).stop() }

func (h Fixed) sameRows(t *testing.T) {
	w := worlds()[0]
	one, two := start(t, h.New(t, "c1", w)), start(t, h.New(t, "c1", w))
	one.awaitWorld(w)
	two.awaitWorld(w)
	two.wantRows(one.rowsOf())
	one.stop()
	two.stop()
}

// takeOver is what a swap needs: the next instance syncs while the old one runs on with what it has, and the end of one does not disturb the other.
func (h Fixed) takeOver(t *testing.T) {
	all := worlds()
	old := start(t, h.New(t, "c1", all[0]))
	for i, w := range all[1:] {
		old.awaitWorld(all[i])
		rows := old.rowsOf()
		next := start(t, h.New(t, "c1", w))
		if next.key != old.key {
			t.Fatalf("%s is replaced by %s", old.key, next.key)
		}
		next.awaitWorld(w)
		next.awaitState(model.StateLive)
		old.wantRows(rows)
		old.stop()
		old = next
	}
	old.stop()
}

func (h Fixed) twoClusters(t *testing.T) {
	all := worlds()
	one, two := start(t, h.New(t, "c1", all[0])), start(t, h.New(t, "c2", all[1]))
	if one.key == two.key {
		t.Fatalf("both registries are %s", one.key)
	}
	one.awaitWorld(all[0])
	two.awaitWorld(all[1])
	one.stop()
	two.awaitWorld(all[1])
	two.stop()
}
