package kube_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	networkingv1beta1 "istio.io/api/networking/v1beta1"
	telemetry "istio.io/api/telemetry/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
	"github.com/isthmus-mesh/isthmus/test/golden"
)

// Settings with fields that have no effect say so, with reasons, and are in force all the same.
func TestMeshSettingsWithoutEffect(t *testing.T) {
	t.Parallel()
	const text = "connectTimeout: 1s\noutboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS}\ntrustDomainAliases: [a]\ndefaultProviders: {accessLogging: [envoy], tracing: [x]}"
	s, faults, warnings := kube.ParseMesh(model.ConfigMesh, []byte(text))
	if len(faults)+len(warnings) > 0 {
		t.Fatal(faults, warnings)
	}
	row := s.Row("mesh", time.Unix(1, 0), model.Source{Revision: "1"})
	want := []string{"outboundTrafficPolicy.mode=ALLOW_ANY_DYNAMIC_DNS", "trustDomainAliases"}
	if !slices.Equal(row.NotServedFields, want) || len(row.Findings) != len(want) || row.Refused || row.Spec.(*meshconfig.MeshConfig).ConnectTimeout == nil {
		t.Errorf("%+v", row)
	}
	for i, f := range row.Findings {
		if f.Severity != model.SeverityWarning || f.Field != want[i] || f.Message == "" || f.Object != (model.ObjectKey{Kind: model.ConfigMesh, Name: "mesh"}) {
			t.Errorf("%+v", f)
		}
	}
}

// What proxies don't know of ciphers and curves is told with its line, and the rest is in force.
func TestMeshTLSThatProxiesDoNotKnow(t *testing.T) {
	t.Parallel()
	const text = "tlsDefaults:\n  cipherSuites: [AES128-SHA, NONSENSE]\n  ecdhCurves: [P-512]\nmeshMTLS:\n  cipherSuites: [TLS_AES_128_GCM_SHA256]\n"
	s, faults, warnings := kube.ParseMesh(model.ConfigMesh, []byte(text))
	var got []string
	for _, w := range warnings {
		got = append(got, fmt.Sprintf("%d %s", w.Line, w.Reason))
	}
	want := []string{`2 tlsDefaults.cipherSuites: proxies don't know "NONSENSE", so it is left out`, `3 tlsDefaults.ecdhCurves: proxies don't know "P-512", so it is left out`,
		`5 meshMTLS.cipherSuites: proxies don't know "TLS_AES_128_GCM_SHA256", so it is left out`}
	if s == nil || len(faults) > 0 || !slices.Equal(got, want) {
		t.Errorf("%v %q", faults, got)
	}
}

// documented are the kinds whose fields the documentation lists.
var documented = []struct {
	kind string
	spec protoreflect.ProtoMessage
}{
	{model.ConfigVirtualService, &networking.VirtualService{}}, {model.ConfigDestinationRule, &networking.DestinationRule{}}, {model.ConfigGateway, &networking.Gateway{}},
	{model.ConfigServiceEntry, &networking.ServiceEntry{}}, {model.ConfigWorkloadEntry, &networking.WorkloadEntry{}}, {model.ConfigWorkloadGroup, &networking.WorkloadGroup{}},
	{model.ConfigSidecar, &networking.Sidecar{}}, {model.ConfigProxyConfig, &networkingv1beta1.ProxyConfig{}}, {model.ConfigTelemetry, &telemetry.Telemetry{}},
	{model.ConfigMesh, &meshconfig.MeshConfig{}},
}

// TestFieldTable: the documentation lists every field of the API, and says of each whether it has an effect. Run with -update to
// write it anew.
func TestFieldTable(t *testing.T) {
	t.Parallel()
	const file, begin, end = "../../docs/istio-compatibility.md", "<!-- fields: written by go test ./clusters/kube -run TestFieldTable -update -->\n", "<!-- end of fields -->\n"
	doc, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(doc), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatal("no place for the fields in the document")
	}
	var b strings.Builder
	for _, k := range documented {
		b.WriteString("\n**" + k.kind + "**\n\n| Part | Fields with effect | Without effect |\n|---|---|---|\n")
		table := fieldTable{out: &b, kind: k.kind, without: map[string]string{}, seen: map[protoreflect.FullName]string{}}
		for _, f := range kube.NotServed() {
			if f.Kind == k.kind {
				table.without[f.Field] = f.Reason
			}
		}
		table.part("", k.spec.ProtoReflect().Descriptor())
	}
	golden.Compare(t, file, before+begin+b.String()+"\n"+end+after)
}

