package kube_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

func refs(c kube.Contents) []string {
	var out []string
	for _, it := range c.Items {
		out = append(out, fmt.Sprintf("%d %s", it.Line, it.Object.Ref))
	}
	return out
}

func faults(fs []kube.Fault) []string {
	var out []string
	for _, f := range fs {
		out = append(out, fmt.Sprintf("%d %s", f.Line, f.Reason))
	}
	return out
}

func TestDecode(t *testing.T) {
	t.Parallel()
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\n"
	for name, tt := range map[string]struct {
		in               string
		items            []string
		faults, warnings []string
	}{
		"nothing":          {in: ""},
		"comments":         {in: "# nothing\n---\n# here\n"},
		"one":              {in: fmt.Sprintf(pod, "a"), items: []string{"1 Pod/default/a"}},
		"several":          {in: "\n# c\n" + fmt.Sprintf(pod, "a") + "---\n\n" + fmt.Sprintf(pod, "b") + "--- # c\n" + fmt.Sprintf(pod, "c"), items: []string{"3 Pod/default/a", "8 Pod/default/b", "12 Pod/default/c"}},
		"end marker":       {in: fmt.Sprintf(pod, "a") + "...\n" + fmt.Sprintf(pod, "b"), items: []string{"1 Pod/default/a", "5 Pod/default/b"}},
		"windows":          {in: "\xef\xbb\xbf" + strings.ReplaceAll(fmt.Sprintf(pod, "a")+"---\n"+fmt.Sprintf(pod, "b"), "\n", "\r\n"), items: []string{"1 Pod/default/a", "5 Pod/default/b"}},
		"JSON":             {in: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"x","namespace":"ignored"}}`, items: []string{"1 Namespace//x"}},
		"list":             {in: "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Node, metadata: {name: m}}\n- {apiVersion: v1, kind: Pod, metadata: {name: p, namespace: x}}", items: []string{"1 Node//m", "1 Pod/x/p"}},
		"typed list":       {in: "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: p}", items: []string{"1 Pod/default/p"}},
		"bad YAML":         {in: fmt.Sprintf(pod, "a") + "---\napiVersion: v1\nkind: Pod\n  bad: indent\n", items: []string{"1 Pod/default/a"}, faults: []string{"7 mapping values are not allowed in this context"}},
		"key twice":        {in: "apiVersion: v1\nkind: Pod\nkind: Pod\n", faults: []string{`3 "kind" is there twice: if another object begins here, a line '---' must be before it`}},
		"not an object":    {in: "just text", faults: []string{"1 want an object, not a text"}},
		"no kind":          {in: "apiVersion: v1\nmetadata: {name: x}", faults: []string{"1 has no apiVersion or no kind"}},
		"no name":          {in: "apiVersion: v1\nkind: Pod", faults: []string{"1 Pod: metadata.name: it is empty"}},
		"slash in name":    {in: fmt.Sprintf(pod, "a/b"), faults: []string{`1 Pod: metadata.name: "a/b" is not a DNS name`}},
		"bad namespace":    {in: "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: b/c}", faults: []string{`1 Pod: metadata.namespace: "b/c" is not a namespace name`}},
		"wrong type":       {in: "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: nine}", faults: []string{"1 Service/default/a: spec.ports: want a list, not a text"}},
		"line of a value":  {in: "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec:\n  ports:\n  - port: x\n", faults: []string{"6 Service/default/a: spec.ports.port: want a number, not a text"}},
		"which line?":      {in: "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec:\n  ports:\n  - port: 1\n  - port: x\n", faults: []string{"1 Service/default/a: spec.ports.port: want a number, not a text"}},
		"unquoted":         {in: "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {x: yes}}", faults: []string{"1 Pod: metadata.labels: want a text, not true or false: write the value in quotes"}},
		"unknown field":    {in: fmt.Sprintf(pod, "a") + "spec:\n  nodeNmae: x\n", items: []string{"1 Pod/default/a"}, warnings: []string{`5 Pod/default/a: unknown field "spec.nodeNmae" has no effect`}},
		"wrong case":       {in: fmt.Sprintf(pod, "a") + "Spec: {nodeName: x}\n", items: []string{"1 Pod/default/a"}, warnings: []string{`4 Pod/default/a: unknown field "Spec" has no effect`}},
		"other kinds":      {in: "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}"},
		"endpoints":        {in: "apiVersion: v1\nkind: Endpoints\nmetadata: {name: e}", warnings: []string{"1 Endpoints are not read: write an EndpointSlice of discovery.k8s.io/v1"}},
		"old slices":       {in: "apiVersion: discovery.k8s.io/v1beta1\nkind: EndpointSlice\nmetadata: {name: e}", warnings: []string{"1 EndpointSlice of discovery.k8s.io/v1beta1 is not read: use discovery.k8s.io/v1"}},
		"entry's typo":     {in: "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: a}\nspec:\n  hosts: [x.example]\n  hostz: [y]\n", items: []string{"1 ServiceEntry/default/a"}},
		"typo and bad":     {in: "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: a}\nspec: {hostz: [y], resolution: MAGIC}\n", faults: []string{`1 ServiceEntry: resolution: "MAGIC" is none of NONE, STATIC, DNS, DNS_ROUND_ROBIN, DYNAMIC_DNS; hostz: unknown field "hostz" has no effect; did you mean hosts?`}},
		"entry, no spec":   {in: "apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: a}\n", faults: []string{"1 WorkloadEntry: it has no spec"}},
		"dashes in string": {in: "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  annotations:\n    x: |\n      a\n      ---\n      b\n", items: []string{"1 Pod/default/a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := kube.Decode([]byte(tt.in), time.Time{})
			if d := cmp.Diff(tt.items, refs(c)); d != "" {
				t.Error("items", d)
			}
			if d := cmp.Diff(tt.faults, faults(c.Faults)); d != "" {
				t.Error("faults", d)
			}
			if d := cmp.Diff(tt.warnings, faults(c.Warnings)); d != "" {
				t.Error("warnings", d)
			}
		})
	}
}

func TestDecodeCountsIgnoredKinds(t *testing.T) {
	t.Parallel()
	c := kube.Decode([]byte("{apiVersion: apps/v1, kind: Deployment}\n---\n{apiVersion: apps/v1, kind: Deployment}\n---\n{apiVersion: v1, kind: Secret}"), time.Time{})
	if d := cmp.Diff(map[string]int{"apps/Deployment": 2, "/Secret": 1}, c.Ignored); d != "" {
		t.Error(d)
	}
}

// The revision is the content's, wherever it stands, and the time is the file's.
func TestDecodeRevision(t *testing.T) {
	t.Parallel()
	at := time.Unix(1, 0)
	a := kube.Decode([]byte("# a\napiVersion: v1\nkind: Pod\nmetadata: {name: x}"), at).Items[0].Object
	b := kube.Decode([]byte("kind: Pod\nmetadata:\n  name: x\napiVersion: v1"), at).Items[0].Object
	c := kube.Decode([]byte("apiVersion: v1\nkind: Pod\nmetadata: {name: x, labels: {a: b}}"), at).Items[0].Object
	if a.Revision != b.Revision || a.Revision == c.Revision || a.Revision == "" {
		t.Errorf("revisions %q %q %q", a.Revision, b.Revision, c.Revision)
	}
	if !a.Time.Equal(at) {
		t.Errorf("time %v", a.Time)
	}
}

// A small file must not become a large one in memory.
func TestDecodeAliasBomb(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 12; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d,", i-1), 9), i-1)
	}
	c := kube.Decode([]byte(b.String()), time.Time{})
	if len(c.Items) != 0 || len(c.Faults) != 1 || !strings.Contains(c.Faults[0].Reason, "excessive aliasing") {
		t.Errorf("got %+v", c.Faults)
	}
}

func TestDecodeDeepNesting(t *testing.T) {
	t.Parallel()
	for _, in := range []string{strings.Repeat("[", 200_000), strings.Repeat("{a: ", 100_000), strings.Repeat("- ", 100_000)} {
		if c := kube.Decode([]byte(in), time.Time{}); len(c.Faults) == 0 || len(c.Items) > 0 {
			t.Errorf("%.10q…: %d faults, %d items", in, len(c.Faults), len(c.Items))
		}
	}
}

// FuzzDecode: no input panics, in decoding or conversion; the order of objects does not matter, an object that is refused
// leaves what it was, and deleting everything leaves nothing.
func FuzzDecode(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.yaml")
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		for _, doc := range strings.Split(string(data), "\n---\n") {
			f.Add([]byte(doc))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := kube.Decode(data, time.Time{})
		for _, fault := range c.Faults {
			if strings.HasPrefix(fault.Reason, "can't be read:") {
				t.Fatalf("panic: %s", fault.Reason)
			}
			if fault.Line < 1 {
				t.Fatalf("line %d: %s", fault.Line, fault.Reason)
			}
		}
		for _, f := range c.Faults {
			if f.Broken != nil {
				c.Items = append(c.Items, kube.Item{Line: f.Line, Object: *f.Broken})
			}
		}
		one, two := newStore(), newStore()
		for i, it := range c.Items {
			if !later(c.Items[i+1:], it.Object) {
				one.Set(it.Object)
			}
		}
		for i := len(c.Items) - 1; i >= 0; i-- {
			if o := c.Items[i].Object; !later(c.Items[i+1:], o) {
				two.Set(o)
			}
		}
		if d := cmp.Diff(dump(one), dump(two)); d != "" {
			t.Fatal("order matters:", d)
		}
		for _, ps := range one.Problems() {
			if strings.Contains(strings.Join(ps, " "), "conversion failed") {
				t.Fatal(ps)
			}
		}
		for _, it := range c.Items {
			one.Set(it.Object) // the versions of an object in turn
			noPanics(t, one)
		}
		for _, it := range c.Items {
			one.Delete(it.Object.Ref)
		}
		if n := one.State().Len(); n != 0 {
			t.Fatalf("%d rows left", n)
		}
	})
}

func later(items []kube.Item, o kube.Object) bool {
	for _, it := range items {
		if it.Object.Ref == o.Ref {
			return true
		}
	}
	return false
}

// FuzzServiceEntry: any message that the wire can carry converts without a panic.
func FuzzServiceEntry(f *testing.F) {
	seed := &networking.ServiceEntry{Hosts: []string{"a.example"}, Ports: []*networking.ServicePort{{Number: 80, Name: "http"}},
		Resolution: networking.ServiceEntry_STATIC, Endpoints: []*networking.WorkloadEntry{{Address: "10.0.0.1"}}}
	data, err := proto.Marshal(seed)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		se, we := &networking.ServiceEntry{}, &networking.WorkloadEntry{}
		s := newStore()
		if proto.Unmarshal(data, se) == nil {
			o, _ := kube.NewObject("", &kube.ServiceEntry{Spec: se})
			s.Set(o)
		}
		if proto.Unmarshal(data, we) == nil {
			o, _ := kube.NewObject("", &kube.WorkloadEntry{Spec: we})
			s.Set(o)
		}
		for _, ps := range s.Problems() {
			if strings.Contains(strings.Join(ps, " "), "conversion failed") {
				t.Fatal(ps)
			}
		}
	})
}
