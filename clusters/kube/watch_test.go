package kube_test

import (
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

const web = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.0.0.1, ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.1.0.1]}]
---
apiVersion: v1
kind: Pod
metadata: {name: web-a, namespace: shop, labels: {app: web}}
spec: {containers: [{name: c}]}
status: {phase: Running, podIP: 10.1.0.9}`

var webRows = []string{"endpoints EndpointSlice/shop/web-1", "service Service/shop/web", "workload Pod/shop/web-a"}

func options(s *apiServer) kube.Options {
	return kube.Options{Cluster: "c1", Config: s.config(), Timing: quick}
}

func TestFirstSyncIsOneFullTruth(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.apply(web)
	w := watch(t, kube.New(options(s)))
	w.awaitRows(webRows...)
	w.awaitState(model.StateLive)
	if len(w.puts) > 0 {
		t.Errorf("puts: %v", w.puts)
	}
	s.apply(`
apiVersion: v1
kind: Service
metadata: {name: api, namespace: shop}
spec: {clusterIP: 10.0.0.2, ports: [{name: http, port: 80}]}`)
	w.awaitRows(append(webRows, "service Service/shop/api")...)
	s.remove("pods", "shop/web-a")
	s.remove("services", "shop/api")
	w.awaitRows(webRows[:2]...)
}
