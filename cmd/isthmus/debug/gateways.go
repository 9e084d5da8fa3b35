package debug

import (
	"net/http"
	"strings"

	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// GatewayServer is what becomes of one server of a Gateway at a router that the Gateway selects: an element of /debug/gateways.
type GatewayServer struct {
	Gateway  string   `json:"gateway"` // "namespace/name"
	Server   int      `json:"server"`  // place in the Gateway
	Cluster  string   `json:"cluster"` // that the Gateway is read from
	Port     uint32   `json:"port"`
	Protocol string   `json:"protocol"`
	Hosts    []string `json:"hosts"`
	Routes   []string `json:"routes,omitempty"` // VirtualServices that are bound to it, "namespace/name"
	Listener string   `json:"listener,omitempty"`
	Table    string   `json:"routeTable,omitempty"`
	Reason   string   `json:"reason,omitempty"` // why it is not served
}

// gateways answers for one router, in the order in which servers claim ports and hosts: the oldest Gateway first.
func (h *handler) gateways(r *http.Request) (any, error) {
	p, err := h.findProxy(r)
	if err != nil {
		return nil, err
	}
	pc, err := h.snapshot()
	if err != nil {
		return nil, err
	}
	class, _, err := h.Proxies.Audience(p.ConnectionID)
	if err != nil {
		return nil, err
	}
	return Gateways(pc, class), nil
}

// Gateways tells what becomes of each server that selects routers of a class, in the order in which they claim ports and hosts.
func Gateways(pc *pushcontext.PushContext, class gen.Class) []GatewayServer {
	out := []GatewayServer{}
	if pc.Gateways == nil {
		return out
	}
	for _, v := range gen.ExplainGateways(pc.Gateways, class) {
		s := v.Server
		g := GatewayServer{
			Gateway: s.Name(), Server: s.Index, Cluster: string(s.Source.Shard.Cluster), Port: s.Spec.GetPort().GetNumber(), Protocol: strings.ToUpper(s.Spec.GetPort().GetProtocol()),
			Hosts: s.Spec.GetHosts(), Listener: v.Listener, Table: v.Table, Reason: v.Reason,
		}
		for _, b := range s.Bound {
			g.Routes = append(g.Routes, b.Source.Object.Namespace+"/"+b.Source.Object.Name)
		}
		out = append(out, g)
	}
	return out
}
