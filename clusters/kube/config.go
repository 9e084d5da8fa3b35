package kube

import (
	networking "istio.io/api/networking/v1alpha3"
	security "istio.io/api/security/v1beta1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// config makes the row of an object that has no rows but its own. Names in it are as they are written, but for the host
// of a DestinationRule.
func (c *Converter) config(o Object, v *Config) (res Result) {
	row := c.configRow(o, o.Ref.Kind)
	switch spec := v.Spec.(type) {
	case *networking.DestinationRule:
		row.Spec = c.destinationRule(o.Ref.Namespace, spec)
	case *security.PeerAuthentication:
		if !peerAuthentication(row, spec, c.SystemNamespace, &res) {
			return res
		}
	default:
		row.Spec = spec
	}
	res.row(o.Ref.String(), row)
	return res
}

// configRow is the row of an object without a Spec.
func (c *Converter) configRow(o Object, kind string) *model.Config {
	row := &model.Config{Kind: kind, Namespace: o.Ref.Namespace, Name: o.Ref.Name, Source: c.source(o)}
	if _, meta := metaOf(kind, o.Value); meta != nil {
		row.Labels, row.Created, row.Generation = model.Labels(meta.Labels), meta.CreationTimestamp.Time, meta.Generation
	}
	return row
}
