package validate

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// successors say what replaces a deprecated field or value.
var successors = map[protoreflect.FullName]string{
	"istio.networking.v1alpha3.HTTPRoute.mirror_percent":                                "mirrorPercentage",
	"istio.networking.v1alpha3.CorsPolicy.allow_origin":                                 "allowOrigins",
	"istio.networking.v1alpha3.HTTPFaultInjection.Delay.percent":                        "percentage",
	"istio.networking.v1alpha3.OutlierDetection.consecutive_errors":                     "consecutive5xxErrors or consecutiveGatewayErrors",
	"istio.networking.v1alpha3.LoadBalancerSettings.LEAST_CONN":                         "LEAST_REQUEST",
	"istio.networking.v1alpha3.LoadBalancerSettings.ConsistentHashLB.minimum_ring_size": "ringHash.minimumRingSize",
}

// deprecated warns of fields and values that the API itself calls deprecated.
func deprecated(c *checker, m protoreflect.Message) {
	type set struct {
		field protoreflect.FieldDescriptor
		value protoreflect.Value
	}
	var fields []set
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		fields = append(fields, set{f, v})
		return true
	})
	slices.SortFunc(fields, func(a, b set) int { return cmp.Compare(a.field.Number(), b.field.Number()) })
	for _, s := range fields {
		name := s.field.JSONName()
		if o, ok := s.field.Options().(*descriptorpb.FieldOptions); ok && o.GetDeprecated() {
			c.at(name).superseded(s.field.FullName(), name)
		}
		if s.field.Kind() == protoreflect.EnumKind && !s.field.IsList() {
			v := s.field.Enum().Values().ByNumber(s.value.Enum())
			if v != nil && v.Options().(*descriptorpb.EnumValueOptions).GetDeprecated() {
				c.at(name).superseded(v.FullName(), string(v.Name()))
			}
		}
		if s.field.Kind() == protoreflect.MessageKind {
			below(c, s.field, s.value)
		}
	}
}

// below looks at the messages of a field.
func below(c *checker, f protoreflect.FieldDescriptor, v protoreflect.Value) {
	name := f.JSONName()
	switch {
	case f.IsList():
		for i := range v.List().Len() {
			deprecated(c.item(name, i), v.List().Get(i).Message())
		}
	case !f.IsMap(): // no map of the API has a message with deprecated fields
		deprecated(c.at(name), v.Message())
	}
}

func (c *checker) superseded(full protoreflect.FullName, name string) {
	if next := successors[full]; next != "" {
		c.warn(CodeDeprecated, "%s is deprecated: use %s", name, next)
		return
	}
	c.warn(CodeDeprecated, "%s is deprecated and will not be read for ever", name)
}
