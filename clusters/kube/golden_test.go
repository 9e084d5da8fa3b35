package kube_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
	"github.com/isthmus-mesh/isthmus/test/golden"
)

var shard = model.ShardKey{Provider: model.ProviderFile, Cluster: "c1"}

func newStore() *kube.Store {
	return kube.NewStore(kube.Converter{Shard: shard, TrustDomain: "td"})
}

// load fills a store with the objects of YAML; faults and warnings fail the test.
func load(t testing.TB, yaml string) *kube.Store {
	t.Helper()
	s := newStore()
	s.Apply(objects(t, yaml), nil)
	return s
}

func objects(t testing.TB, yaml string) []kube.Object {
	t.Helper()
	c := kube.Decode([]byte(yaml), time.Time{})
	if len(c.Faults)+len(c.Warnings) > 0 {
		t.Fatalf("faults %v, warnings %v", c.Faults, c.Warnings)
	}
	var out []kube.Object
	for _, it := range c.Items {
		out = append(out, it.Object)
	}
	return out
}

func TestGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no golden inputs", err)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			t.Parallel()
			in, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			s := kube.NewStore(kube.Converter{Shard: shard, TrustDomain: "td", MCS: filepath.Base(f) == "mcs.yaml"})
			s.Apply(objects(t, string(in)), nil)
			golden.Compare(t, strings.TrimSuffix(f, ".yaml")+".golden", dump(s))
		})
	}
}

func storeOf(c model.ClusterID) *kube.Store {
	return kube.NewStore(kube.Converter{Shard: model.ShardKey{Provider: model.ProviderFile, Cluster: c}, TrustDomain: "td"})
}
