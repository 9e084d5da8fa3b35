package kube_test

import (
	"errors"
	"testing"

	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

func TestReason(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][2]string{
		"proto:\u00a0(line 1:34): invalid value for enum field mode: \"FOO\"":                              {`invalid value for enum field mode: "FOO"`, "mode"},
		"proto: syntax error (line 1:1): unexpected token \"x\"":                                           {`syntax error unexpected token "x"`, ""},
		"json: cannot unmarshal string into Go value of type kube.listMeta":                                {"want an object, not a text", ""},
		"json: cannot unmarshal string into Go struct field ServicePort.spec.ports.port of type int32":     {"spec.ports.port: want a number, not a text", "port"},
		"json: cannot unmarshal number 1.5 into Go struct field ServicePort.spec.ports.port of type int32": {"spec.ports.port: want a number, not the number 1.5", "port"},
		"json: cannot unmarshal object into Go struct field PodSpec.spec.x of type []v1.Container":         {"spec.x: want a list, not an object", "x"},
		"json: cannot unmarshal array into Go struct field PodSpec.spec.hostNetwork of type *bool":         {"spec.hostNetwork: want true or false, not a list", "hostNetwork"},
		"it has no spec": {"it has no spec", ""},
	} {
		reason, field := kube.Reason(errors.New(in))
		if reason != want[0] || field != want[1] {
			t.Errorf("%q: %q, field %q", in, reason, field)
		}
	}
}
