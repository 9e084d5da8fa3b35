package main

import (
	"context"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/bootstrap"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/evaluate"
)

// hostsMeant are the hosts that a short name may stand for in a namespace, as a resolver in a pod of it has them.
func hostsMeant(name, namespace, suffix string) []string {
	return []string{
		strings.TrimSuffix(name, "."), name + "." + namespace + ".svc." + suffix, name + ".svc." + suffix, name + "." + suffix,
	}
}

// renderedProxy is a proxy of 'isthmus render'.
type renderedProxy struct {
	read  *offline
	proxy *proxyNode
	sent  *evaluate.Config
}

func (p *renderedProxy) config() *evaluate.Config { return p.sent }

func (p *renderedProxy) trusted() error { return p.read.trusted() }

// resolve implements proxySource.
func (p *renderedProxy) resolve(t target, inbound bool) reached {
	if inbound || p.proxy.router {
		in := p.read.pc.Instance(model.InstanceKey{Cluster: model.ClusterID(p.proxy.cluster), IP: p.proxy.ip})
		return reached{addr: p.proxy.ip, port: endpointPort(in, t.port)}
	}
	if ip, err := netip.ParseAddr(t.host); err == nil {
		return reached{addr: ip, port: t.port}
	}
	out := reached{addr: nowhere, port: t.port}
	if !p.sent.Intercepts() {
		out.addr = listensAt(p.proxy.ip)
	}
	_, namespace, _ := cutLast(p.proxy.id, ".")
	for _, host := range hostsMeant(t.host, namespace, p.read.opts.domain) {
		v := p.read.pc.Host(host)
		if v == nil {
			continue
		}
		s := v.Resolve(&pushcontext.Reader{Cluster: model.ClusterID(p.proxy.cluster), Namespace: namespace, Scope: p.read.pc.ScopeOf(p.scope())})
		if s == nil {
			continue
		}
		if out.host == "" {
			out.host = host
			for _, port := range s.Shape.Ports {
				out.ports = append(out.ports, port.Number)
			}
		}
		if !p.sent.Intercepts() {
			break
		}
		if s.Shape.AutoAddresses && p.proxy.node.Metadata.GetFields()["DNS_CAPTURE"].GetStringValue() != "true" {
			continue
		}
		all := map[string][]string{}
		for cluster, list := range s.Shape.Addresses {
			for _, a := range list {
				all[string(cluster)] = append(all[string(cluster)], a.String())
			}
		}
		if ip, ok := addressFor(all, p.proxy.cluster); ok {
			out.addr = ip
			break
		}
	}
	return out
}

func (p *renderedProxy) router() bool { return p.proxy.router }

// gateways implements proxySource.
func (p *renderedProxy) gateways(context.Context) ([]debug.GatewayServer, error) {
	class, err := p.read.xds.ClassOf(p.proxy.node)
	if err != nil {
		return nil, err
	}
	return debug.Gateways(p.read.pc, class), nil
}

// strict implements proxySource.
func (p *renderedProxy) strict(at netip.AddrPort) (by *model.ObjectKey, demanded bool) {
	for s := range p.read.pc.Services() {
		for _, port := range s.Shape.Ports {
			for _, l := range s.Port(port.Name) {
				for _, e := range l.Endpoints {
					if e.Addr.AddrPort.Addr() != at.Addr() || string(e.Addr.Cluster) != p.proxy.cluster {
						continue
					}
					if e.Addr.AddrPort.Port() == at.Port() {
						if e.MTLSSource != nil && e.MTLS == model.MTLSStrict {
							by = &e.MTLSSource.Object
						}
						return by, e.MTLS == model.MTLSStrict
					}
					demanded = demanded || e.OtherMTLS == model.MTLSStrict
				}
			}
		}
	}
	return nil, demanded
}

// scope is what Sidecars are asked about the proxy.
func (p *renderedProxy) scope() pushcontext.ScopeKey {
	labels := model.Labels{}
	for k, v := range p.proxy.node.Metadata.GetFields()["LABELS"].GetStructValue().GetFields() {
		labels[k] = v.GetStringValue()
	}
	_, namespace, _ := cutLast(p.proxy.id, ".")
	return pushcontext.ScopeKey{Namespace: namespace, Labels: labels, Router: p.proxy.router}
}

