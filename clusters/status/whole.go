package status

import (
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// whole is patch for an object whose status is all ours: what it does not say any more goes.
func (o *Object) whole(have *unstructured.Unstructured, now time.Time) ([]byte, error) {
	text, err := json.Marshal(o.Status)
	if err != nil {
		return nil, err
	}
	want := map[string]any{}
	if err := json.Unmarshal(text, &want); err != nil {
		return nil, err
	}
	old, _, _ := unstructured.NestedMap(have.Object, "status")
	conditions, _ := want["conditions"].([]any)
	before, _ := old["conditions"].([]any)
	for _, c := range conditions {
		timed(c, before, now)
	}
	if equal([]any{old}, []any{want}) || len(old)+len(want) == 0 {
		return nil, nil
	}
	for k := range old {
		if _, ok := want[k]; !ok {
			want[k] = nil
		} else {
			without(old[k], want[k])
		}
	}
	return json.Marshal(map[string]any{"status": want, "metadata": map[string]any{"resourceVersion": have.GetResourceVersion()}})
}

// timed gives a condition the time since when it has its status.
func timed(condition any, before []any, now time.Time) {
	c, ok := condition.(map[string]any)
	if !ok {
		return
	}
	c["lastTransitionTime"] = now.UTC().Format(time.RFC3339)
	for _, b := range before {
		if old, ok := b.(map[string]any); ok && old["type"] == c["type"] && old["status"] == c["status"] && old["lastTransitionTime"] != nil {
			c["lastTransitionTime"] = old["lastTransitionTime"]
		}
	}
}

// without makes a merge of want into old remove what want does not have.
func without(old, want any) {
	o, ok := old.(map[string]any)
	w, both := want.(map[string]any)
	if !ok || !both {
		return
	}
	for k := range o {
		if _, there := w[k]; !there {
			w[k] = nil
		} else {
			without(o[k], w[k])
		}
	}
}
