package aggregate_test

import (
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
)

// federated makes a FederatedService: of a host of services, of an own one, and sometimes of one that is there already.
func (w *world) federated(k model.ShardKey) *model.Config {
	spec := &api.FederatedServiceSpec{
		Host: []string{host(w.name()), "one.global", "two.global"}[w.pick(3)], ExportTo: [][]string{nil, {"."}, {"*"}}[w.pick(3)],
		Policy: []api.FederationPolicy{"", api.FederateUnion, api.FederateFailover, api.FederateWeighted}[w.pick(4)],
		Ports:  [][]api.FederatedPort{{{Name: "http", Number: 80, Protocol: "HTTP"}}, {{Name: "web", Number: 8080}, {Name: "tcp", Number: 90, Protocol: "TCP"}}}[w.pick(2)],
	}
	for range w.pick(4) {
		spec.Sources = append(spec.Sources, w.federatedSource())
	}
	c := &model.Config{
		Kind: model.ConfigFederatedService, Namespace: []string{"ns", "ns", "other"}[w.pick(3)], Name: w.name(), Spec: spec, Created: time.Unix(int64(w.pick(4)), 0),
		NotServed: w.pick(12) == 0, Source: w.source(k, model.ConfigFederatedService, ""),
	}
	c.Source.Object.Namespace, c.Source.Object.Name = c.Namespace, c.Name
	return c
}

func (w *world) federatedSource() api.FederatedSource {
	s := api.FederatedSource{Host: []string{host(w.name()), host(w.name()), "one.global", w.name() + ".ns.svc.clusterset.local"}[w.pick(4)], Namespace: []string{"", "", "ns", "none"}[w.pick(4)]}
	if w.pick(3) == 0 {
		s.Host, s.Name, s.Selector = "", "selected", w.labels()
	}
	n := uint32(w.pick(3))
	switch w.pick(6) {
	case 0:
		s.Registries = [][]string{{"kubernetes/*"}, {"*/c1"}, {"nacos/n1", "kubernetes/c2"}}[w.pick(3)]
	case 1:
		s.Clusters = []string{"c1", "n1"}
	case 2:
		s.Ports = map[string]api.SourcePort{"http": {Number: 8080}, "web": {Name: []string{"", "http"}[w.pick(2)], Protocol: []string{"", "HTTP2"}[w.pick(2)]}}
	case 3:
		s.Weight = &n
	case 4:
		s.Priority = &n
	}
	return s
}
