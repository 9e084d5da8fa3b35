package kube

import (
	networking "istio.io/api/networking/v1alpha3"
	security "istio.io/api/security/v1beta1"
)

// config makes the row of an object that changes how services are reached. What is wrong in it is a
// problem and not in force: the row's Spec is a copy without it. Fields that nothing uses yet are named.
func (c *Converter) config(o Object, v *Config) (res Result) {
	row := c.notServed(o, o.Ref.Kind)
	row.NotServed = false
	ok := false
	switch spec := v.Spec.(type) {
	case *networking.DestinationRule:
		ok = c.destinationRule(row, spec, &res)
	case *security.PeerAuthentication:
		ok = peerAuthentication(row, spec, c.SystemNamespace, &res)
	case *networking.Gateway:
		ok = gateway(row, spec, &res)
	default:
		res.problem("it has no spec")
	}
	if ok {
		res.row(o.Ref.String(), row)
	}
	return res
}
