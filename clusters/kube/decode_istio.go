package kube

import (
	"encoding/json"
	"errors"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// rawSpec is an object whose spec is a protobuf message.
type rawSpec interface {
	typed() (value any, err error)
	meta() metav1.ObjectMeta
}

type rawServiceEntry struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              json.RawMessage `json:"spec"`
	Status            json.RawMessage `json:"status"`
}

func (r *rawServiceEntry) meta() metav1.ObjectMeta { return r.ObjectMeta }

func (r *rawServiceEntry) typed() (any, error) {
	se := &ServiceEntry{Meta: r.ObjectMeta, Spec: &networking.ServiceEntry{}}
	odd, err := unmarshalSpec(r.Spec, se.Spec)
	if err != nil {
		return nil, err
	}
	se.Odd = odd
	status := &networking.ServiceEntryStatus{}
	if len(r.Status) > 0 && status.UnmarshalJSON(r.Status) == nil {
		se.Status = status
	}
	return se, nil
}

type rawWorkloadEntry struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              json.RawMessage `json:"spec"`
	Status            json.RawMessage `json:"status"`
}

func (r *rawWorkloadEntry) meta() metav1.ObjectMeta { return r.ObjectMeta }

func (r *rawWorkloadEntry) typed() (any, error) {
	we := &WorkloadEntry{Meta: r.ObjectMeta, Spec: &networking.WorkloadEntry{}}
	odd, err := unmarshalSpec(r.Spec, we.Spec)
	if err != nil {
		return nil, err
	}
	we.Odd, we.Healthy = odd, healthyCondition(r.Status)
	return we, nil
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

func (r *rawConfig) typed() (any, error) {
	if len(r.Spec) == 0 { // says nothing, which is allowed
		return &Config{Meta: r.ObjectMeta, Spec: r.message}, nil
	}
	odd, err := unmarshalSpec(r.Spec, r.message)
	if err != nil {
		return nil, err
	}
	return &Config{Meta: r.ObjectMeta, Spec: r.message, Odd: odd}, nil
}

type rawOther struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              json.RawMessage `json:"spec"`
	Status            json.RawMessage `json:"status"`
}

func (r *rawOther) meta() metav1.ObjectMeta { return r.ObjectMeta }

func (r *rawOther) typed() (any, error) { return &Other{Meta: r.ObjectMeta}, nil }

// message is a spec as istio.io/api generates it.
type message interface {
	proto.Message
	UnmarshalJSON([]byte) error
}

// unmarshalSpec decodes. Odd is what the spec has that its kind has not, which is no error of the decoder: fields that are
// unknown, and several of which there may be one. Unknown values of enums and wrong types are errors.
func unmarshalSpec(js []byte, m message) (odd []model.Finding, err error) {
	if len(js) == 0 {
		return nil, errors.New("it has no spec")
	}
	return unmarshal(js, m)
}

// unmarshal decodes as Istio does, which takes every duration that Go does ("1h", "30ms") and leaves out fields that it does
// not know. Of fields that exclude each other Istio's decoder takes one at random, where the API servers refuse the object:
// nothing of it is given, but that.
func unmarshal(js []byte, m message) (odd []model.Finding, err error) {
	strict := protojson.Unmarshal(js, m)
	if strict == nil {
		return nil, nil
	}
	proto.Reset(m)
	err = m.UnmarshalJSON(js)
	e := explain(js, m.ProtoReflect().Descriptor())
	switch {
	case err != nil && len(e.wrong) > 0:
		return nil, misfits(slices.Concat(e.wrong, e.exclusive, e.unknown))
	case err != nil && len(e.unknown) > 0: // which hides the error from the strict decoder
		return nil, err
	case err != nil:
		return nil, placed(js, strict)
	case len(e.exclusive) > 0:
		proto.Reset(m)
	}
	return slices.Concat(e.exclusive, e.unknown), nil
}
