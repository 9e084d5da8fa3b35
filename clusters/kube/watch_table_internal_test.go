package kube

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-mesh/isthmus/kubeapi"
)

// Whatever a server sends, an object of a custom kind is kept, is a fault, or neither; its key is that of
// its metadata.
func FuzzCustomObject(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, doc := range split(data) {
			if js, err := yaml.YAMLToJSON(doc.text); err == nil {
				f.Add(js)
			}
		}
	}
	f.Add([]byte(`{"apiVersion":"networking.istio.io/v1","kind":"WorkloadEntryList","items":[{},{}]}`))
	f.Fuzz(func(t *testing.T, js []byte) {
		raw := &kubeapi.RawObject{}
		if json.Unmarshal(js, raw) != nil {
			return
		}
		q := newQueue()
		tab := newTable(raw.Kind, 10, q, func(string, string) {})
		name := types.NamespacedName{Namespace: raw.Namespace, Name: raw.Name}
		tab.Set(name, raw)
		kept := 0
		for _, rows := range tab.rows {
			kept += len(rows)
		}
		if kept+len(tab.faults) == 0 || kept > 1 || kept != tab.count {
			t.Errorf("%d objects kept, %d counted, faults %v", kept, tab.count, tab.faults)
		}
		tab.Remove(name)
		if len(tab.rows)+len(tab.faults)+tab.count > 0 {
			t.Errorf("left after removal: %v, %v", tab.rows, tab.faults)
		}
	})
}

// Settings of a mesh are in force, or have a fault; never both.
func FuzzParseMesh(f *testing.F) {
	for _, s := range []string{"trustDomain: a", "networks: {n: {gateways: [{address: 1.2.3.4, port: 1}]}}", "kind: ConfigMap\ndata: {mesh: 'a: b'}",
		"proxyListenPort: 70000", "discoverySelectors: [{matchLabels: {a: b}}]", "[", "", "null"} {
		f.Add("MeshConfig", []byte(s))
		f.Add("MeshNetworks", []byte(s))
	}
	f.Fuzz(func(t *testing.T, kind string, data []byte) {
		s, faults, _ := ParseMesh(kind, data)
		if s != nil && (len(faults) > 0 || s.Message == nil || s.Revision == "") {
			t.Errorf("%+v with faults %v", s, faults)
		}
		for _, x := range faults {
			if x.Line < 1 || x.Reason == "" {
				t.Errorf("fault %+v", x)
			}
		}
	})
}

// What is queued is taken once, in parts if there is much.
func TestQueue(t *testing.T) {
	t.Parallel()
	q := newQueue()
	tab := newTable(KindPod, 10, q, nil)
	for _, n := range []string{"a", "b", "c", "a"} {
		q.add(tab.key("ns", n), tab)
	}
	if n := len(q.take(2)) + len(q.take(2)) + len(q.take(2)); n != 3 {
		t.Errorf("%d keys taken, want 3", n)
	}
	if len(q.wake) != 1 {
		t.Error("nobody is woken")
	}
}
