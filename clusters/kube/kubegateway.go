package kube

import (
	"slices"
	"strconv"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

const (
	// classRemote is the GatewayClass of Gateways that stand for gateways elsewhere.
	classRemote = "istio-remote"
	// listenerOption marks a listener that forwards mutual TLS by server name.
	listenerOption  = "gateway.istio.io/listener-protocol"
	autoPassthrough = "auto-passthrough"
	// eastWestPort is the port of east-west gateways.
	eastWestPort = model.EastWestPort
	// protocolHBONE is that of a listener of an ambient gateway.
	protocolHBONE = "HBONE"
	// hboneAlone tells of a gateway that nobody here can use.
	hboneAlone = "it speaks HBONE alone, which proxies here do not: to them it is as if it were not there"
	// The Gateway API allows as many addresses and listeners.
	maxAddresses = 16
	maxListeners = 64
	// kindNotServedGateway tells Gateways of the Gateway API apart where objects are counted by kind.
	kindNotServedGateway = "Gateway.gateway.networking.k8s.io"
)

// kubernetesGateway makes the row of a Gateway of the Kubernetes Gateway API whose label names a
// network: it is entered at each of its addresses by each listener that forwards mutual TLS. Those for HBONE are told, and used by
// nobody. Other Gateways are not served yet.
//
// The addresses are those of its status, else those of its spec, as a Gateway that nobody deploys has
// no status. Without any it is a gateway that can't be dialled: its network is another one all the same. Istio reads the spec alone, and keeps what it found when the label is gone.
func (c *Converter) kubernetesGateway(o Object, g *gatewayv1.Gateway) (res Result) {
	network := g.Labels[labelNetwork]
	if network == "" || g.Spec.GatewayClassName == classRemote && !c.ConfigCluster {
		res.row(o.Ref.String(), c.notServed(o, kindNotServedGateway))
		return res
	}
	if len(g.Status.Addresses) > maxAddresses || len(g.Spec.Addresses) > maxAddresses || len(g.Spec.Listeners) > maxListeners {
		res.problem("it is not read: it has more than %d addresses or %d listeners", maxAddresses, maxListeners)
		res.row(o.Ref.String(), c.notServed(o, kindNotServedGateway))
		return res
	}
	hosts, ports, hbone := gatewayHosts(g, &res), gatewayPorts(g, &res), hbonePorts(g)
	if len(hosts) == 0 {
		res.problem("network %q can't be entered by it yet: it has no address", clip(network))
	}
	if len(ports) == 0 {
		res.problem("it is no gateway of network %q: it has no TLS listener on port %d (label %s names another) or with the option %s: %s",
			clip(network), eastWestPort, labelGatewayPort, listenerOption, autoPassthrough)
		if len(hbone) > 0 {
			res.problem(hboneAlone)
		}
	}
	if len(ports) == 0 && (len(hbone) == 0 || len(hosts) == 0) {
		res.row(o.Ref.String(), c.notServed(o, kindNotServedGateway))
		return res
	}
	res.row(o.Ref.String(), &model.Config{
		Kind: model.ConfigNetworkGateway, Namespace: o.Ref.Namespace, Name: o.Ref.Name,
		Spec: &model.NetworkGateway{Network: network, Addrs: crossed(hosts, ports, hbone)}, Created: g.CreationTimestamp.Time, Source: c.source(o),
	})
	return res
}

// gatewayHosts are the addresses, without ports.
func gatewayHosts(g *gatewayv1.Gateway, res *Result) []model.GatewayAddr {
	var out []model.GatewayAddr
	add := func(t *gatewayv1.AddressType, value string) {
		if at, ok := gatewayHost(t, value, res); ok && !slices.Contains(out, at) {
			out = append(out, at)
		}
	}
	for _, a := range g.Status.Addresses {
		add(a.Type, a.Value)
	}
	if len(g.Status.Addresses) > 0 {
		return out
	}
	for _, a := range g.Spec.Addresses {
		add(a.Type, a.Value)
	}
	return out
}

func gatewayHost(t *gatewayv1.AddressType, value string, res *Result) (at model.GatewayAddr, ok bool) {
	switch {
	case value == "":
	case t == nil || *t == gatewayv1.IPAddressType:
		ip, err := parseIP(value)
		if err != nil {
			res.problem("address %q is left out: %v", clip(value), err)
			return at, false
		}
		return model.GatewayAddr{IP: ip}, true
	case *t == gatewayv1.HostnameAddressType:
		if err := validDNS(value); err != nil {
			res.problem("address is left out: %v", err)
			return at, false
		}
		return model.GatewayAddr{Host: strings.ToLower(strings.TrimSuffix(value, "."))}, true
	}
	return at, false
}

// gatewayPorts are the ports of listeners that forward mutual TLS.
func gatewayPorts(g *gatewayv1.Gateway, res *Result) []uint16 {
	usual := uint16(eastWestPort)
	if s := g.Labels[labelGatewayPort]; s != "" {
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil || n == 0 {
			res.problem("label %s: %q is not a port, so %d counts", labelGatewayPort, clip(s), eastWestPort)
		} else {
			usual = uint16(n)
		}
	}
	var out []uint16
	for _, l := range g.Spec.Listeners {
		n, ok := portNumber(int64(l.Port))
		if ok && l.Protocol == gatewayv1.TLSProtocolType && (n == usual || forwards(l)) && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// hbonePorts are the ports of listeners that speak HBONE.
func hbonePorts(g *gatewayv1.Gateway) (out []uint16) {
	for _, l := range g.Spec.Listeners {
		if n, ok := portNumber(int64(l.Port)); ok && l.Protocol == protocolHBONE && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

func forwards(l gatewayv1.Listener) bool {
	return l.TLS != nil && l.TLS.Options[listenerOption] == autoPassthrough
}

func crossed(hosts []model.GatewayAddr, ports, hbone []uint16) []model.GatewayAddr {
	var out []model.GatewayAddr
	for _, at := range hosts {
		for _, n := range ports {
			out = append(out, model.GatewayAddr{IP: at.IP, Host: at.Host, Port: n})
		}
		for _, n := range hbone {
			out = append(out, model.GatewayAddr{IP: at.IP, Host: at.Host, HBONEPort: n})
		}
	}
	return out
}
