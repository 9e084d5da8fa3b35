package analysis

import (
	"fmt"
	"net/netip"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// originated is a policy that has connections speak something else than mutual TLS of the mesh.
type originated struct {
	field  string
	mode   networking.ClientTLSSettings_TLSmode
	port   uint32   // 0 for all but others
	others []uint32 // ports with settings of their own
	labels model.Labels
}

func originates(spec *networking.DestinationRule) (out []originated) {
	add := func(field string, t *networking.TrafficPolicy, labels model.Labels) {
		var others []uint32
		for i, s := range t.GetPortLevelSettings() {
			n := s.GetPort().GetNumber()
			if s.Tls != nil {
				others = append(others, n)
				out = append(out, originated{field: fmt.Sprintf("%s.portLevelSettings[%d].tls", field, i), mode: s.Tls.Mode, port: n, labels: labels})
			}
		}
		if t.GetTls() != nil {
			out = append(out, originated{field: field + ".tls", mode: t.Tls.Mode, others: others, labels: labels})
		}
	}
	add("trafficPolicy", spec.TrafficPolicy, nil)
	for i, s := range spec.Subsets {
		add(fmt.Sprintf("subsets[%d].trafficPolicy", i), s.GetTrafficPolicy(), s.GetLabels())
	}
	return slices.DeleteFunc(out, func(o originated) bool { return o.mode == networking.ClientTLSSettings_ISTIO_MUTUAL })
}

// strict tells of rules by which requests go to workloads in another way than these demand.
func (a *analysis) strict(c *model.Config, spec *networking.DestinationRule, services []*pushcontext.ServiceView) {
	for _, o := range originates(spec) {
		for _, s := range services {
			if e := o.refusing(s); e != nil {
				by := "a PeerAuthentication"
				if e.MTLSSource != nil {
					by = e.MTLSSource.Object.String()
				}
				a.add(c.Source, model.Finding{Code: CodeRefusedTLS, Severity: model.SeverityWarning, Field: o.field,
					Message: fmt.Sprintf("%s demands mutual TLS of the mesh of workloads of %s, and the mode %s is something else: requests to them fail; use ISTIO_MUTUAL, or leave tls out", by, s.Shape.Key.Host, o.mode)})
				break
			}
		}
	}
}

// refusing gives an endpoint that refuses connections of the policy; nil if there is none. Only proxies demand anything, and what
// has one says so.
func (o originated) refusing(s *pushcontext.ServiceView) *model.Endpoint {
	for _, p := range slices.Concat(s.Endpoints, s.Shape.Inline) {
		i := slices.IndexFunc(s.Shape.Ports, func(x model.Port) bool { return x.Name == p.Port })
		if i < 0 || o.port != 0 && uint32(s.Shape.Ports[i].Number) != o.port || slices.Contains(o.others, uint32(s.Shape.Ports[i].Number)) {
			continue
		}
		for _, l := range p.Localities {
			j := slices.IndexFunc(l.Endpoints, func(e *model.Endpoint) bool {
				return e.MTLS == model.MTLSStrict && e.TLSMode == model.TLSIstio && (len(o.labels) == 0 || e.Labels.Matches(o.labels))
			})
			if j >= 0 {
				return l.Endpoints[j]
			}
		}
	}
	return nil
}

// addresses tells of ServiceEntries with addresses that are those of Services of a cluster: by address connections are told apart.
func (a *analysis) addresses() {
	claimed := map[netip.Prefix][]*pushcontext.ShapeView{}
	for s := range a.pc.Services() {
		if s.Shape.Native || s.Shape.AutoAddresses || s.Shape.Federation != nil {
			continue
		}
		for _, list := range s.Shape.Addresses {
			for _, p := range list {
				if !slices.Contains(claimed[p], s.Shape) {
					claimed[p] = append(claimed[p], s.Shape)
				}
			}
		}
	}
	if len(claimed) == 0 {
		return
	}
	for s := range a.pc.Services() {
		if !s.Shape.Native {
			continue
		}
		for _, list := range s.Shape.Addresses {
			for _, p := range list {
				for _, entry := range claimed[p] {
					a.taking(entry, s.Shape, p)
				}
			}
		}
	}
}

// taking tells of an address of a ServiceEntry that a Service has, if both have a port in common.
func (a *analysis) taking(entry, service *pushcontext.ShapeView, at netip.Prefix) {
	i := slices.IndexFunc(entry.Ports, func(p model.Port) bool { _, ok := service.PortNumbered(p.Number); return ok })
	if i < 0 || entry.Key.Host == service.Key.Host {
		return
	}
	for _, c := range entry.Contributions {
		if c.Won {
			a.add(c.Source, model.Finding{Code: CodeAddressTaken, Severity: model.SeverityWarning, Field: "addresses",
				Message: fmt.Sprintf("%s is an address of the Service %s, which has port %d too: where no host says which is meant, one of the two gets connections for the other; give %s another address, or none",
					at.Addr(), service.Key.Host, entry.Ports[i].Number, entry.Key.Host)})
		}
	}
}
