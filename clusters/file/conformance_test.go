package file_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/conformance"
	"github.com/isthmus-mesh/isthmus/clusters/file"
)

// source is a folder with a file per service.
type source struct {
	t     *testing.T
	key   model.ClusterID
	dir   string
	world map[string]string // file name → text
}

func (s *source) Registry() model.Registry {
	return file.NewCluster(file.Options{Dir: s.dir, Cluster: s.key, Log: quiet()})
}

func (s *source) Set(w conformance.World) {
	s.t.Helper()
	next := map[string]string{}
	for name, svc := range w {
		next[name+".yaml"] = text(name, svc)
	}
	for name := range s.world {
		if _, stays := next[name]; !stays {
			must(s.t, os.Remove(filepath.Join(s.dir, name)))
		}
	}
	for name, text := range next {
		if s.world[name] != text {
			place(s.t, text, s.dir, name)
		}
	}
	s.world = next
}

func text(name string, svc conformance.Service) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: %[2]s}
spec: {clusterIP: 10.96.0.1, ports: [{name: http, port: %[3]d}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-1, namespace: %[2]s, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: http, port: %[3]d}]
endpoints: [{addresses: [%[4]s]}]
`, name, conformance.Namespace, svc.Port, strings.Join(svc.Addresses, ", "))
}

func (s *source) Cut()     { must(s.t, os.Rename(s.dir, s.dir+"-away")) }
func (s *source) Restore() { must(s.t, os.Rename(s.dir+"-away", s.dir)) }

func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Harness{New: func(t *testing.T, cluster model.ClusterID) conformance.Source {
		dir := filepath.Join(t.TempDir(), string(cluster))
		must(t, os.Mkdir(dir, 0o755))
		return &source{t: t, key: cluster, dir: dir}
	}})
}
