package analysis_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/tools/txtar"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/analysis"
	"github.com/isthmus-mesh/isthmus/clusters/file"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/test/golden"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestFindings looks at the meshes of testdata, a folder of YAML per cluster, and compares with golden files.
func TestFindings(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			t.Parallel()
			a, err := txtar.ParseFile(f)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			for _, x := range analysis.Findings(snapshot(t, a)) {
				fmt.Fprintf(&out, "%s  %s\n", x.Source.Shard.Cluster, x.Finding)
			}
			golden.Compare(t, strings.TrimSuffix(f, ".txtar")+".golden", out.String())
		})
	}
}

// TestTooManyServersBetweenNetworks: those that are not served are told, and no others.
func TestTooManyServersBetweenNetworks(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range pushcontext.MaxAutoPassthrough + 1 {
		fmt.Fprintf(&b, "---\napiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: g%02d, namespace: edge}\n", i)
		b.WriteString("spec: {selector: {istio: eastwest}, servers: [{port: {number: 15443, name: tls, protocol: TLS}, hosts: [h" + fmt.Sprint(i) + ".local], tls: {mode: AUTO_PASSTHROUGH}}]}\n")
	}
	var got []string
	for _, x := range analysis.Findings(snapshot(t, &txtar.Archive{Files: []txtar.File{{Name: "c1/all.yaml", Data: []byte(b.String())}}})) {
		if x.Code == analysis.CodeTooManyServers {
			got = append(got, x.Object.Name)
		}
	}
	if len(got) != 1 || got[0] != "g64" {
		t.Errorf("%v", got)
	}
}

// snapshot gives what a hub publishes of the files.
func snapshot(t *testing.T, a *txtar.Archive) *pushcontext.PushContext {
	t.Helper()
	dir := t.TempDir()
	hub := pushcontext.NewHub(func(*pushcontext.PushContext, *pushcontext.Delta) {})
	c := aggregate.New(aggregate.Options{Hub: hub, ConfigCluster: "c1"})
	attached := map[string]bool{}
	for _, f := range a.Files {
		path := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
		if f.Name == file.MeshFile {
			c.Attach(file.NewMesh(file.Options{Dir: dir, Cluster: "c1"}))
			continue
		}
		attached[filepath.Dir(f.Name)] = true
	}
	for cluster := range attached {
		c.Attach(file.NewCluster(file.Options{Dir: filepath.Join(dir, cluster), Cluster: model.ClusterID(cluster), ConfigCluster: cluster == "c1"}))
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	<-c.ReadyCh()
	cancel()
	<-done
	return hub.Current()
}
