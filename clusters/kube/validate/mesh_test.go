package validate_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	meshconfig "istio.io/api/mesh/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube/validate"
	"github.com/isthmus-mesh/isthmus/test/golden"
)

// TestMesh: formats of logs with commands that Envoy would refuse a listener for are told, and what is written in their place.
func TestMesh(t *testing.T) {
	t.Parallel()
	var got bytes.Buffer
	for _, text := range []string{
		`accessLogFormat: "%BOGUS% %DURATION%"`,
		`accessLogFormat: "%REQ(:PATH)% 100%%"`,
		`{accessLogEncoding: JSON, accessLogFormat: '{"a": "%BOGUS%", "b": {"c": ["%DURATION%", "50%"]}}'}`,
		`{accessLogEncoding: JSON, accessLogFormat: '%DURATION%'}`,
		`accessLogEncoding: JSON`,
		`extensionProviders: [{name: a, envoyFileAccessLog: {path: /x, logFormat: {text: "%BOGUS%"}}}, {name: b, envoyFileAccessLog: {path: /x, logFormat: {labels: {a: "%REQ%", n: 5}}}}]`,
		`extensionProviders: [{name: a, envoyOtelAls: {service: x, port: 1, logFormat: {text: "%BOGUS%", labels: {a: "%REQ%", b: "%PROTOCOL%", c: {d: e}}}}}, {name: b, prometheus: {}}]`,
	} {
		m := &meshconfig.MeshConfig{}
		if err := yaml.Unmarshal([]byte(text), m); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&got, text)
		for _, f := range validate.Mesh(model.ObjectKey{Kind: model.ConfigMesh, Name: "mesh"}, m) {
			fmt.Fprintf(&got, "  %-7s %s: %s [%s]\n", f.Severity, f.Field, f.Message, f.Code)
		}
	}
	golden.Compare(t, filepath.Join("testdata", "mesh.golden"), got.String())
}
