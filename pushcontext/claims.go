package pushcontext

import (
	"maps"
	"slices"
)

// markRivals makes the ports of all services of a host dirty where one of several changed: which of
// them a reader means may be another now.
func (s *step) markRivals() {
	for host := range s.shape {
		now, _ := s.hosts.get(host)
		if now == nil || len(now.Services)+len(s.base.Host(host).services()) < 3 {
			continue // there is one, as there was or not
		}
		for _, v := range now.Services {
			for _, p := range v.Shape.Ports {
				pc := s.port(p.Number)
				pc.hosts = append(pc.hosts, host)
			}
		}
	}
}

func (h *HostView) services() []*ServiceView {
	if h == nil {
		return nil
	}
	return h.Services
}

// claims gives a port's claims after hosts changed.
func (s *step) claims(v *PortView, hosts []string) map[string][]*ShapeView {
	out, own := v.Claims, false
	for _, host := range hosts {
		next := s.rivals(host, v.Number)
		if len(next)+len(out[host]) == 0 {
			continue
		}
		if !own {
			out, own = maps.Clone(out), true
		}
		if len(next) == 0 {
			delete(out, host)
			continue
		}
		if out == nil {
			out = map[string][]*ShapeView{}
		}
		out[host] = next
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// rivals are the services of a host that has several, if one of them has the port.
func (s *step) rivals(host string, port uint16) []*ShapeView {
	h, _ := s.hosts.get(host)
	if len(h.services()) < 2 || !slices.ContainsFunc(h.Services, func(v *ServiceView) bool { _, ok := v.Shape.PortNumbered(port); return ok }) {
		return nil
	}
	out := make([]*ShapeView, len(h.Services))
	for i, v := range h.Services {
		out[i] = v.Shape
	}
	return out
}

// Means gives the service that a host of Claims means to a reader, as [HostView.Resolve] does; nil if it
// is none.
func (v *PortView) Means(host string, r *Reader) *ShapeView {
	w := winner{reader: r}
	for _, s := range v.Claims[host] {
		w.beats(s)
	}
	return w.shape
}
