package kube

import (
	"testing"

	networking "istio.io/api/networking/v1alpha3"
)

// What can't be decoded is told with its field, where the decoder itself says only at which column it is.
func TestUndecodableNamesTheField(t *testing.T) {
	t.Parallel()
	for js, want := range map[string][2]string{
		`{"hosts":["ä"],"http":[{},{"timeout":"1x"}]}`:             {`http[1].timeout: "1x" is not a duration: write a number with its unit, such as 500ms, 10s, 5m or 1h`, "timeout"},
		`{"http":[{"route":[{"weight":1},{"weight":"many"}]}]}`:    {`http[0].route[1].weight: it is a number, not "many"`, "weight"},
		`{"http":[{"retries":{"perTryTimeout":"315576000001s"}}]}`: {`http[0].retries.perTryTimeout: "315576000001s" is longer than a duration can be`, "perTryTimeout"},
		`{"http":[{"route":{"a":1}}]}`:                             {`http[0].route: it is a list: each of its items begins with '- '`, "route"},
	} {
		_, err := unmarshal([]byte(js), &networking.VirtualService{})
		if err == nil {
			t.Errorf("%s is taken", js)
			continue
		}
		if reason, field := Reason(err); reason != want[0] || field != want[1] {
			t.Errorf("%s: %q, field %q, want %q", js, reason, field, want)
		}
	}
}

func FuzzFieldAt(f *testing.F) {
	f.Add([]byte(`{"a":[{"b":1}]}`), 9)
	f.Fuzz(func(_ *testing.T, js []byte, column int) { fieldAt(js, column) })
}