// fieldTable writes the rows of one kind: one for each message with the names of its fields.
type fieldTable struct {
	out     *strings.Builder
	kind    string
	without map[string]string
	seen    map[protoreflect.FullName]string // where a message has its row already
}

func (f *fieldTable) part(path string, d protoreflect.MessageDescriptor) {
	prefix := path
	if path != "" {
		prefix += "."
	}
	f.seen[d.FullName()] = path
	var with []string
	var without reasons
	var below []protoreflect.FieldDescriptor
	for i := range d.Fields().Len() {
		field := d.Fields().Get(i)
		name := field.JSONName()
		switch reason, no := f.without[prefix+name]; {
		case no:
			without.add("`"+name+"`", reason)
		case !f.message(field):
			with = append(with, "`"+name+"`")
			for _, value := range f.values(prefix+name, field) {
				without.add("`"+name+": "+value+"`", f.without[prefix+name+"="+value])
			}
		case f.small(prefix+name, field.Message()):
			with = append(with, "`"+name+"`"+names(field.Message()))
		default:
			with = append(with, f.row(prefix+name, field, &below))
		}
	}
	cell := "`" + path + "`"
	if path == "" {
		cell = ""
	}
	f.out.WriteString("| " + cell + " | " + strings.Join(with, ", ") + " | " + without.String() + " |\n")
	for _, field := range below {
		f.part(prefix+field.JSONName(), field.Message())
	}
}

// row names a field whose message has a row of its own, or is told elsewhere.
func (f *fieldTable) row(path string, field protoreflect.FieldDescriptor, below *[]protoreflect.FieldDescriptor) string {
	name := "`" + field.JSONName() + "`"
	if at, told := f.seen[field.Message().FullName()]; told && at != "" && f.same(path, at) {
		return name + " (as `" + at + "`)"
	}
	f.seen[field.Message().FullName()] = path
	*below = append(*below, field)
	return name
}

// message reports whether a field has fields of its own.
func (f *fieldTable) message(field protoreflect.FieldDescriptor) bool {
	return field.Message() != nil && !field.IsMap() && field.Message().FullName().Parent() != "google.protobuf"
}

// small reports whether the fields of a message fit beside its name: few, none a message, all with effect.
func (f *fieldTable) small(path string, d protoreflect.MessageDescriptor) bool {
	if d.Fields().Len() > 4 {
		return false
	}
	for i := range d.Fields().Len() {
		field := d.Fields().Get(i)
		if _, no := f.without[path+"."+field.JSONName()]; no || f.message(field) || len(f.values(path+"."+field.JSONName(), field)) > 0 {
			return false
		}
	}
	return true
}

// same reports whether what is without effect below two places is the same.
func (f *fieldTable) same(a, b string) bool {
	below := func(at string) (out []string) {
		for path := range f.without {
			if rest, ok := strings.CutPrefix(path, at+"."); ok {
				out = append(out, rest)
			}
		}
		slices.Sort(out)
		return out
	}
	return slices.Equal(below(a), below(b))
}

// values lists the values of an enum without effect.
func (f *fieldTable) values(path string, field protoreflect.FieldDescriptor) (out []string) {
	if field.Enum() == nil {
		return nil
	}
	for i := range field.Enum().Values().Len() {
		value := string(field.Enum().Values().Get(i).Name())
		if _, no := f.without[path+"="+value]; no {
			out = append(out, value)
		}
	}
	return out
}

// names lists the fields of a message in parentheses.
func names(d protoreflect.MessageDescriptor) string {
	var out []string
	for i := range d.Fields().Len() {
		out = append(out, "`"+d.Fields().Get(i).JSONName()+"`")
	}
	if len(out) == 0 {
		return ""
	}
	return " (" + strings.Join(out, ", ") + ")"
}

// reasons are why fields have no effect, each with the fields that it is for.
type reasons struct {
	order  []string
	fields map[string][]string
}

func (r *reasons) add(field, reason string) {
	if r.fields == nil {
		r.fields = map[string][]string{}
	}
	if r.fields[reason] == nil {
		r.order = append(r.order, reason)
	}
	r.fields[reason] = append(r.fields[reason], field)
}

func (r *reasons) String() string {
	var out []string
	for _, reason := range r.order {
		out = append(out, strings.Join(r.fields[reason], ", ")+": "+reason)
	}
	return strings.Join(out, "; ")
}
