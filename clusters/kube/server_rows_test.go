package kube_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
	"github.com/isthmus-mesh/isthmus/test/env"
)

// everyKind has an object of each kind that is converted, as an API server takes them.
const everyKind = `
apiVersion: v1
kind: Namespace
metadata: {name: istio-system, labels: {topology.istio.io/network: n1}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data: {mesh: "trustDomain: own.example"}
---
apiVersion: v1
kind: Node
metadata: {name: node-a, labels: {role: edge, topology.kubernetes.io/region: r1, topology.kubernetes.io/zone: z1}}
status: {addresses: [{type: ExternalIP, address: 192.0.2.1}, {type: InternalIP, address: 10.255.0.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: demo, labels: {app: web, security.istio.io/tlsMode: istio}}
spec: {nodeName: node-a, serviceAccountName: web, automountServiceAccountToken: false, containers: [{name: web, image: x, ports: [{name: http, containerPort: 8080}]}]}
status: {phase: Running, podIP: 10.1.0.1, podIPs: [{ip: 10.1.0.1}], conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: demo, labels: {app: web}}
spec: {nodeName: node-a, serviceAccountName: web, automountServiceAccountToken: false, containers: [{name: web, image: x}]}
status: {phase: Failed, podIP: 10.1.0.2, podIPs: [{ip: 10.1.0.2}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: demo}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: http}]}
---
apiVersion: v1
kind: Service
metadata: {name: east-west, namespace: istio-system, labels: {topology.istio.io/network: n1}, annotations: {traffic.istio.io/nodeSelector: '{"role": "edge"}'}}
spec: {type: NodePort, ports: [{name: tls, port: 15443}]}
---
apiVersion: v1
kind: Service
metadata: {name: balancer, namespace: istio-system}
spec: {type: LoadBalancer, externalIPs: [198.51.100.1], ports: [{name: tls, port: 15443}]}
status: {loadBalancer: {ingress: [{hostname: lb.example}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: demo, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
  - {addresses: [10.1.0.1], nodeName: node-a, targetRef: {kind: Pod, name: web-0, namespace: demo}}
  - {addresses: [10.1.0.2], nodeName: node-a, targetRef: {kind: Pod, name: web-1, namespace: demo}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: se, namespace: demo}
spec: {hosts: [se.example], location: MESH_INTERNAL, resolution: STATIC, ports: [{name: http, number: 80, protocol: HTTP}], endpoints: [{address: 10.9.0.1, serviceAccount: a}]}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: we, namespace: demo}
spec: {address: 10.8.0.1, labels: {app: web}, serviceAccount: web}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: demo}
spec: {host: web, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}, connectionPool: {tcp: {maxConnections: 1}}}}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: east-west, namespace: istio-system}
spec: {selector: {istio: eastwestgateway}, servers: [{port: {number: 15443, name: tls, protocol: TLS}, tls: {mode: AUTO_PASSTHROUGH}, hosts: ["*.local"]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: vs, namespace: demo}
spec: {hosts: [web], http: [{route: [{destination: {host: web}}]}]}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: strict, namespace: demo}
spec: {mtls: {mode: STRICT}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: cross, namespace: istio-system, labels: {topology.istio.io/network: n1}}
spec: {gatewayClassName: istio, listeners: [{name: cross, port: 15443, protocol: TLS, tls: {mode: Passthrough}}]}
status: {addresses: [{type: IPAddress, value: 203.0.113.1}]}
---
apiVersion: multicluster.x-k8s.io/v1alpha1
kind: ServiceExport
metadata: {name: web, namespace: demo}
---
apiVersion: multicluster.x-k8s.io/v1alpha1
kind: ServiceImport
metadata: {name: web, namespace: demo}
spec: {type: ClusterSetIP, ips: [10.100.0.1], ports: [{name: http, port: 80, protocol: TCP}]}
`

