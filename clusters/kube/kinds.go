package kube

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/kubeapi"
)

// The API groups of optional kinds.
const (
	groupNetworking = "networking.istio.io"
	groupSecurity   = "security.istio.io"
	groupTelemetry  = "telemetry.istio.io"
	groupExtensions = "extensions.istio.io"
	groupGateway    = "gateway.networking.k8s.io"
	groupMCS        = "multicluster.x-k8s.io"
	groupIsthmus    = api.Group
	groupHigress    = api.GroupHigress
)

// builtin is a kind that every API server has.
type builtin struct {
	kind string
	at   kubeapi.Place
	page func() runtime.Object
}

// name tells what is read apart.
func (b builtin) name() string {
	if name, one := strings.CutPrefix(b.at.Fields, "metadata.name="); one {
		return b.kind + "/" + name
	}
	return b.kind
}

// required are the kinds without which there is nothing to tell.
func required() []builtin {
	core := func(kind, resource, fields string, page func() runtime.Object) builtin {
		return builtin{kind, kubeapi.Place{Version: "v1", Resource: resource, Fields: fields}, page}
	}
	return []builtin{
		core(KindNamespace, "namespaces", "", func() runtime.Object { return &corev1.NamespaceList{} }),
		core(KindNode, "nodes", "", func() runtime.Object { return &corev1.NodeList{} }),
		core(KindPod, "pods", "status.phase!=Failed", func() runtime.Object { return &corev1.PodList{} }),
		core(KindService, "services", "", func() runtime.Object { return &corev1.ServiceList{} }),
		{KindEndpointSlice, kubeapi.Place{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
			func() runtime.Object { return &discoveryv1.EndpointSliceList{} }},
	}
}

// configMap reads one ConfigMap.
func configMap(namespace, name string) builtin {
	return builtin{KindConfigMap,
		kubeapi.Place{Version: "v1", Resource: "configmaps", Namespace: namespace, Fields: "metadata.name=" + name},
		func() runtime.Object { return &corev1.ConfigMapList{} }}
}

// custom is a kind that an API server may have. All its served versions hold the same objects, of which
// the newest version is read.
type custom struct{ kind, group, resource string }

// optional lists the custom kinds that an instance reads.
func optional(o Options) []custom {
	out := []custom{
		{KindWorkloadEntry, groupNetworking, "workloadentries"},
		{KindKubernetesGateway, groupGateway, "gateways"},
	}
	if o.Configuration {
		out = append(out, configuration()...)
	}
	if o.MCS {
		out = append(out, custom{KindServiceExport, groupMCS, "serviceexports"}, custom{KindServiceImport, groupMCS, "serviceimports"})
	}
	return out
}

// Resource gives the API group and the name of the resource of a kind that configures the mesh; "" for others.
func Resource(kind string) (group, resource string) {
	for _, k := range configuration() {
		if k.kind == kind {
			return k.group, k.resource
		}
	}
	return "", ""
}

// configuration lists the kinds that configure the mesh.
func configuration() []custom {
	return []custom{
		{KindServiceEntry, groupNetworking, "serviceentries"},
		{KindDestinationRule, groupNetworking, "destinationrules"},
		{KindGateway, groupNetworking, "gateways"},
		{KindVirtualService, groupNetworking, "virtualservices"},
		{KindSidecar, groupNetworking, "sidecars"},
		{"EnvoyFilter", groupNetworking, "envoyfilters"},
		{KindWorkloadGroup, groupNetworking, "workloadgroups"},
		{KindProxyConfig, groupNetworking, "proxyconfigs"},
		{KindPeerAuthentication, groupSecurity, "peerauthentications"},
		{"RequestAuthentication", groupSecurity, "requestauthentications"},
		{"AuthorizationPolicy", groupSecurity, "authorizationpolicies"},
		{KindTelemetry, groupTelemetry, "telemetries"},
		{"WasmPlugin", groupExtensions, "wasmplugins"},
		{KindRegistry, groupIsthmus, "registries"},
		{KindFederatedService, groupIsthmus, "federatedservices"},
		{KindMcpBridge, groupHigress, "mcpbridges"},
	}
}
