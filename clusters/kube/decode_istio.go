package kube

import (
	"encoding/json"
	"errors"
	"regexp"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
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

var unknownField = regexp.MustCompile(`unknown field "[^"]*"`)

// unmarshalSpec decodes strictly; if only an unknown field is in the way, it warns and decodes again
// without such fields. Unknown enum values and wrong types are errors.
func unmarshalSpec(js []byte, m message) (warning, err error) {
	if len(js) == 0 {
		return nil, errors.New("it has no spec")
	}
	if err = protojson.Unmarshal(js, m); err == nil {
		return nil, nil
	}
	field := unknownField.FindString(err.Error())
	if field == "" {
		return nil, err
	}
	proto.Reset(m)
	return errors.New(field), m.UnmarshalJSON(js)
}
