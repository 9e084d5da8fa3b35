package health

import (
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

func virtualServices(pc *pushcontext.PushContext) int {
	n := 0
	for _, c := range pc.Configs {
		if c.Kind == "VirtualService" {
			n++
		}
	}
	return n
}

func emptyPorts(pc *pushcontext.PushContext) int {
	return empty(pc, func(r model.Resolution) bool { return r == model.ClientSideLB })
}

func emptyNames(pc *pushcontext.PushContext) int { return empty(pc, model.Resolution.IsDNS) }

// empty counts the ports without endpoints of services of some resolutions.
func empty(pc *pushcontext.PushContext, of func(model.Resolution) bool) int {
	n := 0
	for s := range pc.Services() {
		if !of(s.Shape.Resolution) {
			continue
		}
		for _, p := range s.Shape.Ports {
			if p.Protocol != model.ProtocolUDP && len(s.Port(p.Name)) == 0 {
				n++
			}
		}
	}
	return n
}

func notReady(pc *pushcontext.PushContext) int {
	n := 0
	for s := range pc.Services() {
		for _, p := range s.Endpoints {
			for _, l := range p.Localities {
				for _, e := range l.Endpoints {
					if e.Health == model.Unhealthy {
						n++
					}
				}
			}
		}
	}
	return n
}

func withoutPod(pc *pushcontext.PushContext) int {
	n := 0
	for s := range pc.Services() {
		for _, x := range s.LeftOut {
			if x.Reason == model.ReasonPodUnknown {
				n++
			}
		}
	}
	return n
}

func pendingPods(pc *pushcontext.PushContext) int {
	pending := map[model.InstanceKey]struct{}{}
	for s := range pc.Services() {
		for _, x := range s.LeftOut {
			if x.Reason == model.ReasonPodUnknown {
				pending[model.InstanceKey{Cluster: x.Addr.Cluster, IP: x.Addr.AddrPort.Addr()}] = struct{}{}
			}
		}
	}
	return len(pending)
}

// inboundConflicts counts for each workload the ports on which the kinds of protocol differ.
func inboundConflicts(pc *pushcontext.PushContext) int {
	known := map[*pushcontext.TargetsView]int{}
	n := 0
	for _, i := range pc.Instances() {
		c, ok := known[i.Targets]
		if !ok {
			c = disputed(i.Targets.Targets)
			known[i.Targets] = c
		}
		n += c
	}
	return n
}

// disputed counts the ports that targets, sorted by port, give different kinds of protocol.
func disputed(targets []pushcontext.Target) int {
	ports := map[uint16]struct{}{}
	kinds := map[uint16]int{}
	for _, t := range targets {
		if t.Protocol == model.ProtocolUDP || t.Endpoint == 0 {
			continue
		}
		if k, ok := kinds[t.Endpoint]; ok && k != kindOf(t.Protocol) {
			ports[t.Endpoint] = struct{}{}
		}
		kinds[t.Endpoint] = kindOf(t.Protocol)
	}
	return len(ports)
}

// kindOf tells apart what proxies serve in different ways.
func kindOf(p model.Protocol) int {
	switch {
	case p.IsHTTP():
		return 1
	case p.IsTCP():
		return 2
	}
	return 0
}
