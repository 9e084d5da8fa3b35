package main

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/holdback"
	"github.com/isthmus-mesh/isthmus/clusters/lastgood"
)

// heldBack has registries hold removals back by their policies, and knows what each of them holds.
type heldBack struct {
	metric *prometheus.GaugeVec

	mu sync.Mutex
	by map[model.ShardKey]holdback.Held // guarded by mu; without those that hold nothing
}

func newHeldBack(r prometheus.Registerer) *heldBack {
	h := &heldBack{by: map[model.ShardKey]holdback.Held{}, metric: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "isthmus_registry_held_back", Help: "Services of a registry that have lost instances or are gone, and objects of configuration that are gone, which are served as they were.",
	}, []string{"registry"})}
	r.MustRegister(h.metric)
	return h
}

// wrap gives a registry that does as the policy says. Before is as in holdback.Options.
func (h *heldBack) wrap(r model.Registry, p api.EmptyPolicy, before *holdback.Handover) model.Registry {
	k := r.Key()
	metric := h.metric.WithLabelValues(k.String())
	return holdback.Wrap(r, holdback.Options{Policy: p, Before: before, Held: func(now holdback.Held) {
		metric.Set(float64(now.Count))
		h.set(k, now)
	}})
}

// forget drops what is known of a registry that was detached.
func (h *heldBack) forget(k model.ShardKey) {
	h.metric.DeleteLabelValues(k.String())
	h.set(k, holdback.Held{})
}

func (h *heldBack) set(k model.ShardKey, now holdback.Held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.by[k] = now; now.Count == 0 {
		delete(h.by, k)
	}
}

// of is what a registry holds back.
func (h *heldBack) of(k model.ShardKey) holdback.Held {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.by[k]
}

// recent is how old what was kept may be for a registry that lacks it to be doubted.
const recent = time.Hour

// begin gives the first handover of a registry, of which may be kept what it said as it is declared now: hubs and registries may well restart
// together. The store may be nil.
func begin(store *lastgood.Store, k model.ShardKey, of string, p api.EmptyPolicy, log *slog.Logger) *holdback.Handover {
	if store == nil {
		return &holdback.Handover{}
	}
	switch kept, err := store.Kept(k, of); {
	case errors.Is(err, lastgood.ErrOther):
		log.Info("what was kept of the registry is not used: it was declared otherwise", "provider", k.Provider, "cluster", k.Cluster)
	case err == nil && time.Since(kept.Held) < recent: // who serves what was kept tells other errors
		return holdback.Resume(kept.Rows, kept.Aside, p.Duration.Duration)
	}
	return &holdback.Handover{}
}
