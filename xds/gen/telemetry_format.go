package gen

import (
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	withoutqueryv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/formatter/req_without_query/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// textFormat writes a line for each entry: Istio's without a format, or with one that Envoy would refuse.
func textFormat(text string) *corev3.SubstitutionFormatString {
	if text == "" || !model.ValidFormat(text) {
		text = defaultText
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return withFormatters(&corev3.SubstitutionFormatString{Format: &corev3.SubstitutionFormatString_TextFormatSource{
		TextFormatSource: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: text}}}}, text)
}

// jsonFormat writes fields, those of Istio's line if there are none. Fields that Envoy would refuse are left out.
func jsonFormat(fields *structpb.Struct) *corev3.SubstitutionFormatString {
	kept := usableFields(fields)
	if kept == nil {
		kept = defaultFields()
	}
	return withFormatters(&corev3.SubstitutionFormatString{Format: &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: kept}}, kept.String())
}

func withFormatters(f *corev3.SubstitutionFormatString, text string) *corev3.SubstitutionFormatString {
	if strings.Contains(text, "%"+model.WithoutQuery+"(") {
		f.Formatters = append(f.Formatters, &corev3.TypedExtensionConfig{
			Name: "envoy.formatter.req_without_query", TypedConfig: pack(&withoutqueryv3.ReqWithoutQuery{})})
	}
	return f
}

// usableFields gives nil if nothing is left.
func usableFields(s *structpb.Struct) *structpb.Struct {
	out := map[string]*structpb.Value{}
	for name, v := range s.GetFields() {
		if v = usableField(v); v != nil {
			out[name] = v
		}
	}
	if len(out) == 0 {
		return nil
	}
	return structOf(out)
}

func usableField(v *structpb.Value) *structpb.Value {
	switch x := v.GetKind().(type) {
	case *structpb.Value_StringValue:
		if model.ValidFormat(x.StringValue) {
			return v
		}
	case *structpb.Value_StructValue:
		if s := usableFields(x.StructValue); s != nil {
			return structpb.NewStructValue(s)
		}
	case *structpb.Value_NumberValue, *structpb.Value_BoolValue, *structpb.Value_NullValue:
		return v
	case *structpb.Value_ListValue:
		list := &structpb.ListValue{}
		for _, e := range x.ListValue.GetValues() {
			if e = usableField(e); e != nil {
				list.Values = append(list.Values, e)
			}
		}
		return structpb.NewListValue(list)
	}
	return nil
}
