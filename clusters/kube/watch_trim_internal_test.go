package kube

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// What is dropped is what conversion does not read: the rows of all goldens are the same without it.
func TestTrimChangesNoRow(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			want := rowsOf(t, data, func(any) {})
			got := rowsOf(t, data, func(v any) {
				if o, ok := v.(runtime.Object); ok {
					trim(o)
				}
			})
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("rows differ (-whole +trimmed):\n%s", d)
			}
		})
	}
}

// rowsOf converts a file in the simplest way and gives each row as text.
func rowsOf(t *testing.T, data []byte, change func(any)) map[string]string {
	t.Helper()
	s := NewStore(Converter{Shard: model.ShardKey{Provider: model.ProviderKubernetes, Cluster: "c1"}, MCS: true, ConfigCluster: true})
	for _, it := range Decode(data, time.Time{}).Items {
		change(it.Object.Value)
		s.Set(it.Object)
	}
	out := map[string]string{}
	for k, o := range s.State().Rows() {
		text, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		out[k.Kind.String()+" "+k.Key] = string(text)
	}
	for k, reasons := range maps.All(s.Problems()) {
		text, _ := yaml.Marshal(reasons)
		out["problems "+k.String()] = string(text)
	}
	return out
}

func TestTrimDropsWhatIsLarge(t *testing.T) {
	t.Parallel()
	p := &corev1.Pod{}
	if err := yaml.Unmarshal([]byte(`
metadata:
  name: a
  annotations: {big: text, kubectl.kubernetes.io/last-applied-configuration: text}
  managedFields: [{manager: m}]
  ownerReferences: [{name: r}]
spec:
  volumes: [{name: v}]
  containers: [{name: c, image: i, env: [{name: e}], ports: [{name: http, containerPort: 80}]}]
  initContainers: [{name: i1}, {name: i2, restartPolicy: Always, image: i}]
status:
  conditions: [{type: Initialized, status: "True"}, {type: Ready, status: "True", message: m}]
  containerStatuses: [{name: c}]`), p); err != nil {
		t.Fatal(err)
	}
	trim(p)
	want := &corev1.Pod{}
	if err := yaml.Unmarshal([]byte(`
metadata: {name: a}
spec:
  containers: [{name: c, ports: [{name: http, containerPort: 80}]}]
  initContainers: [{name: i2, restartPolicy: Always}]
status: {conditions: [{type: Ready, status: "True"}]}`), want); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, p); d != "" {
		t.Errorf("pod (-want +got):\n%s", d)
	}
}
