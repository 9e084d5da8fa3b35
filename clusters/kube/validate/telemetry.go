package validate

import (
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	meshconfig "istio.io/api/mesh/v1alpha1"
	telemetry "istio.io/api/telemetry/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

func telemetryObject(c *checker, t *telemetry.Telemetry) {
	typeSelector(c, t.GetSelector())
	c.unless(t.Selector == nil || t.TargetRef == nil && len(t.TargetRefs) == 0, CodeExclusive, "selector and targetRefs exclude each other: keep one of them")
	for i, x := range t.Tracing {
		at := c.item("tracing", i)
		if len(x.Providers) > 1 {
			at.at("providers").warn(CodeExclusive, "a proxy traces to one provider only: the first counts")
		}
		providers(at, x.Providers)
		if x.RandomSamplingPercentage != nil {
			at.at("randomSamplingPercentage").percent(x.RandomSamplingPercentage.Value)
		}
		for _, k := range sorted(x.CustomTags) {
			at.at("customTags").unless(k != "", CodeRequired, "a tag has no name")
			customTag(at.at("customTags["+k+"]"), x.CustomTags[k])
		}
	}
	for i, x := range t.Metrics {
		at := c.item("metrics", i)
		providers(at, x.Providers)
		for j, o := range x.Overrides {
			if custom, ok := o.GetMatch().GetMetricMatch().(*telemetry.MetricSelector_CustomMetric); ok {
				at.item("overrides", j).at("match.customMetric").unless(custom.CustomMetric != "", CodeRequired, "it names no metric")
			}
			for _, k := range sorted(o.TagOverrides) {
				tag := o.TagOverrides[k]
				f := at.item("overrides", j).at("tagOverrides[" + k + "]")
				f.unless(tag.GetOperation() == telemetry.MetricsOverrides_TagOverride_REMOVE || tag.GetValue() != "", CodeRequired, "UPSERT needs a value")
				f.unless(tag.GetOperation() == telemetry.MetricsOverrides_TagOverride_UPSERT || tag.GetValue() == "", CodeExclusive, "REMOVE has no value")
				if v := tag.GetValue(); v != "" && !model.ValidExpression(v) {
					f.warn(CodeIneffective, "proxies can't read its value, so the tag stays as it is: write an expression of CEL, without macros")
				}
			}
		}
	}
	for i, x := range t.AccessLogging {
		at := c.item("accessLogging", i)
		providers(at, x.Providers)
		if x.Filter != nil {
			f := at.at("filter.expression")
			if f.unless(x.Filter.Expression != "", CodeRequired, "it has no expression") && !model.ValidExpression(x.Filter.Expression) {
				f.warn(CodeIneffective, "proxies can't read it, so the log is left out: write an expression of CEL, without macros")
			}
		}
	}
}

func providers(c *checker, list []*telemetry.ProviderRef) {
	for i, p := range list {
		c.item("providers", i).unless(p.GetName() != "", CodeRequired, "the provider has no name")
	}
}

func customTag(c *checker, t *telemetry.Tracing_CustomTag) {
	switch x := t.GetType().(type) {
	case nil:
		c.warn(CodeRequired, "it says not where its value is from, so it is left out: give it one of literal, environment, header and formatter")
	case *telemetry.Tracing_CustomTag_Literal:
		c.at("literal").unless(x.Literal.GetValue() != "", CodeRequired, "the text is empty")
	case *telemetry.Tracing_CustomTag_Environment:
		c.unless(x.Environment.GetName() != "", CodeRequired, "it names no variable")
	case *telemetry.Tracing_CustomTag_Header:
		if name := x.Header.GetName(); c.at("header").unless(name != "", CodeRequired, "it names no header") && !headerName.MatchString(name) {
			c.at("header").warn(CodeHeader, "%q is not the name of a header, so the tag is left out", name)
		}
	case *telemetry.Tracing_CustomTag_Formatter:
		format(c.at("formatter"), x.Formatter.GetValue(), "the tag is left out")
	}
}

// format warns of a format that proxies can't write, and of what becomes of it.
func format(c *checker, s, becomes string) {
	if bad := model.UnknownCommand(s); bad != "" {
		c.warn(CodeIneffective, "proxies don't know %s, so %s: name a command of Envoy's, or write %%%% for a percent sign", bad, becomes)
	}
}

const (
	defaultLine  = "the default line is written"
	withoutField = "the field is left out"
)

// Mesh warns of formats in MeshConfig that proxies can't write.
func Mesh(key model.ObjectKey, m *meshconfig.MeshConfig) []model.Finding {
	c := &checker{key: key}
	at := c.at("accessLogFormat")
	switch fields := (&structpb.Struct{}); {
	case m.GetAccessLogEncoding() != meshconfig.MeshConfig_JSON:
		format(at, m.GetAccessLogFormat(), defaultLine)
	case m.GetAccessLogFormat() == "":
	case protojson.Unmarshal([]byte(m.GetAccessLogFormat()), fields) != nil:
		at.warn(CodeIneffective, "it is no JSON object, so the default fields are written")
	default:
		fieldFormats(at, fields)
	}
	for i, p := range m.GetExtensionProviders() {
		at := c.item("extensionProviders", i)
		f, o := at.at("envoyFileAccessLog.logFormat"), at.at("envoyOtelAls.logFormat")
		if l := p.GetEnvoyFileAccessLog().GetLogFormat(); l.GetLabels() == nil {
			format(f.at("text"), l.GetText(), defaultLine)
		} else {
			fieldFormats(f.at("labels"), l.GetLabels())
		}
		format(o.at("text"), p.GetEnvoyOtelAls().GetLogFormat().GetText(), defaultLine)
		attributes(o.at("labels"), p.GetEnvoyOtelAls().GetLogFormat().GetLabels())
	}
	return c.findings()
}

// fieldFormats looks at formats by name, in one another too.
func fieldFormats(c *checker, s *structpb.Struct) {
	for _, name := range sorted(s.GetFields()) {
		fieldFormat(c.at(name), s.Fields[name])
	}
}

// attributes looks at formats by name that can't be in one another.
func attributes(c *checker, s *structpb.Struct) {
	for _, name := range sorted(s.GetFields()) {
		if x, ok := s.Fields[name].GetKind().(*structpb.Value_StringValue); ok {
			format(c.at(name), x.StringValue, withoutField)
		} else {
			c.at(name).warn(CodeIneffective, "attributes are texts, so %s", withoutField)
		}
	}
}

func fieldFormat(c *checker, v *structpb.Value) {
	switch x := v.GetKind().(type) {
	case *structpb.Value_StringValue:
		format(c, x.StringValue, withoutField)
	case *structpb.Value_StructValue:
		fieldFormats(c, x.StructValue)
	case *structpb.Value_ListValue:
		for _, e := range x.ListValue.GetValues() {
			fieldFormat(c, e)
		}
	}
}
