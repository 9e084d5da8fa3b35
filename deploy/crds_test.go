package deploy_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/test/golden"
)

type object = map[string]any

// definition is a kind that is defined in crds.
type definition struct {
	kind, plural, short string
	spec, status        any
	columns             []object
}

func definitions() []definition {
	column := func(name, kind, path string, priority int) object {
		out := object{"name": name, "type": kind, "jsonPath": path}
		if priority > 0 {
			out["priority"] = priority
		}
		return out
	}
	age := column("Age", "date", ".metadata.creationTimestamp", 0)
	return []definition{
		{api.KindRegistry, "registries", "", api.RegistrySpec{}, api.RegistryStatus{}, []object{
			column("Provider", "string", ".spec.provider", 0), column("State", "string", ".status.state", 0), column("Services", "integer", ".status.services", 0),
			column("Endpoints", "integer", ".status.endpoints", 0), column("Reason", "string", ".status.reason", 1), age,
		}},
		{api.KindFederatedService, "federatedservices", "fsvc", api.FederatedServiceSpec{}, api.FederatedServiceStatus{}, []object{
			column("Host", "string", ".spec.host", 0), column("Policy", "string", ".spec.policy", 0), column("Accepted", "string", `.status.conditions[?(@.type=="Accepted")].status`, 0), age,
		}},
	}
}

// bounds are what API servers check of fields, by "Type.field" or "Type": words, bounds and rules of which the hub has the same in
// api/v1alpha1.
var bounds = map[string]object{
	"RegistrySpec": {"x-kubernetes-validations": []object{
		{"rule": "!has(self.consul) || self.provider == 'consul'", "message": "consul is for the provider consul"},
		{"rule": "!has(self.nacos) || self.provider == 'nacos'", "message": "nacos is for the provider nacos"},
		{"rule": "!has(self.mcp) || self.provider == 'mcp'", "message": "mcp is for the provider mcp"},
		{"rule": "(has(self.addresses) && size(self.addresses) > 0) || (has(self.nacos) && has(self.nacos.addressServer))", "message": "addresses are missing"},
	}},
	"RegistrySpec.provider":             {"enum": []any{api.Consul, api.Nacos, api.MCP}},
	"RegistrySpec.addresses":            {"maxItems": 32},
	"Credentials.secretName":            {"minLength": 1, "maxLength": 253},
	"TLS":                               {"x-kubernetes-validations": []object{{"rule": "self.mode != 'MUTUAL' || has(self.secretName)", "message": "MUTUAL needs secretName"}}},
	"TLS.mode":                          {"enum": []any{api.TLSDisabled, api.TLSSimple, api.TLSMutual}},
	"ConsulSpec.consistency":            {"enum": []any{"default", "stale", "consistent"}},
	"NacosSpec.protectThreshold":        {"enum": []any{"ignore", "honour"}},
	"NacosSpec.contextPath":             {"pattern": "^/"},
	"HostNaming.mode":                   {"enum": []any{api.NamingDNS, api.NamingHigress}},
	"Health.warning":                    {"enum": []any{"healthy", "unhealthy"}},
	"EmptyPolicy.mode":                  {"enum": []any{api.EmptyImmediate, api.EmptyHold, api.EmptyProtect}},
	"EmptyPolicy.percent":               {"minimum": 0, "maximum": 100},
	"Limits.requestsPerSecond":          {"minimum": 0, "maximum": 10000},
	"Limits.concurrency":                {"minimum": 0, "maximum": 10000},
	"Limits.maxServices":                {"minimum": 0, "maximum": 1000000},
	"FederatedServiceSpec.host":         {"minLength": 1, "maxLength": 253},
	"FederatedServiceSpec.ports":        {"minItems": 1, "maxItems": 64},
	"FederatedServiceSpec.policy":       {"enum": []any{api.FederateUnion, api.FederateFailover, api.FederateWeighted}},
	"FederatedServiceSpec.sources":      {"minItems": 1, "maxItems": 64},
	"FederatedPort.name":                {"minLength": 1, "maxLength": 63},
	"FederatedPort.number":              {"minimum": 1, "maximum": 65535},
	"FederatedSource":                   {"x-kubernetes-validations": []object{{"rule": "has(self.host) != has(self.selector)", "message": "either host or selector"}}},
	"FederatedSource.weight":            {"maximum": 1000000},
	"FederatedSource.priority":          {"maximum": 127},
	"RegistryStatus.effective":          {"x-kubernetes-preserve-unknown-fields": true},
	"RegistryStatus.conditions":         {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": []any{"type"}},
	"FederatedServiceStatus.conditions": {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": []any{"type"}},
}

// schemas makes schemas of the structs of api/v1alpha1, with what their comments say.
type schemas struct {
	comments map[string]string // by "Type" and "Type.Field"
	used     map[string]bool   // keys of bounds
}

// readComments reads the comments of the structs.
func readComments(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../api/v1alpha1/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if g, ok := n.(*ast.GenDecl); ok && len(g.Specs) == 1 {
				if spec, ok := g.Specs[0].(*ast.TypeSpec); ok {
					out[spec.Name.Name] = text(g.Doc)
				}
			}
			if spec, ok := n.(*ast.TypeSpec); ok {
				if s, ok := spec.Type.(*ast.StructType); ok {
					for _, field := range s.Fields.List {
						for _, name := range field.Names {
							out[spec.Name.Name+"."+name.Name] = strings.TrimSpace(text(field.Doc) + " " + text(field.Comment))
						}
					}
				}
			}
			return true
		})
	}
	return out
}

