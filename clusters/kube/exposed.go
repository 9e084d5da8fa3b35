package kube

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// exposed lists where a Service is reached from outside its member: the addresses of its load balancer,
// and its external IPs whatever its type. One of type NodePort that has none of those, and whose annotation
// traffic.istio.io/nodeSelector (a JSON map of labels) asks for it, is reached at the external addresses
// of the nodes with those labels, by its node ports; Istio takes one address of a node, here all count,
// so that both address families are served.
func (c *Converter) exposed(s *corev1.Service, look Lookup, res *Result) []model.Exposure {
	var out []model.Exposure
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		for _, in := range s.Status.LoadBalancer.Ingress {
			out = exposeAt(out, "load balancer's address", in.IP, in.Hostname, res)
		}
	}
	for _, ip := range s.Spec.ExternalIPs {
		out = exposeAt(out, "external IP", ip, "", res)
	}
	if len(out) == 0 && s.Spec.Type == corev1.ServiceTypeNodePort {
		return c.nodePorts(s, look, res)
	}
	return out
}

// maxExposures is how many addresses of one Service count.
const maxExposures = 256

// exposeAt adds an address: the IP, else the name.
func exposeAt(out []model.Exposure, what, ip, host string, res *Result) []model.Exposure {
	var at model.Exposure
	switch {
	case ip != "":
		addr, err := parseIP(ip)
		if err != nil {
			res.problem("%s %q is left out: %v", what, clip(ip), err)
			return out
		}
		at.IP = addr
	case host != "":
		if err := validDNS(host); err != nil {
			res.problem("%s is left out: %v", what, err)
			return out
		}
		at.Host = strings.ToLower(strings.TrimSuffix(host, "."))
	default:
		return out
	}
	if slices.ContainsFunc(out, func(e model.Exposure) bool { return e.IP == at.IP && e.Host == at.Host }) {
		return out
	}
	if len(out) == maxExposures {
		res.problem("%s is left out: no more than %d addresses count", what, maxExposures)
		return out
	}
	return append(out, at)
}

func (c *Converter) nodePorts(s *corev1.Service, look Lookup, res *Result) []model.Exposure {
	text, asked := s.Annotations[annotationNodeSelector]
	if !asked {
		return nil
	}
	var selector model.Labels
	if text != "" {
		if err := json.Unmarshal([]byte(text), &selector); err != nil {
			reason, _ := Reason(err)
			res.problem("annotation %s has no effect: a JSON map of labels is needed: %s", annotationNodeSelector, reason)
			return nil
		}
	}
	ports := nodePortMap(s.Spec.Ports)
	if len(ports) == 0 {
		res.problem("annotation %s has no effect: no port has a node port", annotationNodeSelector)
		return nil
	}
	ips := look.NodeAddresses(selector)
	if len(ips) == 0 {
		res.problem("annotation %s selects no node that has an external IP", annotationNodeSelector)
	}
	return exposures(ips, ports)
}

func exposures(ips []netip.Addr, ports map[uint16]uint16) []model.Exposure {
	var out []model.Exposure
	for _, ip := range ips {
		out = append(out, model.Exposure{IP: ip, Ports: ports})
	}
	return out
}

// nodePortMap gives node ports by service port. Of two ports with one number the one that is not UDP counts.
func nodePortMap(ports []corev1.ServicePort) map[uint16]uint16 {
	out := map[uint16]uint16{}
	for _, p := range ports {
		n, ok := portNumber(int64(p.Port))
		at, exposed := portNumber(int64(p.NodePort))
		if _, taken := out[n]; !ok || !exposed || p.Protocol == corev1.ProtocolSCTP || taken && p.Protocol == corev1.ProtocolUDP {
			continue
		}
		out[n] = at
	}
	return out
}
