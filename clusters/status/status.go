package status

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
)

// Object is what the hub makes of one object.
type Object struct {
	Key        model.ObjectKey
	Generation int64 // of the object, that was looked at; 0 if it is not known
	Refused    bool  // it is not in force, or an older version of it is
	Findings   []model.Finding
	// Status is the whole status of a kind of ours, as a struct; nil for kinds of Istio, whose status is made of the rest. The times of its
	// conditions are the writer's.
	Status any
}

// The versions in which API servers may have Istio's networking kinds, the newest first.
var networking = []string{"v1", "v1beta1", "v1alpha3"}

// versions are those in which API servers may have the kinds that have a status, the newest first.
var versions = map[string][]string{
	model.ConfigVirtualService: networking, model.ConfigDestinationRule: networking, model.ConfigGateway: networking, model.ConfigSidecar: networking,
	model.ConfigServiceEntry: networking, model.ConfigWorkloadGroup: networking, model.ConfigProxyConfig: networking,
	model.ConfigPeerAuthentication: {"v1", "v1beta1"}, model.ConfigTelemetry: {"v1", "v1alpha1"},
	model.ConfigRegistry: {api.Version}, model.ConfigFederatedService: {api.Version},
}

// Has reports whether objects of a kind have a status that is written.
func Has(kind string) bool { return versions[kind] != nil }

// Accepted is the type of the condition.
const Accepted = "Accepted"

// most is how many messages an object is given: it is stored with each of them.
const most = 20

// condition gives the condition of an object.
func (o *Object) condition(now time.Time) map[string]any {
	c := map[string]any{
		"type": Accepted, "status": "True", "reason": "Valid", "lastTransitionTime": now.UTC().Format(time.RFC3339),
	}
	if o.Generation != 0 {
		c["observedGeneration"] = o.Generation
	}
	if o.Refused {
		c["status"], c["reason"] = "False", "Refused"
	}
	if len(o.Findings) > 0 {
		f := o.Findings[0]
		c["message"] = strings.TrimPrefix(f.Field+": "+f.Message, ": ")
		if n := len(o.Findings) - 1; n > 0 {
			c["message"] = fmt.Sprintf("%s (and %d more)", c["message"], n)
		}
	}
	return c
}

// levels are those of Istio's analysis.
var levels = map[model.Severity]string{model.SeverityError: "ERROR", model.SeverityWarning: "WARNING", model.SeverityInfo: "INFO"}

func (o *Object) messages() []any {
	var out []any
	for _, f := range o.Findings[:min(len(o.Findings), most)] {
		out = append(out, map[string]any{
			"type": map[string]any{"name": f.Code, "code": f.Code}, "level": levels[f.Severity]})
	}
	return out
}

// patch gives what makes the status of an object say what it is to say; nil if it does already.
func (o *Object) patch(have *unstructured.Unstructured, now time.Time) ([]byte, error) {
	if o.Status != nil {
		return o.whole(have, now)
	}
	conditions, _, _ := unstructured.NestedSlice(have.Object, "status", "conditions")
	want := o.condition(now)
	at := slices.IndexFunc(conditions, func(c any) bool { m, ok := c.(map[string]any); return ok && m["type"] == Accepted })
	if at >= 0 {
		old := conditions[at].(map[string]any)
		if old["status"] == want["status"] {
			want["lastTransitionTime"] = old["lastTransitionTime"]
		}
	}
	messages, _, _ := unstructured.NestedSlice(have.Object, "status", "validationMessages")
	next := slices.Clone(conditions)
	if at >= 0 {
		next[at] = want
	} else {
		next = append(next, want)
	}
	if equal(conditions, next) && equal(messages, o.messages()) {
		return nil, nil
	}
	status := map[string]any{"conditions": next, "validationMessages": o.messages(), "observedGeneration": nil}
	if o.Generation != 0 {
		status["observedGeneration"] = o.Generation
	}
	return json.Marshal(map[string]any{"status": status, "metadata": map[string]any{"resourceVersion": have.GetResourceVersion()}})
}

// equal compares what was read with what would be written, as JSON.
func equal(a, b []any) bool {
	if len(a) != len(b) {
		return false
	}
	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)
	return errA == nil && errB == nil && string(x) == string(y)
}

// same reports whether nothing has to be written anew.
func (o *Object) same(p *Object) bool {
	return o.Generation == p.Generation && o.Refused == p.Refused && reflect.DeepEqual(o.Findings, p.Findings) && reflect.DeepEqual(o.Status, p.Status)
}
