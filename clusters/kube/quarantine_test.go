package kube_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

// judged is an object of a kind that is checked: a good version, another one, and one with an error.
type judged struct {
	ref               model.ObjectKey
	good, better, bad string
	says              string // the problem of bad
	row               model.RowKey
}

func quarantined() map[string]judged {
	entry := func(host, address string) string {
		return fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: x, namespace: demo}\nspec: {hosts: [%s], addresses: [%s], resolution: DNS, ports: [{name: http, number: 80, protocol: HTTP}]}", host, address)
	}
	workload := func(address string) string {
		return "apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: x, namespace: demo}\nspec: {address: \"" + address + "\"}"
	}
	route := func(weight, mode string) string {
		return "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: x, namespace: demo}\nspec: {hosts: [a.example], http: [{route: [{destination: {host: a.example}, weight: " + weight + "}], redirect: " + mode + "}]}"
	}
	rule := func(host, mode string) string {
		return "apiVersion: networking.istio.io/v1alpha3\nkind: DestinationRule\nmetadata: {name: x, namespace: demo}\nspec: {host: " + host + ", trafficPolicy: {tls: {mode: " + mode + "}}}"
	}
	config := func(kind string) (model.ObjectKey, model.RowKey) {
		ref := model.ObjectKey{Kind: kind, Namespace: "demo", Name: "x"}
		return ref, model.RowKey{Kind: model.RowConfig, Key: ref.String()}
	}
	vs, vsRow := config(kube.KindVirtualService)
	dr, drRow := config(kube.KindDestinationRule)
	se, _ := config(kube.KindServiceEntry)
	we, _ := config(kube.KindWorkloadEntry)
	return map[string]judged{
		"VirtualService":  {vs, route("1", "null"), route("2", "null"), route("-1", "null"), "http[0].route[0].weight: ", vsRow},
		"exclusive":       {vs, route("1", "null"), route("2", "null"), route("1", "{uri: /x}"), "http[0]", vsRow},
		"DestinationRule": {dr, rule("a.example", "ISTIO_MUTUAL"), rule("a.example", "DISABLE"), rule("a..example", "ISTIO_MUTUAL"), `host: "a..example" is not a host`, drRow},
		"ServiceEntry": {se, entry("a.example", "192.0.2.1"), entry("a.example", "192.0.2.2"), entry("a.example", "nonsense"), `addresses[0]: "nonsense"`,
			model.RowKey{Kind: model.RowService, Key: "ServiceEntry/demo/x/a.example"}},
		"WorkloadEntry": {we, workload("10.0.0.1"), workload("10.0.0.2"), workload("10.0.0.1:80"), `address: "10.0.0.1:80"`,
			model.RowKey{Kind: model.RowWorkload, Key: "WorkloadEntry/demo/x"}},
	}
}

// fromFile and fromServer are the ways in which objects come.
func fromFile(t *testing.T, text string) kube.Object { return objects(t, text)[0] }

func fromServer(t *testing.T, text string) kube.Object {
	t.Helper()
	js, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	o, warnings, err := kube.DecodeJSON(js)
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	return o
}

// inForceNow is the row of what is in force, as text without what says that a newer version is refused; "" if there is none.
func inForceNow(t *testing.T, s *kube.Store, at model.RowKey) string {
	t.Helper()
	o, ok := s.State().Row(at)
	if !ok {
		return ""
	}
	if c, ok := o.(*model.Config); ok {
		if c.Spec == nil {
			return ""
		}
		return value(c.Spec)
	}
	return dumpRow(at, o)
}

