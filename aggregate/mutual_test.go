package aggregate_test

import (
	"slices"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Where connections do not say which endpoint they go to, the shape says whether all take mutual TLS.
func TestMergeMutualPorts(t *testing.T) {
	t.Parallel()
	c1 := kube("c1")
	passing := &networking.TrafficPolicy{LoadBalancer: &networking.LoadBalancerSettings{LbPolicy: &networking.LoadBalancerSettings_Simple{Simple: networking.LoadBalancerSettings_PASSTHROUGH}}}
	ofPort := &networking.TrafficPolicy{PortLevelSettings: []*networking.TrafficPolicy_PortTrafficPolicy{{Port: &networking.PortSelector{Number: 80}, LoadBalancer: passing.LoadBalancer}}}
	ruled := func(p *networking.TrafficPolicy, subset *networking.TrafficPolicy) model.Object {
		return config(c1, model.ConfigDestinationRule, "ns", "r", &networking.DestinationRule{Host: host("a"), TrafficPolicy: p, Subsets: []*networking.Subset{{Name: "v1", TrafficPolicy: subset}}})
	}
	mutual := func(modes ...string) *model.Endpoints {
		e := slice(c1, "a", "s")
		for i, m := range modes {
			one := slice(c1, "a", "s", "10.0.0."+string(rune('1'+i))).Endpoints[0]
			one.TLSMode = m
			e.Endpoints = append(e.Endpoints, one)
		}
		return e
	}
	headless := service(c1, "a", withResolution(model.Passthrough))
	for name, c := range map[string]struct {
		rows []model.Object
		want []string
	}{
		"EDS":                    {[]model.Object{service(c1, "a"), mutual(model.TLSIstio)}, nil},
		"headless":               {[]model.Object{headless, mutual(model.TLSIstio, model.TLSIstio)}, []string{"http"}},
		"headless, one does not": {[]model.Object{headless, mutual(model.TLSIstio, model.TLSDisabled)}, nil},
		"headless, empty":        {[]model.Object{headless}, nil},
		"by a rule":              {[]model.Object{service(c1, "a"), mutual(model.TLSIstio), ruled(passing, nil)}, []string{"http"}},
		"by a rule for a port":   {[]model.Object{service(c1, "a"), mutual(model.TLSIstio), ruled(ofPort, nil)}, []string{"http"}},
		"by a subset":            {[]model.Object{service(c1, "a"), mutual(model.TLSIstio), ruled(nil, passing)}, []string{"http"}},
		"by no rule":             {[]model.Object{service(c1, "a"), mutual(model.TLSIstio), ruled(nil, nil)}, nil},
		"DNS":                    {[]model.Object{service(c1, "a", withResolution(model.DNSLB)), mutual(model.TLSIstio), ruled(passing, nil)}, nil},
	} {
		if got := rebuilt(t, "a", c.rows...).Shape.MutualPorts; !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
