package kube

import (
	"fmt"
	"maps"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// inline makes the endpoints that the entry lists itself.
func (e *entry) inline() (out []model.Endpoint, left []model.LeftOut) {
	if e.spec.WorkloadSelector != nil && len(e.spec.Endpoints) > 0 {
		e.res.problem("its endpoints are left out: workloadSelector and endpoints exclude each other")
	}
	seen := map[endpointAt]bool{}
	for _, we := range e.spec.Endpoints {
		if we == nil {
			continue
		}
		addr, err := parseAddress(we)
		if why, detail := e.refuse(addr, err); why != "" {
			left = append(left, e.left(e.addr(we, addr, 0), "", why, detail))
			continue
		}
		e.checkPortNames(we)
		t := e.template(we, addr)
		for _, p := range e.ports {
			n, ok := e.endpointPort(we, p)
			t.Addr, t.PortName = e.addr(we, addr, n), p.Name
			at := endpointAt{t.Addr, p.Name, t.Network}
			switch {
			case !ok:
				left = append(left, e.left(t.Addr, p.Name, model.ReasonInvalid, fmt.Sprintf("port %d is not 1 to 65535", we.Ports[p.Name])))
			case seen[at]:
				left = append(left, e.left(t.Addr, p.Name, model.ReasonDuplicate, "the entry lists it twice"))
			default:
				seen[at] = true
				out = append(out, t)
			}
		}
	}
	return out, left
}

type endpointAt struct {
	addr    model.Addr
	port    string
	network string // tells address-less endpoints apart
}

// refuse gives the reason why an address can't be served under the entry's resolution.
func (e *entry) refuse(a address, err error) (model.Reason, string) {
	switch {
	case e.spec.WorkloadSelector != nil:
		return model.ReasonInvalid, "the entry selects workloads instead"
	case err != nil:
		return model.ReasonInvalid, err.Error()
	case e.resolution == model.Passthrough || e.resolution == model.DynamicDNS:
		return model.ReasonInvalid, "resolution " + e.spec.Resolution.String() + " takes no endpoints"
	case a.form == formHost && e.resolution == model.ClientSideLB:
		return model.ReasonWrongKind, "a host name needs resolution DNS"
	case a.form == formNone && e.resolution != model.ClientSideLB:
		return model.ReasonWrongKind, "an endpoint without address needs resolution STATIC"
	}
	return "", ""
}

func (e *entry) left(a model.Addr, port string, why model.Reason, detail string) model.LeftOut {
	return model.LeftOut{Addr: a, Port: port, Reason: why, Detail: detail, Source: e.source(e.o)}
}

// addr places a parsed address; an unparsable one is shown as it is written.
func (e *entry) addr(we *networking.WorkloadEntry, a address, port uint16) model.Addr {
	if a.form == formInvalid {
		return model.Addr{Cluster: e.Shard.Cluster, Host: clip(we.Address)}
	}
	return a.at(e.Shard.Cluster, port)
}

// endpointPort: the endpoint's own port map, then the target port, then the port; sockets have none.
func (e *entry) endpointPort(we *networking.WorkloadEntry, p model.Port) (uint16, bool) {
	if n, ok := we.Ports[p.Name]; ok {
		if n, ok := portNumber(int64(n)); ok {
			return n, true
		}
		return 0, false
	}
	return target(p), true
}

func (e *entry) checkPortNames(we *networking.WorkloadEntry) {
	for _, name := range slices.Sorted(maps.Keys(we.Ports)) {
		if !slices.ContainsFunc(e.ports, func(p model.Port) bool { return p.Name == name }) {
			e.res.problem("endpoint %q names port %q, which the entry does not have", clip(we.Address), clip(name))
		}
	}
}

// template is an inline endpoint without address and port. One outside the mesh has no network
// unless it names one: every proxy reaches it directly.
func (e *entry) template(we *networking.WorkloadEntry, a address) model.Endpoint {
	labels := model.Labels(we.Labels)
	network := we.Network
	if network == "" {
		network = labels[labelNetwork]
	}
	if network == "" && e.spec.Location == networking.ServiceEntry_MESH_INTERNAL && a.form == formIP {
		network = e.network(nil, e.look)
	}
	loc := entryLocality(we)
	ep := model.Endpoint{
		Health: model.Healthy, Weight: float64(we.Weight), Locality: loc, Network: network, TLSMode: entryTLSMode(we),
		Labels: e.augmented(labels, loc, "", network),
	}
	if we.ServiceAccount != "" {
		ep.ServiceAccount = e.spiffe(e.o.Ref.Namespace, we.ServiceAccount, e.look)
	}
	return ep
}
