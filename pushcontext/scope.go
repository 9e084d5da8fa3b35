package pushcontext

import (
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	telemetry "istio.io/api/telemetry/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Scope is what configuration that is addressed to workloads (Sidecar, Telemetry) says to some of them.
// Workloads to which the same is said share one, which keeps its pointer while nothing of it changes; so
// pointers can be compared. A nil Scope is that of workloads to which nothing is addressed: they see all that is
// exported to them.
type Scope struct {
	Sidecar   *Sidecar     // nil if none is in force
	Telemetry []*Telemetry // of the root namespace, the namespace, the workload, in this order
}

// Sidecar is a Sidecar in force.
type Sidecar struct {
	Source model.Source
	Spec   *networking.Sidecar
	Egress []Egress // never empty: without egress listeners, one that imports all
	// destinations are the hosts that imported VirtualServices send to, with the ports: they are imported too.
	destinations map[string][]uint16
}

// Egress is one egress listener of a Sidecar.
type Egress struct {
	Port    *networking.SidecarPort // nil: services are served at their own ports
	Bind    string
	Capture networking.CaptureMode
	Imports []Import
	// Excludes are services that are not imported even so.
	Excludes []Import
}

// Import is one entry of an egress listener's hosts.
type Import struct {
	Namespace string // of services and VirtualServices; "*" for any. "." is resolved
	Host      string // a host, "*.suffix" or "*"
}

// Telemetry is a Telemetry object in force.
type Telemetry struct {
	Source   model.Source
	Selector model.Labels // of workloads of its namespace; empty for all
	Spec     *telemetry.Telemetry
}

// ScopeKey says to whom something is said.
type ScopeKey struct {
	Namespace string
	Labels    model.Labels // of the workload
	Router    bool         // Sidecars are not for it
}

func (i Import) admits(namespace, host string) bool {
	return (i.Namespace == "*" || i.Namespace == namespace) && HostMatches(i.Host, strings.ToLower(host))
}

// Only gives the scope with one of its egress listeners alone, and that for all ports. What only routes lead to is not imported.
func (s *Scope) Only(e *Egress) *Scope {
	sidecar, egress := *s.Sidecar, *e
	egress.Port = nil
	sidecar.Egress, sidecar.destinations = []Egress{egress}, nil
	return &Scope{Sidecar: &sidecar, Telemetry: s.Telemetry}
}

// Imports reports whether a service is imported, by any egress listener or since an imported VirtualService sends
// to it.
func (s *Scope) Imports(shape *ShapeView) bool {
	ok, _ := s.imports(shape)
	return ok
}

// imports reports also whether an egress listener names the service.
func (s *Scope) imports(shape *ShapeView) (ok, named bool) {
	if s == nil || s.Sidecar == nil {
		return true, true
	}
	for i := range s.Sidecar.Egress {
		if s.Sidecar.Egress[i].Admits(shape) {
			return true, true
		}
	}
	_, ok = s.Sidecar.destinations[shape.Key.Host]
	return ok, false
}

// LeadsTo reports whether an imported VirtualService sends to a port of a service.
func (s *Scope) LeadsTo(shape *ShapeView, port uint16) bool {
	ports := s.Sidecar.destinations[shape.Key.Host]
	return slices.Contains(ports, port) || slices.Contains(ports, 0)
}

// Admits reports whether the listener's own hosts import a service.
func (e *Egress) Admits(shape *ShapeView) bool {
	has := func(list []Import) bool {
		for _, i := range list {
			if i.admits(shape.Key.Namespace, shape.Key.Host) {
				return true
			}
		}
		return false
	}
	return has(e.Imports) && !has(e.Excludes)
}

// ImportsRoute reports whether a VirtualService is imported by any egress listener.
func (s *Scope) ImportsRoute(v *VirtualService) bool {
	if s == nil || s.Sidecar == nil {
		return true
	}
	for i := range s.Sidecar.Egress {
		if s.Sidecar.Egress[i].AdmitsRoute(v) {
			return true
		}
	}
	return false
}

// AdmitsRoute reports whether the listener's own hosts import a VirtualService: one of its hosts is among them, or
// one of them among its hosts.
func (e *Egress) AdmitsRoute(v *VirtualService) bool {
	for _, i := range e.Imports {
		if i.Namespace != "*" && i.Namespace != v.Namespace {
			continue
		}
		for _, h := range v.Hosts {
			if HostMatches(i.Host, h) || HostMatches(h, i.Host) {
				return true
			}
		}
	}
	return false
}