func text(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }

// of gives the schema of a type.
func (s *schemas) of(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[metav1.Duration]():
		return object{"type": "string", "pattern": `^[0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h)([0-9.]+(ns|us|µs|ms|s|m|h))*$`}
	case reflect.TypeFor[metav1.Time]():
		return object{"type": "string", "format": "date-time"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.of(t.Elem())
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int32, reflect.Int64:
		return object{"type": "integer", "format": t.Kind().String()}
	case reflect.Uint16:
		return object{"type": "integer", "minimum": 0, "maximum": 65535}
	case reflect.Uint32:
		return object{"type": "integer", "format": "int64", "minimum": 0}
	case reflect.Slice:
		return object{"type": "array", "items": s.of(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": s.of(t.Elem())}
	case reflect.Struct:
		return s.fields(t)
	}
	panic("no schema for " + t.String())
}

func (s *schemas) fields(t reflect.Type) object {
	properties, required := object{}, []any{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		p := s.of(f.Type)
		if doc := s.comments[t.Name()+"."+f.Name]; doc != "" {
			p["description"] = doc
		} else if doc := s.comments[inner(f.Type).Name()]; doc != "" {
			p["description"] = doc
		}
		s.bound(p, t.Name()+"."+name)
		if properties[name] = p; !strings.Contains(options, "omitempty") && !(t.Name() == "RegistrySpec" && name == "addresses") {
			required = append(required, name)
		}
	}
	out := object{"type": "object", "properties": properties}
	if len(required) > 0 {
		out["required"] = required
	}
	s.bound(out, t.Name())
	return out
}

// inner is the type of the items, or of what a pointer leads to.
func inner(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t
}

// bound adds what is checked besides.
func (s *schemas) bound(to object, key string) {
	for k, v := range bounds[key] {
		to[k] = v
	}
	s.used[key] = true
}

// manifest is the definition of a kind.
func (s *schemas) manifest(d definition) object {
	spec, status := s.of(reflect.TypeOf(d.spec)), s.of(reflect.TypeOf(d.status))
	spec["description"], status["description"] = s.comments[d.kind+"Spec"], s.comments[d.kind+"Status"]
	if effective, ok := status["properties"].(object)["effective"].(object); ok { // as the spec is: once is enough
		delete(effective, "properties")
		delete(effective, "required")
		delete(effective, "x-kubernetes-validations")
	}
	names := object{"kind": d.kind, "listKind": d.kind + "List", "plural": d.plural, "singular": strings.ToLower(d.kind), "categories": []any{"isthmus"}}
	if d.short != "" {
		names["shortNames"] = []any{d.short}
	}
	return object{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": object{"name": d.plural + "." + api.Group},
		"spec": object{
			"group": api.Group, "names": names, "scope": "Namespaced",
			"versions": []any{object{
				"name": api.Version, "served": true, "storage": true, "subresources": object{"status": object{}}, "additionalPrinterColumns": d.columns,
				"schema": object{"openAPIV3Schema": object{
					"type": "object", "required": []any{"spec"},
					"properties": object{"apiVersion": object{"type": "string"}, "kind": object{"type": "string"}, "metadata": object{"type": "object"}, "spec": spec, "status": status},
				}},
			}},
		},
	}
}

// TestDefinitionsAreTheStructs: each field of the structs is in the definitions, with what its comment says, and no other.
func TestDefinitionsAreTheStructs(t *testing.T) {
	t.Parallel()
	s := &schemas{comments: readComments(t), used: map[string]bool{}}
	for _, d := range definitions() {
		out, err := yaml.Marshal(s.manifest(d))
		if err != nil {
			t.Fatal(err)
		}
		head := fmt.Sprintf("# The kind %s, made of the structs in api/v1alpha1: 'go test ./deploy -update' writes it anew.\n", d.kind)
		golden.Compare(t, filepath.Join("crds", api.Group+"_"+d.plural+".yaml"), head+string(out))
	}
	for key := range bounds {
		if !s.used[key] {
			t.Errorf("there is no %s to bound", key)
		}
	}
}
