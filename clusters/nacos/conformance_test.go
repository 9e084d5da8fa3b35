package nacos

import (
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/conformance"
)

// source is a fake server whose services are the world.
type source struct {
	*fake
	cluster model.ClusterID
}

func TestConformance(t *testing.T) {
	for name, fuzzy := range map[string]bool{"lists": false, "fuzzy watch": true} {
		t.Run(name, func(t *testing.T) {
			conformance.Run(t, conformance.Harness{New: func(t *testing.T, cluster model.ClusterID) conformance.Source {
				f := newFake(t)
				f.faults.fuzzy = fuzzy
				return &source{f, cluster}
			}})
		})
	}
}

func (s *source) Registry() model.Registry {
	r, err := quickly(Options{Name: s.cluster, Spec: s.spec()})
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// Set gives a service without addresses an instance of weight 0, which says its port.
func (s *source) Set(w conformance.World) {
	s.mu.Lock()
	var gone []serviceName
	for n := range s.services {
		if _, ok := w[n.name]; !ok {
			gone = append(gone, n)
		}
	}
	s.mu.Unlock()
	for _, n := range gone {
		s.set(n, nil)
	}
	for name, svc := range w {
		s.set(public(name), hosts(svc))
	}
}

func hosts(svc conformance.Service) (out []instance) {
	for _, a := range svc.Addresses {
		out = append(out, host(a, func(h *instance) { h.Port = int(svc.Port) }))
	}
	if len(out) == 0 {
		out = append(out, host("10.255.255.254", func(h *instance) { h.Port, h.Weight = int(svc.Port), 0 }))
	}
	return out
}

// Cut and Restore make the source one whose contact can be lost.
func (s *source) Cut()     { s.down() }
func (s *source) Restore() { s.up() }
