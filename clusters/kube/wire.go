package kube

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// FromMessage makes the object that an API server with the same spec would have given, for sources that have specs as
// protobuf messages. Decode fills an empty spec of the kind, and is not called for kinds whose specs are not read. An error of
// it makes a [Broken], whose last good version stays in force. It fails for objects without a proper name, and for kinds that
// do not concern the mesh.
func FromMessage(group, kind string, meta metav1.ObjectMeta, decode func(proto.Message) error) (Object, error) {
	if err := validName(meta.Name); err != nil {
		return Object{}, fmt.Errorf("metadata.name: %w", err)
	}
	if !validLabel(meta.Namespace) {
		return Object{}, fmt.Errorf("metadata.namespace: %q is not a namespace name", clip(meta.Namespace))
	}
	if !meshGroup(group) {
		return Object{}, errNotOurs
	}
	var value any = &Other{Meta: meta}
	var err error
	switch raw := istioKind(group, kind).(type) {
	case *rawServiceEntry:
		v := &ServiceEntry{Meta: meta, Spec: &networking.ServiceEntry{}}
		value, err = v, decode(v.Spec)
	case *rawWorkloadEntry:
		v := &WorkloadEntry{Meta: meta, Spec: &networking.WorkloadEntry{}}
		value, err = v, decode(v.Spec)
	case *rawConfig:
		value, err = &Config{Meta: meta, Spec: raw.message}, decode(raw.message)
	}
	if err != nil {
		value = &Broken{Meta: meta, Reason: err.Error()}
	}
	o, _ := NewObject(kind, value)
	return o, nil
}

// Refused gives what keeps an object from being in force, errors first; nil if it is in force, or not known.
func (s *Store) Refused(ref model.ObjectKey) []model.Finding {
	row, _ := s.rows[model.RowKey{Kind: model.RowConfig, Key: ref.String()}].(*model.Config)
	if row == nil || !row.Refused {
		return nil
	}
	return row.Findings
}
