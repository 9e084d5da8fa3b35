package main

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/isthmus-mesh/isthmus/test/env"
)

const brokenRoute = `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec: {hosts: [web], http: [{route: [{destination: {host: nobody}}]}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: legacy, namespace: shop}
spec: {hosts: [legacy.example.com], addresses: [10.9.9.9], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, location: MESH_INTERNAL, workloadSelector: {labels: {app: legacy}}}
`

// TestWriteStatus: objects say what is wrong with them, with the rights of deploy, and that it is mended.
func TestWriteStatus(t *testing.T) {
	t.Parallel()
	c := servers.Take(t, 1)[0]
	c.Apply(t, env.Namespace("istio-system"), shop("10.1.0.1"), brokenRoute, manifests(t, []string{"rbac-primary.yaml", "rbac-status.yaml"}))
	r := &running{dir: t.TempDir(), log: newLogbook()}
	r.write(t, "primary.yaml", string(c.Kubeconfig(c.Token(t, "istio-system/isthmus", 3600))))
	r.start(t, "--kubeconfig", r.path("primary.yaml"), "--write-status")
	r.untilReady(t)
	says := func(resource, name, status, text string) {
		t.Helper()
		at := c.Dynamic.Resource(schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: resource}).Namespace("shop")
		r.log.until(t, resource+" is told "+text, func() bool {
			o, err := at.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
			if len(list) != 1 {
				return false
			}
			cond := list[0].(map[string]any)
			message, _ := cond["message"].(string)
			n, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
			return cond["status"] == status && strings.Contains(message, text) && n == o.GetGeneration()
		})
	}
	says("virtualservices", "web", "True", "no service has the host nobody.shop.svc.cluster.local")
	says("serviceentries", "legacy", "True", "has no endpoints")
	c.Apply(t, `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec: {hosts: [web], http: [{}]}`)
	says("virtualservices", "web", "False", "the route does nothing")
	c.Apply(t, `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec: {hosts: [web], http: [{route: [{destination: {host: web}}]}]}`)
	says("virtualservices", "web", "True", "")
}

func TestWriteStatusNeedsAnAPIServer(t *testing.T) {
	t.Parallel()
	if got := command(t, "serve", "--dir", t.TempDir(), "--write-status"); got.code != exitUsage || !strings.Contains(got.stderr, "--kubeconfig") {
		t.Errorf("%d: %s", got.code, got.stderr)
	}
}
