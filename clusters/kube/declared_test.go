package kube_test

import (
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

const goodRegistry = `
apiVersion: isthmus.io/v1alpha1
kind: Registry
metadata: {name: legacy, namespace: istio-system, generation: 3}
spec:
  provider: consul
  addresses: ["consul.example.com:8500"]
`

// objectsOf decodes a file, which must be one that can be read.
func objectsOf(t *testing.T, text string) (out []kube.Object) {
	t.Helper()
	c := kube.Decode([]byte(text), time.Time{})
	if len(c.Faults) > 0 {
		t.Fatalf("%+v", c.Faults)
	}
	for _, it := range c.Items {
		out = append(out, it.Object)
	}
	return out
}

func declaredRow(t *testing.T, s *kube.Store, key string) *model.Config {
	t.Helper()
	o, _ := s.State().Row(model.RowKey{Kind: model.RowConfig, Key: key})
	c, _ := o.(*model.Config)
	if c == nil {
		t.Fatalf("no row %s", key)
	}
	return c
}

// A Registry with an error leaves the one before it in force, and others alone.
func TestDeclaredRegistryInQuarantine(t *testing.T) {
	t.Parallel()
	s := kube.NewStore(kube.Converter{})
	s.Apply(objectsOf(t, goodRegistry), nil)
	row := declaredRow(t, s, "Registry/istio-system/legacy")
	if spec := row.Spec.(*api.RegistrySpec); spec.Provider != api.Consul || row.Generation != 3 || row.Refused || len(row.Findings) > 0 {
		t.Fatalf("%+v", row)
	}
	for change, want := range map[string]struct{ field, code, message string }{
		"addresses: [\"127.0.0,1:8500\"]":                       {"addresses[0]", "InvalidAddress", "neither"},
		"addresses: [\"consul.example.com:8500\"]\n  adress: 1": {"adress", "UnknownField", "adress"},
		"addresses: 7": {"", "Unreadable", "addresses"},
	} {
		bad := strings.Replace(goodRegistry, "addresses: [\"consul.example.com:8500\"]", change, 1)
		c := kube.Decode([]byte(bad), time.Time{})
		objects := []kube.Object{}
		for _, it := range c.Items {
			objects = append(objects, it.Object)
		}
		for _, f := range c.Faults {
			objects = append(objects, *f.Broken)
		}
		s.Apply(objects, nil)
		row := declaredRow(t, s, "Registry/istio-system/legacy")
		if !row.Refused || row.Spec.(*api.RegistrySpec).Addresses[0] != "consul.example.com:8500" || len(row.Findings) == 0 {
			t.Fatalf("%s: %+v", change, row)
		}
		if f := row.Findings[0]; f.Field != want.field || f.Code != want.code || !strings.Contains(f.Message, want.message) || f.Severity != model.SeverityError {
			t.Errorf("%s: %+v", change, f)
		}
		s.Apply(objectsOf(t, goodRegistry), nil)
		if declaredRow(t, s, "Registry/istio-system/legacy").Refused {
			t.Errorf("%s: refused after it was mended", change)
		}
	}
}

// A McpBridge is read whatever else it has; what can't be served is told and costs itself.
func TestMcpBridgeIsTakenAsItIs(t *testing.T) {
	t.Parallel()
	s := kube.NewStore(kube.Converter{})
	s.Apply(objectsOf(t, `
apiVersion: networking.higress.io/v1
kind: McpBridge
metadata: {name: default, namespace: istio-system}
spec:
  somethingNew: {a: 1}
  registries:
  - {type: nacos2, name: trade, domain: nacos.example.com, port: 8848, nacosRefreshInterval: 30, nacosAccessKey: id, nacosSecretKey: hush, more: x}
  - {type: zookeeper, name: dubbo, domain: zk.example.com, port: 2181}
`), nil)
	row := declaredRow(t, s, "McpBridge/istio-system/default")
	if spec := row.Spec.(*api.McpBridgeSpec); row.Refused || len(spec.Registries) != 2 || spec.Registries[0].NacosSecretKey != "hush" {
		t.Fatalf("%+v", row)
	}
	var got []string
	for _, f := range row.Findings {
		got = append(got, f.Severity.String()+" "+f.Field+" "+f.Code)
	}
	text := strings.Join(got, "\n")
	for _, want := range []string{"warning registries[1].type InvalidInBridge", "info registries[0].nacosRefreshInterval InvalidDuration", "info registries[0].more UnknownField", "info somethingNew UnknownField"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	for _, p := range s.Problems() {
		if strings.Contains(strings.Join(p, " "), "hush") {
			t.Errorf("a credential is told: %s", p)
		}
	}
}

// Objects of these groups that are none of ours are passed over.
func TestOtherKindsOfDeclaredGroups(t *testing.T) {
	t.Parallel()
	c := kube.Decode([]byte("apiVersion: networking.higress.io/v1\nkind: Http2Rpc\nmetadata: {name: x}\nspec: {}\n"), time.Time{})
	if len(c.Items) > 0 || len(c.Faults) > 0 || c.Ignored["networking.higress.io/Http2Rpc"] != 1 {
		t.Errorf("%+v", c)
	}
}