// TestQuarantine: an object with an error keeps its last good version, wherever it comes from. Without one it is not in force.
// It is put right, gets worse, is deleted, and read anew.
func TestQuarantine(t *testing.T) {
	t.Parallel()
	for name, k := range quarantined() {
		for way, decode := range map[string]func(*testing.T, string) kube.Object{"file": fromFile, "server": fromServer} {
			t.Run(name+"/"+way, func(t *testing.T) {
				t.Parallel()
				good, better, bad := decode(t, k.good), decode(t, k.better), decode(t, k.bad)
				of := func(o kube.Object) string {
					s := newStore()
					s.Set(o)
					return inForceNow(t, s, k.row)
				}
				if of(good) == "" || of(good) == of(better) || of(bad) != "" {
					t.Fatalf("good %q, better %q, bad %q", of(good), of(better), of(bad))
				}
				s := newStore()
				step := func(what string, events []model.Event, force string, refused bool, problem string) {
					t.Helper()
					if got := inForceNow(t, s, k.row); got != force {
						t.Errorf("%s: in force is %q, want %q", what, got, force)
					}
					noted, _ := s.State().Row(model.RowKey{Kind: model.RowConfig, Key: k.ref.String()})
					c, _ := noted.(*model.Config)
					if got := c != nil && c.Refused; got != refused || refused && (len(c.Findings) == 0 || c.Findings[0].Severity != model.SeverityError || c.Findings[0].Object != k.ref) {
						t.Errorf("%s: %+v", what, c)
					}
					if ps := s.Problems()[k.ref]; problem == "" && len(ps) > 0 || problem != "" && (len(ps) == 0 || !strings.HasSuffix(ps[0], problem) || !strings.HasPrefix(ps[0], k.says)) {
						t.Errorf("%s: problems %q, want %q… %q", what, ps, k.says, problem)
					}
					if strings.Contains(what, "again") && len(events) > 0 {
						t.Errorf("%s: gave %v", what, keysOf(events))
					}
				}
				const none, kept = "; it is not in force", "; its last good version stays in force"
				step("bad from the start", s.Set(bad), "", true, none)
				step("bad again", s.Set(bad), "", true, none)
				step("put right", s.Set(good), of(good), false, "")
				step("gone bad", s.Set(bad), of(good), true, kept)
				step("bad again", s.Set(bad), of(good), true, kept)
				step("better", s.Set(better), of(better), false, "")
				step("bad after better", s.Set(bad), of(better), true, kept)
				step("deleted", s.Delete(k.ref), "", false, "")
				if n := s.State().Len(); n != 0 {
					t.Errorf("%d rows are left", n)
				}
				step("bad after deletion", s.Set(bad), "", true, none)
				step("good", s.Set(good), of(good), false, "")
				step("replaced by a bad one", s.Apply([]kube.Object{bad}, []model.ObjectKey{k.ref}), "", true, none)
			})
		}
	}
}

// A spec that can't be decoded is an error of its object; the other objects of the file are not concerned.
func TestBrokenObjects(t *testing.T) {
	t.Parallel()
	const text = `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: x, namespace: demo, labels: {a: b}}
spec:
  host: a.example
  trafficPolicy: {tls: {mode: MAGIC}}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: other, namespace: demo}
spec: {host: b.example}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: z, namespace: a b}
spec: {resolution: MAGIC}
---
apiVersion: v1
kind: Service
metadata: {name: z}
spec: {ports: nine}
`
	c := kube.Decode([]byte(text), time.Unix(1, 0))
	if len(c.Items) != 1 || len(c.Faults) != 3 {
		t.Fatalf("%d items, faults %+v", len(c.Items), c.Faults)
	}
	b := c.Faults[0].Broken
	if b == nil || b.Ref.String() != "DestinationRule/demo/x" || b.Revision == "" || !b.Time.Equal(time.Unix(1, 0)) || c.Faults[0].Line != 1 {
		t.Fatalf("%+v", c.Faults[0])
	}
	if c.Faults[1].Broken != nil || c.Faults[2].Broken != nil {
		t.Error("without a name, or of a kind that is not checked: nothing is known to be meant")
	}
	s := newStore()
	s.Set(*b)
	ref := b.Ref
	if ps := s.Problems()[ref]; len(ps) != 1 || ps[0] != `trafficPolicy.tls.mode: "MAGIC" is none of DISABLE, SIMPLE, MUTUAL, ISTIO_MUTUAL; it is not in force` {
		t.Errorf("problems %q", ps)
	}
	s.Set(objects(t, strings.Replace(strings.Split(text, "---\n")[0], "MAGIC", "SIMPLE", 1))[0])
	s.Set(*b)
	r := row[*model.Config](t, s, "DestinationRule/demo/x")
	if !r.Refused || r.Spec == nil || r.Labels["a"] != "b" || r.Findings[0].Code != "Unreadable" {
		t.Errorf("%+v", r)
	}
}

