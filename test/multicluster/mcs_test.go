package multicluster_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/test/env"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

const (
	exportFoo = `{apiVersion: multicluster.x-k8s.io/v1alpha1, kind: ServiceExport, metadata: {name: foo, namespace: shop}}`
	setFoo    = "foo.shop.svc.clusterset.local"
)

// importFoo is what the controller of the Multi-Cluster Services API makes in a cluster that imports foo.
func importFoo(ip string) string {
	return fmt.Sprintf(`
apiVersion: multicluster.x-k8s.io/v1alpha1
kind: ServiceImport
metadata: {name: foo, namespace: shop}
spec: {type: ClusterSetIP, ips: [%s], ports: [{name: http, port: 80}]}
`, ip)
}

// A service that some clusters export and others import: the union of the exports at each importer's own
// address; what differs between exports is told; the end of an export takes its endpoints, and that of the
// last one the service.
func TestExportedHereImportedThere(t *testing.T) {
	m := newMesh(t, 2)
	m.foo(primary, "c1")
	m.apply("c2", importFoo("10.97.0.2"))
	m.join("c1", "c2")
	m.serve("--mcs")
	exporter, importer := m.proxy("one.shop", "cluster=c1"), m.both("two.shop", "cluster=c2")
	exporter.has("foo.shop", "10.1.0.1")
	importer.lacks("foo.shop")
	importer.lacks(setFoo)

	m.apply("c1", exportFoo)
	importer.has(setFoo, "10.1.0.1")
	importer.has("foo.shop", "10.1.0.1")
	importer.reaches("10.97.0.2", setFoo)
	m.apply("c2", importFoo("10.97.0.3"))
	importer.reaches("10.97.0.3", setFoo)

	m.apply(primary, exportFoo)
	importer.has(setFoo, "10.0.0.1", "10.1.0.1")
	exporter.has("foo.shop", "10.0.0.1", "10.1.0.1")
	exporter.has("only-c1.shop", onlyIP("c1")) // not exported: its own cluster's
	importer.lacks("only-c1.shop")

	svc := env.Service("shop/foo", 90)
	svc.Spec.Ports[0].Name = "more"
	m.apply(primary, svc)
	m.explained(setFoo, "a conflict of ports", conflict("ports"))
	m.apply(primary, env.Service("shop/foo", 80))
	m.explained(setFoo, "no conflict", func(e debug.Explanation) bool { return len(e.Conflicts) == 0 })

	m.remove("c1", exportFoo)
	importer.has(setFoo, "10.0.0.1")
	exporter.has("foo.shop", "10.1.0.1")
	m.remove(primary, exportFoo)
	importer.lacks(setFoo)
	importer.lacks("foo.shop")
}

// reaches waits until the routes of port 80 send requests for an address to a service.
func (ps proxies) reaches(address, service string) {
	for _, p := range ps {
		p.m.Helper()
		p.m.eventually(fmt.Sprintf("routes to %s at %s", service, address), func() error {
			state := p.State()
			body := state[gen.RouteURL]["80"]
			for name, host := range state[gen.VirtualHostURL] { // of delta proxies, which take them one by one
				if strings.HasPrefix(name, "80/") {
					body += host
				}
			}
			if !strings.Contains(body, address) || !strings.Contains(body, outbound(service)) {
				return fmt.Errorf("no such words in %d bytes", len(body))
			}
			return nil
		})
	}
}