// addressFor gives the first address that a service has in a cluster or, if it has none there, in another.
func addressFor(all map[string][]string, cluster string) (netip.Addr, bool) {
	for _, id := range append([]string{cluster}, slices.Sorted(maps.Keys(all))...) {
		for _, text := range all[id] {
			if p, err := netip.ParsePrefix(text); err == nil {
				return p.Addr(), true
			}
			if ip, err := netip.ParseAddr(text); err == nil {
				return ip, true
			}
		}
	}
	return netip.Addr{}, false
}

// endpointPort is the port at which a workload takes what is sent to a port of its service.
func endpointPort(in *pushcontext.InstanceView, port uint16) uint16 {
	if in == nil || in.Targets == nil {
		return port
	}
	for _, t := range in.Targets.Targets {
		if t.Port == port {
			return t.Endpoint
		}
	}
	return port
}

// hubProxy is a proxy that is connected to a hub.
type hubProxy struct {
	view     *view
	proxy    debug.Proxy
	services []debug.Service
	sent     *evaluate.Config
}

func (p *hubProxy) config() *evaluate.Config { return p.sent }

func (p *hubProxy) trusted() error { return nil } // 'isthmus findings' tells

// ofHub asks a hub for what a proxy is sent, and for the addresses of services.
func (k *routeExplain) ofHub(ctx context.Context) (proxySource, error) {
	q := url.Values{"proxyID": {k.proxy}}
	if k.cluster != "" {
		q.Set("cluster", k.cluster)
	}
	raw, err := k.get(ctx, "/debug/config_dump", q)
	if err != nil {
		return nil, err
	}
	p := &hubProxy{view: &k.view}
	if p.sent, err = dumped(raw); err != nil {
		return nil, err
	}
	if raw, err = k.get(ctx, "/debug/connections", nil); err != nil {
		return nil, err
	}
	list, err := decodeAnswer[[]debug.Proxy](raw)
	if err != nil {
		return nil, err
	}
	for _, x := range list {
		if (x.Name == k.proxy || x.NodeID == k.proxy || x.ConnectionID == k.proxy) && (k.cluster == "" || x.Cluster == k.cluster) {
			p.proxy = x
		}
	}
	if raw, err = k.get(ctx, "/debug/registryz", nil); err != nil {
		return nil, err
	}
	p.services, err = decodeAnswer[[]debug.Service](raw)
	return p, err
}

// resolve implements proxySource. Of several services with one host, that of the proxy's namespace comes first.
func (p *hubProxy) resolve(t target, inbound bool) reached {
	own := nowhere
	if parts := strings.Split(p.proxy.NodeID, "~"); len(parts) == 4 {
		if ip, err := netip.ParseAddr(parts[1]); err == nil {
			own = ip
		}
	}
	if (inbound || p.router()) && own != nowhere {
		return reached{addr: own, port: t.port}
	}
	if ip, err := netip.ParseAddr(t.host); err == nil {
		return reached{addr: ip, port: t.port}
	}
	out := reached{addr: nowhere, port: t.port}
	if !p.sent.Intercepts() {
		out.addr = listensAt(own)
	}
	suffix := "cluster.local"
	if parts := strings.SplitN(p.proxy.NodeID, ".svc.", 2); len(parts) == 2 {
		suffix = parts[1]
	}
	for _, host := range hostsMeant(t.host, p.proxy.Namespace, suffix) {
		for _, own := range []bool{true, false} {
			for _, s := range p.services {
				if s.Hostname != host || own != (s.Namespace == p.proxy.Namespace) {
					continue
				}
				if out.host == "" {
					out.host = host
					for _, port := range s.Ports {
						out.ports = append(out.ports, port.Port)
					}
				}
				if !p.sent.Intercepts() {
					return out
				}
				if ip, ok := addressFor(s.Addresses, p.proxy.Cluster); ok {
					out.addr = ip
					return out
				}
			}
		}
	}
	return out
}

func (p *hubProxy) router() bool { return p.proxy.Type == bootstrap.Router }

// strict implements proxySource: a hub does not say who demands it.
func (p *hubProxy) strict(netip.AddrPort) (*model.ObjectKey, bool) { return nil, false }

// gateways implements proxySource.
func (p *hubProxy) gateways(ctx context.Context) ([]debug.GatewayServer, error) {
	raw, err := p.view.get(ctx, "/debug/gateways", url.Values{"proxyID": {p.proxy.ConnectionID}})
	if err != nil {
		return nil, err
	}
	return decodeAnswer[[]debug.GatewayServer](raw)
}
