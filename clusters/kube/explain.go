package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/kube/validate"
)

// explanation is what the text of a spec has that its message has not, in findings without Object. It is made only of what
// a decoder complains of.
type explanation struct {
	wrong     []model.Finding // values that a field can't have
	exclusive []model.Finding // fields of which one may be there, where several are
	unknown   []model.Finding // fields that are not there
}

// explain compares JSON with the message that it is meant for.
func explain(js []byte, d protoreflect.MessageDescriptor) *explanation {
	e := &explanation{}
	e.message("", js, d)
	return e
}

// misfits is the error of a spec that can't be decoded: what is wrong with it, errors first.
type misfits []model.Finding

func (m misfits) Error() string {
	const most = 5
	var out []string
	for _, f := range m[:min(len(m), most)] {
		out = append(out, told(f))
	}
	if n := len(m) - most; n > 0 {
		out = append(out, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(out, "; ")
}

// misfitsOf gives what is wrong, in findings without Object.
func misfitsOf(err error) []model.Finding {
	var m misfits
	if errors.As(err, &m) {
		return m
	}
	return nil
}

func add(list *[]model.Finding, code, field, format string, args ...any) {
	if len(*list) < maxReasons {
		*list = append(*list, model.Finding{Code: code, Severity: model.SeverityError, Field: shortened(field), Message: fmt.Sprintf(format, args...)})
	}
}

func (e *explanation) misfit(field, format string, args ...any) {
	add(&e.wrong, codeUnreadable, field, format, args...)
}

// message looks at the fields of an object.
func (e *explanation) message(at string, js json.RawMessage, d protoreflect.MessageDescriptor) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(js, &fields) != nil {
		e.misfit(at, "it is an object with the %s, not %s", fieldNames(d), shape(js))
		return
	}
	chosen := map[protoreflect.Name]string{}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		f, path := fieldNamed(d, name), joined(at, name)
		switch {
		case f == nil:
			add(&e.unknown, api.CodeUnknownField, path, "%s", noField(name, d))
			continue
		case isNull(fields[name]):
			continue
		}
		if o := f.ContainingOneof(); o != nil && !o.IsSynthetic() {
			if other := chosen[o.Name()]; other != "" {
				add(&e.exclusive, validate.CodeExclusive, at, "%s and %s exclude each other: write one of them", other, name)
			}
			chosen[o.Name()] = name
		}
		e.field(path, fields[name], f)
	}
}

func joined(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

func isNull(js json.RawMessage) bool { return string(js) == "null" }

func fieldNamed(d protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if f := d.Fields().ByJSONName(name); f != nil {
		return f
	}
	return d.Fields().ByTextName(name)
}

func noField(name string, d protoreflect.MessageDescriptor) string {
	var names []string
	for i := range d.Fields().Len() {
		names = append(names, d.Fields().Get(i).JSONName())
	}
	out := fmt.Sprintf("unknown field %q has no effect", clip(name))
	if near := model.Nearest(name, names); near != "" {
		out += "; did you mean " + near + "?"
	}
	return out
}

// fieldNames lists the fields of a message, as far as that is of use.
func fieldNames(d protoreflect.MessageDescriptor) string {
	const most = 8
	var names []string
	for i := range d.Fields().Len() {
		names = append(names, d.Fields().Get(i).JSONName())
	}
	switch n := len(names); {
	case n == 1:
		return "field " + names[0]
	case n > most:
		return "fields " + strings.Join(names[:most], ", ") + ", …"
	}
	return "fields " + strings.Join(names, ", ")
}

// field looks at the value of a field.
func (e *explanation) field(at string, js json.RawMessage, f protoreflect.FieldDescriptor) {
	switch {
	case f.IsMap():
		var entries map[string]json.RawMessage
		if json.Unmarshal(js, &entries) != nil {
			e.misfit(at, "it is an object of names and values, not %s", shape(js))
		}
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			e.value(at+"["+key+"]", entries[key], f.MapValue())
		}
	case f.IsList():
		var items []json.RawMessage
		if json.Unmarshal(js, &items) != nil {
			e.misfit(at, "%s", noList(js))
		}
		for i, item := range items {
			e.value(fmt.Sprintf("%s[%d]", at, i), item, f)
		}
	default:
		e.value(at, js, f)
	}
}

func noList(js json.RawMessage) string {
	if js[0] == '{' {
		return "it is a list: each of its items begins with '- '"
	}
	var text string
	if json.Unmarshal(js, &text) != nil || text == "" || strings.ContainsAny(text, " ,:#[]{}*&!'\"") {
		text = string(js)
	}
	return "it is a list: write [" + clip(text) + "]"
}

// value looks at one value: a field's only one, an item of a list, or a value of a map.
func (e *explanation) value(at string, js json.RawMessage, f protoreflect.FieldDescriptor) {
	if isNull(js) {
		return
	}
	d := f.Message()
	switch {
	case d == nil:
		if why := misfit(js, f); why != "" {
			e.misfit(at, "%s", why)
		}
	case d.FullName().Parent() != "google.protobuf":
		e.message(at, js, d)
	case d.Name() == "Duration":
		if why := noDuration(js); why != "" {
			e.misfit(at, "%s", why)
		}
	case strings.HasSuffix(string(d.Name()), "Value") && d.Fields().Len() == 1 && d.Name() != "ListValue": // BoolValue, UInt32Value
		if why := misfit(js, d.Fields().Get(0)); why != "" {
			e.misfit(at, "%s", why)
		}
	}
}
