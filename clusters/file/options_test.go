package file_test

import (
	"sync"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/file"
)

const remoteGateway = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw, namespace: demo, labels: {topology.istio.io/network: n1}}
spec: {gatewayClassName: istio-remote, addresses: [{value: 192.0.2.1}], listeners: [{name: a, port: 15443, protocol: TLS, tls: {mode: Passthrough}}]}
`

// Gateways of the class istio-remote count in the folder of the config cluster only.
func TestRootTellsTheConfigCluster(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, remoteGateway, dir, "main", "gw.yaml")
	write(t, remoteGateway, dir, "other", "gw.yaml")
	var mu sync.Mutex
	counts := map[model.ClusterID]bool{}
	r := file.NewRoot(file.RootOptions{Dir: dir, Mesh: "main", Member: file.Options{Log: quiet()}}, attachFunc(func(reg model.Registry) {
		if reg.Key().Provider != model.ProviderFile {
			return
		}
		s := start(t, reg)
		s.wait(t, "rows", func(s *sink) bool { return len(s.rows) > 0 })
		mu.Lock()
		defer mu.Unlock()
		counts[reg.Key().Cluster] = s.config("KubernetesGateway/demo/gw").Kind == model.ConfigNetworkGateway
	}))
	must(t, r.Scan())
	if len(counts) != 2 || !counts["main"] || counts["other"] {
		t.Errorf("counts in %v", counts)
	}
}

// With MCS a service without an export is its member's own; the export is found in whatever file it is.
func TestClusterMCS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, "apiVersion: v1\nkind: Service\nmetadata: {name: svc, namespace: demo}\nspec: {clusterIP: 10.0.0.1, ports: [{name: http, port: 80}]}\n", dir, "svc.yaml")
	s := start(t, file.NewCluster(file.Options{Dir: dir, Cluster: "c1", MCS: true, Log: quiet()}))
	local := func(s *sink) bool {
		svc, _ := s.rows[model.RowKey{Kind: model.RowService, Key: "Service/demo/svc"}].(*model.Service)
		return svc != nil && svc.ClusterLocal
	}
	s.waitRows(t, "Service/demo/svc")
	if !local(s.now()) {
		t.Error("a service without export is known to all")
	}
	write(t, "apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceExport\nmetadata: {name: svc, namespace: demo}\n", dir, "more", "export.yaml")
	s.waitRows(t, "Service/demo/svc", "Service/demo/svc/clusterset")
	if local(s.now()) {
		t.Error("an exported service is local")
	}
}
