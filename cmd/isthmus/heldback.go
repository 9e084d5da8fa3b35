package main

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/holdback"
	"github.com/isthmus-mesh/isthmus/clusters/lastgood"
)

// heldBack has registries hold removals back by their policies, and knows how much each of them holds.
type heldBack struct {
	metric *prometheus.GaugeVec

	mu sync.Mutex
	by map[model.ShardKey]int // guarded by mu; without zeros
}

func newHeldBack(r prometheus.Registerer) *heldBack {
	h := &heldBack{by: map[model.ShardKey]int{}, metric: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "isthmus_registry_held_back", Help: "Services of a registry that have lost instances or are gone, and objects of configuration that are gone, which are served as they were.",
	}, []string{"registry"})}
	r.MustRegister(h.metric)
	return h
}

// wrap gives a registry that does as the policy says. Before is as in holdback.Options.
func (h *heldBack) wrap(r model.Registry, p api.EmptyPolicy, before *holdback.Handover) model.Registry {
	k := r.Key()
	metric := h.metric.WithLabelValues(k.String())
	return holdback.Wrap(r, holdback.Options{Policy: p, Before: before, Held: func(n int) {
		metric.Set(float64(n))
		h.set(k, n)
	}})
}

// forget drops what is known of a registry that was detached.
func (h *heldBack) forget(k model.ShardKey) {
	h.metric.DeleteLabelValues(k.String())
	h.set(k, 0)
}

func (h *heldBack) set(k model.ShardKey, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.by[k] = n; n == 0 {
		delete(h.by, k)
	}
}

// of is how much a registry holds back.
func (h *heldBack) of(k model.ShardKey) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.by[k]
}

// recent is how old what was kept may be for a registry that lacks it to be doubted.
const recent = time.Hour

// begin gives the first handover of a registry: hubs and registries may well restart together. The store may be nil.
func begin(store *lastgood.Store, k model.ShardKey) *holdback.Handover {
	if store != nil {
		if rows, held, err := store.Kept(k); err == nil && time.Since(held) < recent { // who serves what was kept tells errors
			return holdback.Begin(rows)
		}
	}
	return &holdback.Handover{}
}
