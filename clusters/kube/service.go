package kube

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// service makes the row of a Service, and for an ExternalName one endpoint per port.
//
// An ExternalName is a service outside the mesh whose proxies resolve the external name themselves
// (DNSLB). Its port is dialed: to Kubernetes it is an alias in DNS, without regard to ports, and Istio does
// not look at targetPort either. AliasOf is for the services of that name that there may be.
func (c *Converter) service(o Object, s *corev1.Service, look Lookup) (res Result) {
	svc := &model.Service{
		Host: c.host(s.Namespace, s.Name), Namespace: s.Namespace, Name: s.Name,
		Selector:        model.Selector{Labels: model.Labels(s.Spec.Selector), Reach: model.SameCluster},
		ExportTo:        list(s.Annotations[annotationExportTo]),
		ServiceAccounts: c.accounts(s, look),
		NodeLocal:       nodeLocal(s.Spec.InternalTrafficPolicy),
		PublishNotReady: s.Spec.PublishNotReadyAddresses,
		Persistent:      s.Labels[labelPersistentSession] != "",
		Labels:          model.Labels(s.Labels), Created: s.CreationTimestamp.Time, Source: c.source(o),
	}
	svc.Ports = servicePorts(s.Spec.Ports, &res)
	svc.Exposed = c.exposed(s, look, &res)
	checkGateway(svc, &res)
	svc.Traffic = c.traffic(s, look, &res)
	switch {
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		c.externalName(o, s, svc, &res)
	case s.Spec.ClusterIP == corev1.ClusterIPNone || slices.Contains(s.Spec.ClusterIPs, corev1.ClusterIPNone):
		svc.Resolution = model.Passthrough
	default:
		svc.Addresses = clusterIPs(s, &res)
	}
	res.row(o.Ref.String(), svc)
	c.clusterSet(o, svc, look, &res)
	return res
}

// checkGateway tells of an east-west gateway that names a port which it does not have, or has none that is of use here.
func checkGateway(s *model.Service, res *Result) {
	network, label := s.Labels[labelNetwork], s.Labels[labelGatewayPort]
	has := func(port string) bool {
		return slices.ContainsFunc(s.Ports, func(p model.Port) bool { return strconv.Itoa(int(p.Number)) == port })
	}
	switch {
	case network == "":
	case label != "" && !has(label):
		res.problem("label %s: %q is not a port of it, so nothing is reached through it in network %s", labelGatewayPort, clip(label), clip(network))
	case label == "" && !has(strconv.Itoa(eastWestPort)) && has(strconv.Itoa(model.HBONEPort)):
		res.problem("it is no gateway of network %q: it has port %d and not %d (label %s names another), so %s",
			clip(network), model.HBONEPort, eastWestPort, labelGatewayPort, hboneAlone)
	}
}

func nodeLocal(p *corev1.ServiceInternalTrafficPolicy) bool {
	return p != nil && *p == corev1.ServiceInternalTrafficPolicyLocal
}

func servicePorts(ports []corev1.ServicePort, res *Result) []model.Port {
	var out []model.Port
	names := map[string]bool{}
	for _, p := range ports {
		n, ok := portNumber(int64(p.Port))
		switch {
		case !ok:
			res.problem("port %d is left out: it must be 1 to 65535", p.Port)
			continue
		case p.Protocol == corev1.ProtocolSCTP:
			res.problem("port %d is left out: proxies do not carry SCTP", p.Port)
			continue
		case names[p.Name]:
			res.problem("port %d is left out: its name %q is taken", p.Port, p.Name)
			continue
		}
		names[p.Name] = true
		port := model.Port{Name: p.Name, Number: n, Protocol: portProtocol(p.Port, p.Name, p.Protocol, p.AppProtocol)}
		setTarget(&port, p, res)
		out = append(out, port)
	}
	return out
}

func setTarget(port *model.Port, p corev1.ServicePort, res *Result) {
	if p.TargetPort.StrVal != "" {
		port.TargetName = p.TargetPort.StrVal
		return
	}
	if p.TargetPort.IntVal == 0 || p.TargetPort.IntVal == p.Port {
		return
	}
	n, ok := portNumber(int64(p.TargetPort.IntVal))
	if !ok {
		res.problem("targetPort %d of port %d is ignored: it must be 1 to 65535", p.TargetPort.IntVal, p.Port)
		return
	}
	port.TargetPort = n
}

// clusterIPs are the virtual addresses: all of them if there are several.
func clusterIPs(s *corev1.Service, res *Result) []netip.Prefix {
	ips := s.Spec.ClusterIPs
	if len(ips) == 0 && s.Spec.ClusterIP != "" {
		ips = []string{s.Spec.ClusterIP}
	}
	var out []netip.Prefix
	for _, s := range ips {
		if s == "" {
			continue
		}
		ip, err := parseIP(s)
		if err != nil {
			res.problem("cluster IP %q is left out: %v", clip(s), err)
			continue
		}
		out = append(out, netip.PrefixFrom(ip, ip.BitLen()))
	}
	return out
}

func (c *Converter) accounts(s *corev1.Service, look Lookup) []string {
	out := list(s.Annotations[annotationCanonicalSAs])
	for _, sa := range list(s.Annotations[annotationKubeSAs]) {
		out = append(out, c.spiffe(s.Namespace, sa, look))
	}
	return out
}

// traffic reads the field, then the Service's annotation, then the Namespace's.
func (c *Converter) traffic(s *corev1.Service, look Lookup, res *Result) model.TrafficDistribution {
	word := ""
	if s.Spec.TrafficDistribution != nil {
		word = *s.Spec.TrafficDistribution
	}
	if word == "" {
		word = s.Annotations[annotationTraffic]
	}
	if word == "" {
		if ns := look.Namespace(s.Namespace); ns != nil {
			word = ns.Traffic
		}
	}
	return trafficWord(word, res)
}

func trafficWord(word string, res *Result) model.TrafficDistribution {
	switch word {
	case "", "Any":
		return model.TrafficAny
	case corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone:
		return model.TrafficPreferSameZone
	case corev1.ServiceTrafficDistributionPreferSameNode:
		return model.TrafficPreferSameNode
	}
	res.problem("traffic distribution %q is not known and has no effect: use PreferSameZone or PreferSameNode", clip(word))
	return model.TrafficAny
}

func (c *Converter) externalName(o Object, s *corev1.Service, svc *model.Service, res *Result) {
	svc.Resolution, svc.External, svc.Selector = model.DNSLB, true, model.Selector{}
	if err := validDNS(s.Spec.ExternalName); err != nil {
		res.problem("externalName: %v", err)
		return
	}
	svc.AliasOf = strings.ToLower(strings.TrimSuffix(s.Spec.ExternalName, "."))
	row := &model.Endpoints{Host: svc.Host, Namespace: svc.Namespace, Source: svc.Source}
	for _, p := range svc.Ports {
		row.Endpoints = append(row.Endpoints, model.Endpoint{
			Addr:     model.Addr{Cluster: c.Shard.Cluster, Host: s.Spec.ExternalName, AddrPort: netip.AddrPortFrom(netip.Addr{}, p.Number)},
			PortName: p.Name, Health: model.Healthy, TLSMode: model.TLSDisabled, Source: &row.Source,
		})
	}
	if len(row.Endpoints) > 0 {
		res.row(o.Ref.String(), row)
	}
}
