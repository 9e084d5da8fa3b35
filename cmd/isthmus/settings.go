package main

import (
	"context"
	"strings"
	"sync"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// settings passes registries on to the controller. The MeshConfig among the rows of those of mesh-wide settings, read
// or kept from an earlier run, goes to who needs it just before it goes to the controller: when the serving gate
// takes the settings for read, the clusters that wait for them are attached.
type settings struct {
	model.Lifecycle
	use   func(*meshconfig.MeshConfig) // nil stands for none; nobody needs it if use is nil. Set before the first Attach
	relay relay
}

// follow adds somebody who needs the settings, after those who asked before. To be called before the first Attach.
func (s *settings) follow(use func(*meshconfig.MeshConfig)) {
	before := s.use
	s.use = func(m *meshconfig.MeshConfig) {
		if before != nil {
			before(m)
		}
		use(m)
	}
}

// Attach implements model.Lifecycle.
func (s *settings) Attach(r model.Registry) {
	if s.use != nil && r.Key().Provider == model.ProviderMesh {
		r = &meshRegistry{r, s}
	}
	s.Lifecycle.Attach(r)
}

// meshRegistry is a registry of mesh-wide settings.
type meshRegistry struct {
	model.Registry
	settings *settings
}

// Run implements model.Registry.
func (m *meshRegistry) Run(ctx context.Context, out model.Sink) error {
	return m.Registry.Run(ctx, &meshSink{out, m.settings})
}

// meshSink is the sink of one run of a meshRegistry.
type meshSink struct {
	model.Sink
	settings *settings
}

// Replace implements model.Sink.
func (m *meshSink) Replace(full *model.ShardState) {
	var mesh *meshconfig.MeshConfig
	for _, obj := range full.Rows() {
		if cfg := meshConfig(obj); cfg != nil {
			mesh = cfg
		}
	}
	m.settings.relay.pass(m, true, func() { m.settings.use(mesh) })
	m.Sink.Replace(full)
}

// Put implements model.Sink.
func (m *meshSink) Put(events ...model.Event) {
	for _, ev := range events {
		if ev.Row.Kind == model.RowConfig && strings.HasPrefix(ev.Row.Key, model.ConfigMesh+"/") {
			m.settings.relay.pass(m, false, func() { m.settings.use(meshConfig(ev.Obj)) })
		}
	}
	m.Sink.Put(events...)
}

// meshConfig is the MeshConfig in a row, nil if it is another row, or none.
func meshConfig(obj model.Object) *meshconfig.MeshConfig {
	c, _ := obj.(*model.Config)
	if c == nil {
		return nil
	}
	m, _ := c.Spec.(*meshconfig.MeshConfig)
	return m
}

// relay passes on what the runs of one registry say. From the first full truth of a replacement on, what the one
// before it says is not passed on, as with the controller.
type relay struct {
	mu   sync.Mutex
	last any // guarded by mu: the run that gave a full truth last
}

func (r *relay) pass(from any, full bool, on func()) {
	r.mu.Lock()
	if full {
		r.last = from
	}
	current := r.last == from
	r.mu.Unlock()
	if current {
		on()
	}
}