// readResources are those of everyKind.
var readResources = []schema.GroupVersionResource{
	{Version: "v1", Resource: "namespaces"}, {Version: "v1", Resource: "nodes"}, {Version: "v1", Resource: "pods"}, {Version: "v1", Resource: "services"},
	{Version: "v1", Resource: "configmaps"}, {Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
	{Group: "networking.istio.io", Version: "v1", Resource: "serviceentries"}, {Group: "networking.istio.io", Version: "v1", Resource: "workloadentries"},
	{Group: "networking.istio.io", Version: "v1", Resource: "destinationrules"}, {Group: "networking.istio.io", Version: "v1", Resource: "gateways"},
	{Group: "networking.istio.io", Version: "v1", Resource: "virtualservices"}, {Group: "security.istio.io", Version: "v1", Resource: "peerauthentications"},
	{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gateways"},
	{Group: "multicluster.x-k8s.io", Version: "v1alpha1", Resource: "serviceexports"}, {Group: "multicluster.x-k8s.io", Version: "v1alpha1", Resource: "serviceimports"},
}

// readAll converts what a server has, read once and whole: nothing is left out or trimmed on the way.
func readAll(t *testing.T, c *env.Cluster, conv kube.Converter) *kube.Store {
	t.Helper()
	s := kube.NewStore(conv)
	for _, r := range readResources {
		list, err := c.Dynamic.Resource(r).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatalf("list %s: %v", r.Resource, err)
		}
		for _, item := range list.Items {
			js, err := item.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			o, warnings, err := kube.DecodeJSON(js)
			if r.Resource == "configmaps" && err != nil {
				continue // of no concern
			}
			if err != nil || len(warnings) > 0 {
				t.Fatalf("%s %s: %v, warnings %q", r.Resource, item.GetName(), err, warnings)
			}
			s.Set(o)
		}
	}
	return s
}

// TestServerRows: the rows of every kind that follow from watching a server, with all that is trimmed and
// selected on the way, are those that its content as a whole makes; also after changes.
func TestServerRows(t *testing.T) {
	t.Parallel()
	c := servers.Take(t, 1)[0]
	c.Apply(t, everyKind)
	conv := kube.Converter{Shard: model.ShardKey{Provider: model.ProviderKubernetes, Cluster: "c1"}, TrustDomain: "mesh.example", MCS: true, ConfigCluster: true}
	w := watch(t, kube.New(kube.Options{Cluster: "c1", Config: c.Config, TrustDomain: conv.TrustDomain, MCS: true, ConfigCluster: true, Configuration: true, Timing: quick}))
	agree := func(what string) {
		t.Helper()
		want := rowsOf(readAll(t, c, conv))
		w.await("rows of "+what, func() bool { return w.replaces > 0 && cmp.Equal(want, dumped(w)) })
	}
	agree("every kind")
	for _, row := range []string{"service Service/demo/web/clusterset", "endpoints EndpointSlice/demo/web-1/clusterset", "config KubernetesGateway/istio-system/cross",
		"config DestinationRule/demo/web", "config PeerAuthentication/demo/strict", "config Gateway/istio-system/east-west", "workload Pod/demo/web-0"} {
		w.await(row, func() bool { _, there := dumped(w)[row]; return there })
	}
	for _, change := range []struct {
		what string
		do   func()
	}{
		{"a node with another address", func() {
			c.Apply(t, "apiVersion: v1\nkind: Node\nmetadata: {name: node-a, labels: {role: edge, topology.kubernetes.io/region: r2}}\nstatus: {addresses: [{type: ExternalIP, address: 192.0.2.9}]}")
		}},
		{"another trust domain", func() {
			c.Apply(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: isthmus, namespace: istio-system}\ndata: {mesh: 'trustDomain: other.example'}")
		}},
		{"another network", func() {
			c.Apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: istio-system, labels: {topology.istio.io/network: n2}}")
		}},
		{"no export", func() {
			c.Delete(t, "apiVersion: multicluster.x-k8s.io/v1alpha1\nkind: ServiceExport\nmetadata: {name: web, namespace: demo}")
		}},
		{"a gateway without its label", func() {
			c.Apply(t, "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: cross, namespace: istio-system}\nspec: {gatewayClassName: istio, listeners: [{name: cross, port: 15443, protocol: TLS, tls: {mode: Passthrough}}]}\nstatus: {addresses: [{type: IPAddress, value: 203.0.113.1}]}")
		}},
		{"a rule with another host", func() {
			c.Apply(t, "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: web, namespace: demo}\nspec: {host: se.example}")
		}},
	} {
		change.do()
		agree(change.what)
	}
}

// dumped are a watcher's rows in readable form.
func dumped(w *watcher) map[string]string {
	out := map[string]string{}
	for k, o := range w.rows {
		out[k.Kind.String()+" "+k.Key] = dumpRow(k, o)
	}
	return out
}
