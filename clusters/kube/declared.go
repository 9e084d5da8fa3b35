package kube

import (
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
)

// Declared is an object that declares registries or joins services of several: a Registry or FederatedService of isthmus.io, or a
// McpBridge. Spec is what [model.Config] names for the kind.
type Declared struct {
	Meta    metav1.ObjectMeta
	Spec    any
	Unknown []string // fields that the kind does not have, in words
}

// declaredSpec is an empty spec of such a kind, nil for other kinds.
func declaredSpec(group, kind string) any {
	switch group + "/" + kind {
	case groupIsthmus + "/" + KindRegistry:
		return &api.RegistrySpec{}
	case groupIsthmus + "/" + KindFederatedService:
		return &api.FederatedServiceSpec{}
	case groupHigress + "/" + KindMcpBridge:
		return &api.McpBridgeSpec{}
	}
	return nil
}

type rawDeclared struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              json.RawMessage `json:"spec"`
	Status            json.RawMessage `json:"status"`

	spec any
}

func (r *rawDeclared) meta() metav1.ObjectMeta { return r.ObjectMeta }

func (r *rawDeclared) typed() (any, error) {
	if len(r.Spec) == 0 {
		return nil, errors.New("it has no spec")
	}
	unknown, err := kjson.UnmarshalStrict(r.Spec, r.spec)
	if err != nil {
		return nil, err
	}
	if s, ok := r.spec.(interface{ HideUsers() }); ok {
		s.HideUsers()
	}
	out := &Declared{Meta: r.ObjectMeta, Spec: r.spec}
	for _, u := range unknown {
		out.Unknown = append(out.Unknown, u.Error())
	}
	return out, nil
}

// faults gives what is wrong with the object. Fields that Registry and FederatedService do not have are errors: a setting that is meant
// must not be lost to a typing error. What a McpBridge has besides is Higress's business.
func (d *Declared) faults() (out []api.Fault) {
	level := api.Refused
	switch spec := d.Spec.(type) {
	case *api.RegistrySpec:
		out = spec.Validate()
	case *api.FederatedServiceSpec:
		out = spec.Validate()
	case *api.McpBridgeSpec:
		out, level = spec.Validate(), api.Info
	}
	for _, u := range d.Unknown {
		field := ""
		if m := quoted.FindStringSubmatch(u); m != nil {
			field = m[1]
		}
		out = append(out, api.Fault{Code: api.CodeUnknownField, Level: level, Field: field, Message: fmt.Sprintf("%s in the spec", u)})
	}
	return out
}

var severities = map[api.Level]model.Severity{api.Refused: model.SeverityError, api.Warning: model.SeverityWarning, api.Info: model.SeverityInfo}

// findings gives the same as findings of an object.
func (d *Declared) findings(of model.ObjectKey) (out []model.Finding) {
	for _, f := range d.faults() {
		out = append(out, model.Finding{Code: f.Code, Severity: severities[f.Level], Object: of, Field: f.Field, Message: f.Message})
	}
	return out
}

// declared makes the row of such an object. Which of them are in force is not decided here.
func (c *Converter) declared(o Object, d *Declared) (res Result) {
	row := c.configRow(o, o.Ref.Kind)
	row.Spec = d.Spec
	res.row(o.Ref.String(), row)
	return res
}
