package kube

import (
	"net/netip"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// serviceEntry makes one Service row per host, with all addresses on it, and one Endpoints row per
// host unless it selects workloads. Row keys are "ServiceEntry/namespace/name/host".
func (c *Converter) serviceEntry(o Object, se *ServiceEntry, look Lookup) (res Result) {
	if se.Spec == nil {
		res.problem("it has no spec")
		return res
	}
	e := &entry{Converter: c, o: o, se: se, spec: se.Spec, look: look, res: &res}
	e.resolution = e.resolve()
	e.ports = e.entryPorts()
	e.prefixes = e.specAddresses()
	e.endpoints, e.leftOut = e.inline()
	hosts := map[string]bool{}
	for _, h := range e.spec.Hosts {
		host := strings.ToLower(strings.TrimSuffix(h, "."))
		switch err := validHost(host); {
		case err != nil:
			res.problem("host is left out: %v", err)
		case !hosts[host]:
			hosts[host] = true
			e.host(host)
		}
	}
	if len(e.spec.Hosts) == 0 {
		res.problem("it has no hosts")
	}
	return res
}

type entry struct {
	*Converter
	o          Object
	se         *ServiceEntry
	spec       *networking.ServiceEntry
	look       Lookup
	res        *Result
	resolution model.Resolution
	ports      []model.Port
	prefixes   []netip.Prefix
	endpoints  []model.Endpoint // inline, the same for every host; Source is set per host
	leftOut    []model.LeftOut
}

func (e *entry) resolve() model.Resolution {
	switch e.spec.Resolution {
	case networking.ServiceEntry_NONE:
		return model.Passthrough
	case networking.ServiceEntry_STATIC:
		return model.ClientSideLB
	case networking.ServiceEntry_DNS:
		return model.DNSLB
	case networking.ServiceEntry_DNS_ROUND_ROBIN:
		return model.DNSRoundRobin
	case networking.ServiceEntry_DYNAMIC_DNS:
		return model.DynamicDNS
	}
	e.res.problem("resolution %d is not known: NONE is assumed", e.spec.Resolution)
	return model.Passthrough
}

func (e *entry) entryPorts() []model.Port {
	var out []model.Port
	names, numbers := map[string]bool{}, map[uint16]bool{}
	for _, p := range e.spec.Ports {
		if p == nil {
			continue
		}
		n, ok := portNumber(int64(p.Number))
		switch {
		case !ok:
			e.res.problem("port %d is left out: it must be 1 to 65535", p.Number)
			continue
		case names[p.Name] || numbers[n]:
			e.res.problem("port %d is left out: its name or number is taken", p.Number)
			continue
		}
		names[p.Name], numbers[n] = true, true
		port := model.Port{Name: p.Name, Number: n, Protocol: e.protocol(p)}
		if t, ok := portNumber(int64(p.TargetPort)); !ok && p.TargetPort != 0 {
			e.res.problem("targetPort %d of port %d is ignored: it must be 1 to 65535", p.TargetPort, n)
		} else if t != n {
			port.TargetPort = t
		}
		out = append(out, port)
	}
	return out
}

func (e *entry) protocol(p *networking.ServicePort) model.Protocol {
	proto, ok := model.ParseProtocol(strings.ToLower(p.Protocol))
	if !ok && p.Protocol != "" {
		e.res.problem("protocol %q of port %d is not known: proxies detect it", clip(p.Protocol), p.Number)
	}
	return proto
}

// host makes the rows of one host.
func (e *entry) host(host string) {
	svc := &model.Service{
		Host: host, Namespace: e.o.Ref.Namespace, Name: host, Ports: e.ports, Addresses: e.prefixes,
		Resolution: e.resolution, External: e.spec.Location == networking.ServiceEntry_MESH_EXTERNAL,
		ExportTo: trimmed(e.spec.ExportTo), ServiceAccounts: slices.Clone(e.spec.SubjectAltNames),
		Labels: model.Labels(e.se.Meta.Labels), Created: e.se.Meta.CreationTimestamp.Time, Generation: e.se.Meta.Generation, Source: e.source(e.o),
	}
	if svc.AutoAddress = e.autoAddress(host); svc.AutoAddress {
		svc.Automatic = e.allocated(host)
	}
	svc.Traffic = trafficAnnotation(e.se.Meta.Annotations[annotationTraffic])
	key := e.o.Ref.String() + "/" + host
	if sel := e.spec.WorkloadSelector; sel != nil {
		svc.Selector = model.Selector{Labels: model.Labels(sel.Labels), Reach: model.AnyCluster, Pods: true}
	}
	e.res.row(key, svc)
	if row := e.hostEndpoints(host, svc.Source); row != nil {
		e.res.row(key, row)
	}
}

func trafficAnnotation(s string) model.TrafficDistribution {
	switch s {
	case "PreferClose", "PreferSameZone":
		return model.TrafficPreferSameZone
	case "PreferSameNode":
		return model.TrafficPreferSameNode
	}
	return model.TrafficAny
}

func trimmed(in []string) []string {
	var out []string
	for _, s := range in {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	return out
}

func (e *entry) specAddresses() []netip.Prefix {
	var out []netip.Prefix
	seen := map[netip.Prefix]bool{}
	for _, a := range e.spec.Addresses {
		p, err := parsePrefix(a)
		if err != nil {
			e.res.problem("address %q is left out: %v", clip(a), err)
			continue
		}
		if !seen[p] {
			seen[p] = true
			out = append(out, p)
		}
	}
	return out
}

// autoAddress reports whether a host is given an address: its entry states none and does not forbid it, connections to it
// do not go to where a client resolved it anyway, and there is a name to resolve (automatic addresses of Istio).
func (e *entry) autoAddress(host string) bool {
	return len(e.spec.Addresses) == 0 && e.resolution != model.Passthrough && !strings.HasPrefix(host, "*") &&
		!strings.EqualFold(e.se.Meta.Labels[labelAutoAddress], "false") &&
		slices.ContainsFunc(e.ports, func(p model.Port) bool { return p.Protocol != model.ProtocolUDP })
}

// allocated are the addresses that a controller has allocated to the host and written into the entry's status.
func (e *entry) allocated(host string) (addrs []netip.Addr) {
	seen := map[netip.Addr]bool{}
	for _, a := range e.se.Status.GetAddresses() {
		ip, err := parseIP(a.GetValue())
		if err != nil || a.GetHost() != "" && !strings.EqualFold(a.GetHost(), host) || seen[ip] {
			continue
		}
		seen[ip] = true
		addrs = append(addrs, ip)
	}
	return addrs
}

func parsePrefix(s string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		if p.Addr().Is4In6() {
			return netip.Prefix{}, errNoUnicast
		}
		return p.Masked(), nil
	}
	ip, err := parseIP(s)
	if err != nil {
		return netip.Prefix{}, err
	}
	return netip.PrefixFrom(ip, ip.BitLen()), nil
}

func (e *entry) hostEndpoints(host string, src model.Source) *model.Endpoints {
	row := &model.Endpoints{Host: host, Namespace: e.o.Ref.Namespace, LeftOut: e.leftOut, Source: src}
	row.Endpoints = slices.Clone(e.endpoints)
	if e.resolution.IsDNS() && e.spec.WorkloadSelector == nil && len(e.spec.Endpoints) == 0 {
		e.itself(host, row)
	}
	if e.resolution == model.DNSRoundRobin {
		firstPerPort(row)
	}
	for i := range row.Endpoints {
		row.Endpoints[i].Source = &row.Source
	}
	if len(row.Endpoints)+len(row.LeftOut) == 0 {
		return nil
	}
	return row
}

// itself makes the host its own endpoint: a DNS entry without endpoints.
func (e *entry) itself(host string, row *model.Endpoints) {
	a := model.Addr{Cluster: e.Shard.Cluster, Host: host}
	if strings.HasPrefix(host, "*") {
		row.LeftOut = append(slices.Clip(row.LeftOut), model.LeftOut{Addr: a, Reason: model.ReasonInvalid,
			Detail: "a wildcard can't be resolved: list endpoints, or use resolution NONE or DYNAMIC_DNS", Source: row.Source})
		return
	}
	for _, p := range e.ports {
		a.AddrPort = netip.AddrPortFrom(netip.Addr{}, target(p))
		row.Endpoints = append(row.Endpoints, model.Endpoint{Addr: a, PortName: p.Name, Health: model.Healthy, TLSMode: model.TLSDisabled,
			Labels: e.augmented(nil, model.Locality{}, "", "")})
	}
}

func target(p model.Port) uint16 {
	if p.TargetPort != 0 {
		return p.TargetPort
	}
	return p.Number
}

// firstPerPort keeps what DNS_ROUND_ROBIN can use: one endpoint per port.
func firstPerPort(row *model.Endpoints) {
	seen := map[string]bool{}
	kept := row.Endpoints[:0]
	row.LeftOut = slices.Clip(row.LeftOut)
	for _, ep := range row.Endpoints {
		if !seen[ep.PortName] {
			seen[ep.PortName] = true
			kept = append(kept, ep)
			continue
		}
		row.LeftOut = append(row.LeftOut, model.LeftOut{Addr: ep.Addr, Port: ep.PortName, Reason: model.ReasonDuplicate,
			Detail: "resolution DNS_ROUND_ROBIN uses the first endpoint only", Source: row.Source})
	}
	row.Endpoints = kept
}