// What is kept of an object is converted again when something changes that it looked up.
func TestQuarantineFollowsLookups(t *testing.T) {
	t.Parallel()
	const entry = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: x, namespace: demo}\nspec: {hosts: [%s], location: MESH_INTERNAL, resolution: STATIC, ports: [{name: http, number: 80, protocol: HTTP}], endpoints: [{address: 10.0.0.1}]}"
	s := load(t, fmt.Sprintf(entry, "a.example"))
	s.Set(fromFile(t, fmt.Sprintf(entry, "a..example")))
	got := keysOf(s.Set(fromFile(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: istio-system, labels: {topology.istio.io/network: n1}}")))
	if !slices.Equal(got, []string{"endpoints ServiceEntry/demo/x/a.example"}) {
		t.Errorf("got %q", got)
	}
	if ep := row[*model.Endpoints](t, s, "ServiceEntry/demo/x/a.example").Endpoints[0]; ep.Network != "n1" {
		t.Errorf("network %q", ep.Network)
	}
}

// An object that only its metadata distinguishes from a refused one is told of by its generation and labels.
func TestConfigMetadata(t *testing.T) {
	t.Parallel()
	object := func(generation int, label, mode string) kube.Object {
		js, err := json.Marshal(map[string]any{"apiVersion": "networking.istio.io/v1", "kind": "DestinationRule",
			"metadata": map[string]any{"name": "x", "namespace": "demo", "generation": generation, "labels": map[string]string{"l": label}, "creationTimestamp": "2026-01-02T03:04:05Z"},
			"spec":     map[string]any{"host": "a.example", "exportTo": []string{mode}}})
		if err != nil {
			t.Fatal(err)
		}
		return fromServer(t, string(js))
	}
	s := newStore()
	s.Set(object(1, "one", "*"))
	if r := row[*model.Config](t, s, "DestinationRule/demo/x"); r.Generation != 1 || r.Labels["l"] != "one" || r.Created.IsZero() {
		t.Errorf("%+v", r)
	}
	if n := len(s.Set(object(1, "two", "*"))); n != 1 {
		t.Errorf("another label gave %d events", n)
	}
	if n := len(s.Set(object(1, "two", "*"))); n != 0 {
		t.Errorf("the same gave %d events", n)
	}
	s.Set(object(2, "three", "a b"))
	if r := row[*model.Config](t, s, "DestinationRule/demo/x"); r.Generation != 2 || !r.Refused || r.Labels["l"] != "two" || r.Spec == nil {
		t.Errorf("%+v", r)
	}
}

// Specs are read as Istio reads them: durations as Go writes them, fields by either of their names. What a kind does not
// have is told of wherever it stands.
func TestSpecsAsIstioReadsThem(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ spec, unknown, err string }{
		"durations":          {spec: "{hosts: [a], http: [{redirect: {uri: /x}, timeout: 1h30m, retries: {attempts: 1, perTryTimeout: 25ms}, corsPolicy: {maxAge: 24h}}]}"},
		"seconds":            {spec: "{hosts: [a], http: [{redirect: {uri: /x}, timeout: 1.5s}]}"},
		"no duration":        {spec: "{hosts: [a], http: [{redirect: {uri: /x}, timeout: soon}]}", err: `http[0].timeout: "soon" is not a duration: write a number with its unit`},
		"other names":        {spec: "{hosts: [a], export_to: [\".\"], http: [{redirect: {uri: /x, redirect_code: 301}}]}"},
		"unknown":            {spec: "{hosts: [a], htpp: [], http: [{redirect: {uri: /x}}]}", unknown: `htpp: unknown field "htpp" has no effect; did you mean http?`},
		"unknown and hours":  {spec: "{hosts: [a], http: [{redirect: {uri: /x}, timeout: 1h, timeuot: 1h}]}", unknown: `http[0].timeuot: unknown field "timeuot" has no effect; did you mean timeout?`},
		"unknown in a map":   {spec: "{hosts: [a], http: [{match: [{headers: {x: {exakt: y}}}], redirect: {uri: /x}, timeout: 1h}]}", unknown: `http[0].match[0].headers[x].exakt: unknown field "exakt" has no effect; did you mean exact?`},
		"unknown and wrong":  {spec: "{hosts: [a], odd: 1, http: [{redirect: {derivePort: MAGIC}}]}", err: `"MAGIC"`},
		"keys of maps":       {spec: "{hosts: [a], http: [{match: [{sourceLabels: {odd: v}}], redirect: {uri: /x}, timeout: 1h}]}"},
		"wrong type, unsure": {spec: "{hosts: a, http: [{redirect: {uri: /x}}]}", err: "hosts: it is a list: write [a]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := kube.Decode([]byte("apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: x}\nspec: "+tt.spec), time.Time{})
			if tt.err != "" {
				if len(c.Faults) != 1 || !strings.Contains(c.Faults[0].Reason, tt.err) {
					t.Errorf("faults %v, want %q", c.Faults, tt.err)
				}
				return
			}
			if len(c.Faults) > 0 || len(c.Items) != 1 {
				t.Fatalf("faults %v", c.Faults)
			}
			if len(c.Warnings) > 0 {
				t.Errorf("warnings %v", c.Warnings)
			}
			var want []string
			if tt.unknown != "" {
				want = append(want, tt.unknown)
			}
			s := newStore()
			s.Set(c.Items[0].Object)
			if got := s.Problems()[c.Items[0].Object.Ref]; !slices.Equal(got, want) {
				t.Errorf("problems %q, want %q", got, want)
			}
			if r := row[*model.Config](t, s, "VirtualService/default/x"); r.Refused || r.Spec == nil {
				t.Errorf("not in force: %+v", r)
			}
		})
	}
	m, faults, _ := kube.ParseMesh(model.ConfigMesh, []byte("protocolDetectionTimeout: 100ms\nconnectTimeout: 1m\nodd: 1\n"))
	if len(faults) > 0 || m.Message.(*meshconfig.MeshConfig).ProtocolDetectionTimeout.AsDuration() != 100*time.Millisecond {
		t.Errorf("%v, %v", m, faults)
	}
}

