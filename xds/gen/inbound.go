package gen

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// inboundPort is one port that the workload listens on, and the service ports behind it.
type inboundPort struct {
	number   uint16
	protocol model.Protocol
	mtls     model.MTLS
	targets  []pushcontext.Target
	tls      *networking.ServerTLSSettings // that an ingress listener ends; nil for none
}

// inboundPorts groups what a workload serves by port. Where services disagree on the protocol, it is
// detected: that serves each of them.
func inboundPorts(v *pushcontext.TargetsView) []inboundPort {
	var out []inboundPort
	for _, t := range v.Targets {
		if t.Protocol == model.ProtocolUDP || t.Endpoint == 0 {
			continue
		}
		if n := len(out); n == 0 || out[n-1].number != t.Endpoint {
			out = append(out, inboundPort{number: t.Endpoint, protocol: t.Protocol, mtls: t.MTLS})
		}
		p := &out[len(out)-1]
		p.targets = append(p.targets, t)
		p.protocol = common(p.protocol, t.Protocol)
	}
	return out
}

// common is the protocol that serves both.
func common(a, b model.Protocol) model.Protocol {
	switch {
	case a == b:
		return a
	case a.IsHTTP() && b.IsHTTP():
		return model.ProtocolHTTP
	case a.IsTCP() && b.IsTCP():
		return model.ProtocolTCP
	}
	return model.ProtocolUnknown
}

// servicePort is that of the first service; without any, the port itself.
func (p inboundPort) servicePort() uint16 {
	if len(p.targets) == 0 {
		return p.number
	}
	return p.targets[0].Port
}

func (p inboundPort) services() []serviceRef {
	var out []serviceRef
	for _, t := range p.targets {
		r := serviceRef{t.Host, t.Name, t.Namespace}
		if n := len(out); n == 0 || out[n-1] != r {
			out = append(out, r)
		}
	}
	return out
}
