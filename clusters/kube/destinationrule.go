package kube

import (
	"strings"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
)

// destinationRule gives a copy of a rule in which a short host is one of the rule's namespace.
func (c *Converter) destinationRule(namespace string, spec *networking.DestinationRule) *networking.DestinationRule {
	spec = proto.CloneOf(spec)
	spec.Host = strings.ToLower(strings.TrimSuffix(spec.Host, "."))
	if spec.Host != "*" && !strings.Contains(spec.Host, ".") {
		spec.Host = c.host(namespace, spec.Host)
	}
	return spec
}
