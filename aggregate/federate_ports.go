package aggregate

import (
	"slices"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// saying is what a source says to speak at a port of the service: the object, or else the registry.
type saying struct {
	part     uint16
	port     string
	protocol model.Protocol
}

// speak settles the protocols of the ports of which the object says none, by what is first known of a source's; and says which sources
// say another protocol than the service's.
func (f *federation) speak(s *pushcontext.ShapeView, said []saying, states []pushcontext.SourceState) {
	for i := range s.Ports {
		p := &s.Ports[i]
		of := slices.DeleteFunc(slices.Clone(said), func(x saying) bool { return x.port != p.Name })
		first := slices.IndexFunc(of, func(x saying) bool { return x.protocol != model.ProtocolUnknown })
		if first >= 0 && slices.Contains(f.open, p.Name) {
			p.Protocol = of[first].protocol
		}
		for _, x := range of {
			if state := &states[x.part-1]; !alike(x.protocol, p.Protocol) && !slices.Contains(state.Unlike, p.Name) {
				state.Unlike = append(state.Unlike, p.Name)
			}
		}
	}
	for i := range states {
		slices.Sort(states[i].Unlike)
	}
}

// alike reports whether servers of one protocol may be able to read the other.
func alike(p, q model.Protocol) bool {
	a, b := spoken(p), spoken(q)
	return a == b || a == "" || b == ""
}

// spoken is what connections of a protocol begin with, as far as servers of another could not read it; "" if nothing is known.
func spoken(p model.Protocol) string {
	switch {
	case p.IsHTTP2():
		return "HTTP/2"
	case p == model.ProtocolHTTP:
		return "HTTP/1.1"
	case p == model.ProtocolHTTPS || p == model.ProtocolTLS:
		return "TLS"
	}
	return ""
}

// sourcePort gives the port of a source that backs a port of the service, with the protocol that the object says of it: the one that is
// mapped, or else that of the same name, of the same number, or the only one, but for one that is another port of the service and
// is known to speak otherwise.
func sourcePort(mapped map[string]api.SourcePort, p model.Port, ports, all []model.Port) (model.Port, bool) {
	m := mapped[p.Name]
	tests := []func(model.Port) bool{
		func(q model.Port) bool { return q.Name == p.Name },
		func(q model.Port) bool { return samePort(p, q) },
		func(q model.Port) bool {
			another := slices.ContainsFunc(all, func(o model.Port) bool { return o.Name == q.Name || samePort(o, q) })
			return len(ports) == 1 && (m.Protocol != "" || alike(p.Protocol, q.Protocol) || !another)
		},
	}
	switch {
	case m.Name != "":
		tests = []func(model.Port) bool{func(q model.Port) bool { return q.Name == m.Name }}
	case m.Number != 0:
		tests = []func(model.Port) bool{func(q model.Port) bool { return q.Number == m.Number }}
	}
	for _, t := range tests {
		if i := slices.IndexFunc(ports, t); i >= 0 {
			q := ports[i]
			if m.Protocol != "" {
				q.Protocol = federatedProtocol(m.Protocol)
			}
			return q, true
		}
	}
	return model.Port{}, false
}

// instancePort gives the port at which a workload is dialled for a port of the service: the one that is mapped, or else
// the workload's port of that name, of that number, the only one that it has, or, if it names none, that number.
func instancePort(w *model.Workload, mapped map[string]api.SourcePort, p model.Port) (uint16, bool) {
	switch m := mapped[p.Name]; {
	case m.Number != 0:
		return m.Number, true
	case m.Name != "":
		n, ok := w.Ports[m.Name]
		return n, ok
	}
	if n, ok := w.Ports[p.Name]; ok {
		return n, true
	}
	first := true
	for _, n := range w.Ports {
		switch {
		case n == p.Number:
			return n, true
		case len(w.Ports) == 1:
			return n, true
		}
		first = false
	}
	return p.Number, first
}
