package kube

import (
	"net/netip"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

func slice(o Object) *discoveryv1.EndpointSlice {
	s, _ := o.Value.(*discoveryv1.EndpointSlice)
	return s
}

// slice makes the row of an EndpointSlice. Candidates that can't be served are kept with a reason.
func (c *Converter) slice(o Object, s *discoveryv1.EndpointSlice, look Lookup) (res Result) {
	name, mirrored := s.Labels[labelMirroredService]
	if !mirrored {
		name = s.Labels[discoveryv1.LabelServiceName]
	}
	if name == "" {
		res.problem("the slice belongs to no service: label it %s", discoveryv1.LabelServiceName)
		return res
	}
	b := &sliceBuilder{
		Converter: c, slice: s, look: look, res: &res, seen: map[seenKey]bool{}, svc: look.Service(s.Namespace, name),
		row: &model.Endpoints{Host: c.host(s.Namespace, name), Namespace: s.Namespace, Source: c.source(o)},
	}
	switch {
	case mirrored:
		b.leaveAll(model.ReasonMirroredSlice, "it is imported from another cluster, which reports it itself")
	case b.svc != nil && b.svc.ExternalName: // left of the time when the service was of another type
		b.leaveAll(model.ReasonNoService, "the service is of type ExternalName, which has no endpoints of its own")
	case s.AddressType == discoveryv1.AddressTypeFQDN:
		b.leaveAll(model.ReasonFQDNSlice, "use addressType IPv4 or IPv6, or a ServiceEntry with resolution DNS")
	default:
		b.ports = b.slicePorts()
		for i := range s.Endpoints {
			b.endpoint(&s.Endpoints[i])
		}
	}
	res.row(o.Ref.String(), b.row)
	if !mirrored {
		c.clusterSetEndpoints(o, b.row, name, look, &res)
	}
	return res
}

type seenKey struct {
	addr netip.AddrPort
	port string
}

type slicePort struct {
	name   string
	number uint16
}

type sliceBuilder struct {
	*Converter
	slice *discoveryv1.EndpointSlice
	look  Lookup
	svc   *ServiceFacts
	ports []slicePort
	seen  map[seenKey]bool
	row   *model.Endpoints
	res   *Result
}

func (b *sliceBuilder) slicePorts() []slicePort {
	var out []slicePort
	for _, p := range b.slice.Ports {
		name := ""
		if p.Name != nil {
			name = *p.Name
		}
		if p.Port == nil {
			b.res.problem("port %q is left out: it has no number", name)
			continue
		}
		n, ok := portNumber(int64(*p.Port))
		if !ok {
			b.res.problem("port %q is left out: %d is not 1 to 65535", name, *p.Port)
			continue
		}
		out = append(out, slicePort{name, n})
	}
	return out
}

func (b *sliceBuilder) leave(address, port string, n uint16, why model.Reason, detail string) {
	a := model.Addr{Cluster: b.Shard.Cluster}
	if ip, err := netip.ParseAddr(address); err == nil {
		a.AddrPort = netip.AddrPortFrom(ip, n)
	} else {
		a.Host, a.AddrPort = address, netip.AddrPortFrom(netip.Addr{}, n)
	}
	b.row.LeftOut = append(b.row.LeftOut, model.LeftOut{Addr: a, Port: port, Reason: why, Detail: detail, Source: b.row.Source})
}

func (b *sliceBuilder) leaveAll(why model.Reason, detail string) {
	for _, e := range b.slice.Endpoints {
		for _, a := range e.Addresses {
			b.leave(a, "", 0, why, detail)
		}
	}
}

func (b *sliceBuilder) endpoint(e *discoveryv1.Endpoint) {
	if len(e.Addresses) == 0 {
		b.leave("", "", 0, model.ReasonInvalid, "the endpoint has no address")
	}
	for _, address := range e.Addresses {
		ip, err := parseIP(address)
		if err != nil {
			b.leave(address, "", 0, model.ReasonInvalid, err.Error())
			continue
		}
		pod, ok := b.pod(e, ip)
		if !ok {
			b.leave(address, "", 0, model.ReasonPodUnknown, "it is served once pod "+e.TargetRef.Name+" is known")
			continue
		}
		b.address(e, ip, pod)
	}
}

// pod finds the pod behind an address: the one that the slice names, else the best guess by IP.
// It reports false if the named pod is not known, or is another pod of that name.
func (b *sliceBuilder) pod(e *discoveryv1.Endpoint, ip netip.Addr) (*PodFacts, bool) {
	t := e.TargetRef
	if t == nil || t.Kind != KindPod {
		if t == nil {
			if pods := b.look.PodsByIP(b.slice.Namespace, ip); len(pods) > 0 {
				return pods[0], true
			}
		}
		return nil, true
	}
	namespace := t.Namespace
	if namespace == "" {
		namespace = b.slice.Namespace
	}
	pod := b.look.Pod(namespace, t.Name)
	if pod == nil || t.UID != "" && pod.UID != "" && pod.UID != string(t.UID) {
		return nil, false
	}
	return pod, true
}

func (b *sliceBuilder) address(e *discoveryv1.Endpoint, ip netip.Addr, pod *PodFacts) {
	if len(b.ports) == 0 {
		b.leave(ip.String(), "", 0, model.ReasonNoPort, "the slice has no usable port")
		return
	}
	t := b.template(e, pod)
	for _, p := range b.ports {
		ap := netip.AddrPortFrom(ip, p.number)
		if key := (seenKey{ap, p.name}); b.seen[key] {
			b.leave(ip.String(), p.name, p.number, model.ReasonDuplicate, "the slice lists it twice")
			continue
		} else {
			b.seen[key] = true
		}
		t.Addr, t.PortName = model.Addr{Cluster: b.Shard.Cluster, AddrPort: ap}, p.name
		b.row.Endpoints = append(b.row.Endpoints, t)
	}
}

// template is the endpoint without address and port. Its labels are shared by all ports.
func (b *sliceBuilder) template(e *discoveryv1.Endpoint, pod *PodFacts) model.Endpoint {
	t := model.Endpoint{Health: b.health(e, pod), TLSMode: model.TLSDisabled, Source: &b.row.Source}
	var labels model.Labels
	if e.NodeName != nil {
		t.Node = *e.NodeName
	}
	if pod != nil {
		labels = pod.Labels
		t.TLSMode, t.Hostname = tlsMode(labels), pod.Hostname
		t.ServiceAccount = b.spiffe(pod.Namespace, pod.ServiceAccount, b.look)
		t.Workload = model.ObjectKey{Kind: KindPod, Namespace: pod.Namespace, Name: pod.Name}
		if pod.Node != "" {
			t.Node = pod.Node
		}
	} else if e.Hostname != nil {
		t.Hostname = *e.Hostname
	}
	t.Network = b.network(labels, b.look)
	t.Locality = b.locality(labels, t.Node, b.look)
	if t.Locality == (model.Locality{}) && e.Zone != nil {
		t.Locality.Zone = *e.Zone
	}
	t.Labels = b.augmented(labels, t.Locality, t.Node, t.Network)
	return t
}

// health maps the conditions; the label of a draining pod overrules them. A nil condition means what the
// Kubernetes API says it means: ready and serving true, terminating false; Istio takes a nil terminating
// for true, so that "ready: false" alone hides an endpoint there and is unhealthy here. No traffic reaches
// it either way.
func (b *sliceBuilder) health(e *discoveryv1.Endpoint, pod *PodFacts) model.Health {
	is := func(p *bool, def bool) bool {
		if p == nil {
			return def
		}
		return *p
	}
	terminating := is(e.Conditions.Terminating, false)
	ready := is(e.Conditions.Ready, true)
	switch {
	case pod != nil && pod.Labels[labelDraining] != "":
		return model.Draining
	case !ready && terminating && is(e.Conditions.Serving, true) && b.svc != nil && b.svc.MarksDraining:
		return model.Draining
	case !ready && terminating:
		return model.Terminating
	case ready:
		return model.Healthy
	}
	return model.Unhealthy
}
