package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	networking "istio.io/api/networking/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// rawSpec is an object whose spec is a protobuf message.
type rawSpec interface {
	// typed gives the object; warning names a field that its kind does not have.
	typed() (value any, warning, err error)
	meta() metav1.ObjectMeta
}

type rawServiceEntry struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              json.RawMessage `json:"spec"`
	Status            json.RawMessage `json:"status"`
}

func (r *rawServiceEntry) meta() metav1.ObjectMeta { return r.ObjectMeta }

func (r *rawServiceEntry) typed() (any, error, error) {
	se := &ServiceEntry{Meta: r.ObjectMeta, Spec: &networking.ServiceEntry{}}
	warning, err := unmarshalSpec(r.Spec, se.Spec)
	if err != nil {
		return nil, nil, err
	}
	status := &networking.ServiceEntryStatus{}
	if len(r.Status) > 0 && status.UnmarshalJSON(r.Status) == nil {
		se.Status = status
	}
	return se, warning, nil
}

type rawWorkloadEntry struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              json.RawMessage `json:"spec"`
	Status            json.RawMessage `json:"status"`
}

func (r *rawWorkloadEntry) meta() metav1.ObjectMeta { return r.ObjectMeta }

func (r *rawWorkloadEntry) typed() (any, error, error) {
	we := &WorkloadEntry{Meta: r.ObjectMeta, Spec: &networking.WorkloadEntry{}}
	warning, err := unmarshalSpec(r.Spec, we.Spec)
	if err != nil {
		return nil, nil, err
	}
	we.Healthy = healthyCondition(r.Status)
	return we, warning, nil
}

// healthyCondition reads the condition "Healthy", nil if there is none.
func healthyCondition(status []byte) *bool {
	var s struct {
		Conditions []struct{ Type, Status string }
	}
	if json.Unmarshal(status, &s) != nil {
		return nil
	}
	for _, c := range s.Conditions {
		if c.Type == "Healthy" {
			healthy := c.Status == "True"
			return &healthy
		}
	}
	return nil
}

type rawConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              json.RawMessage `json:"spec"`
	Status            json.RawMessage `json:"status"`

	message message
}

func (r *rawConfig) meta() metav1.ObjectMeta { return r.ObjectMeta }

func (r *rawConfig) typed() (any, error, error) {
	if len(r.Spec) == 0 { // says nothing, which is allowed
		return &Config{Meta: r.ObjectMeta, Spec: r.message}, nil, nil
	}
	warning, err := unmarshalSpec(r.Spec, r.message)
	if err != nil {
		return nil, nil, err
	}
	return &Config{Meta: r.ObjectMeta, Spec: r.message}, warning, nil
}

type rawOther struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              json.RawMessage `json:"spec"`
	Status            json.RawMessage `json:"status"`
}

func (r *rawOther) meta() metav1.ObjectMeta { return r.ObjectMeta }

func (r *rawOther) typed() (any, error, error) { return &Other{Meta: r.ObjectMeta}, nil, nil }

// message is a spec as istio.io/api generates it.
type message interface {
	proto.Message
	UnmarshalJSON([]byte) error
}

// unmarshalSpec decodes; a field that the kind does not have is a warning. Unknown values of enums and wrong types are
// errors.
func unmarshalSpec(js []byte, m message) (warning, err error) {
	if len(js) == 0 {
		return nil, errors.New("it has no spec")
	}
	unknown, err := unmarshal(js, m)
	if unknown != "" {
		warning = fmt.Errorf("unknown field %q", unknown)
	}
	return warning, err
}

// unmarshal decodes as Istio does, which takes every duration that Go does ("1h", "30ms") and leaves out fields that it does
// not know. The first of those is named.
func unmarshal(js []byte, m message) (unknown string, err error) {
	strict := protojson.Unmarshal(js, m)
	if strict == nil {
		return "", nil
	}
	proto.Reset(m)
	if err := m.UnmarshalJSON(js); err != nil {
		if unknownField.MatchString(strict.Error()) { // which hides the error
			return "", err
		}
		return "", placed(js, strict)
	}
	return firstUnknown(js, m.ProtoReflect().Descriptor()), nil
}

var unknownField = regexp.MustCompile(`unknown field "[^"]*"`)

// firstUnknown names a field of an object that its message does not have, "" if it has all.
func firstUnknown(js []byte, d protoreflect.MessageDescriptor) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(js, &fields) != nil || d.FullName().Parent() == "google.protobuf" {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		f := d.Fields().ByJSONName(name)
		if f == nil {
			f = d.Fields().ByTextName(name)
		}
		if f == nil {
			return name
		}
		below, values := messagesOf(f, fields[name])
		for _, value := range values {
			if unknown := firstUnknown(value, below); unknown != "" {
				return unknown
			}
		}
	}
	return ""
}

// messagesOf are the messages in the value of a field.
func messagesOf(f protoreflect.FieldDescriptor, js json.RawMessage) (of protoreflect.MessageDescriptor, out []json.RawMessage) {
	of = f.Message()
	switch {
	case f.IsMap():
		if of = f.MapValue().Message(); of != nil {
			var entries map[string]json.RawMessage
			_ = json.Unmarshal(js, &entries)
			for _, key := range slices.Sorted(maps.Keys(entries)) {
				out = append(out, entries[key])
			}
		}
	case of == nil:
	case f.IsList():
		_ = json.Unmarshal(js, &out)
	default:
		out = append(out, js)
	}
	return of, out
}