// A small object must not become a large one: every host has every endpoint at every port.
func TestServiceEntryTooLarge(t *testing.T) {
	t.Parallel()
	se := &networking.ServiceEntry{Resolution: networking.ServiceEntry_STATIC}
	for i := range 1000 {
		se.Hosts = append(se.Hosts, fmt.Sprintf("h%d.example", i))
		se.Endpoints = append(se.Endpoints, &networking.WorkloadEntry{Address: fmt.Sprintf("10.0.%d.%d", i/250, 1+i%250)})
	}
	for i := range uint32(10) {
		se.Ports = append(se.Ports, &networking.ServicePort{Name: fmt.Sprintf("http-%d", i), Number: 80 + i, Protocol: "HTTP"})
	}
	o, _ := kube.NewObject("", &kube.ServiceEntry{Meta: metav1.ObjectMeta{Name: "x", Namespace: "demo"}, Spec: se})
	s := newStore()
	s.Set(o)
	if n := s.State().Len(); n != 1 || !row[*model.Config](t, s, "ServiceEntry/demo/x").Refused {
		t.Errorf("%d rows, problems %v", n, s.Problems())
	}
	se = proto.CloneOf(se)
	se.Hosts = se.Hosts[:20]
	o, _ = kube.NewObject("", &kube.ServiceEntry{Meta: metav1.ObjectMeta{Name: "x", Namespace: "demo"}, Spec: se})
	s.Set(o)
	if n := s.State().Len(); n != 40 || len(s.Problems()) > 0 {
		t.Errorf("%d rows, problems %v", n, s.Problems())
	}
}

// However much is wrong with an object, and however long it is, little is told of it.
func TestFindingsAreBounded(t *testing.T) {
	t.Parallel()
	se := &networking.ServiceEntry{Endpoints: []*networking.WorkloadEntry{{Ports: map[string]uint32{strings.Repeat("p", 1<<16): 0}}}}
	for i := range 100 {
		se.Hosts = append(se.Hosts, strings.Repeat("é", 1<<12)+fmt.Sprint(i))
	}
	o, _ := kube.NewObject("", &kube.ServiceEntry{Meta: metav1.ObjectMeta{Name: "x", Namespace: "demo"}, Spec: se})
	s := newStore()
	s.Set(o)
	findings := row[*model.Config](t, s, "ServiceEntry/demo/x").Findings
	total := 0
	for _, f := range findings {
		if !utf8.ValidString(f.Message + f.Field) {
			t.Errorf("%q", f.Message)
		}
		total += len(f.Message) + len(f.Field)
	}
	for _, p := range s.Problems()[o.Ref] {
		total += len(p)
	}
	if len(findings) != 32 || len(s.Problems()[o.Ref]) > 33 || total > 128<<10 {
		t.Errorf("%d findings, %d problems, %d bytes", len(findings), len(s.Problems()[o.Ref]), total)
	}
}
