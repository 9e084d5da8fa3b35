package kube

import (
	"encoding/json"
	"slices"

	networking "istio.io/api/networking/v1alpha3"
	networkingv1beta1 "istio.io/api/networking/v1beta1"
	security "istio.io/api/security/v1beta1"
	telemetry "istio.io/api/telemetry/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// meshGroups are the API groups whose kinds concern the mesh.
func meshGroup(group string) bool {
	switch group {
	case "networking.istio.io", "security.istio.io", "telemetry.istio.io", "extensions.istio.io",
		"gateway.networking.k8s.io", "multicluster.x-k8s.io":
		return true
	}
	return false
}

// blank gives our word for a kind, and an empty value to decode it into; nil if it is of no concern.
func blank(t typeMeta) (kind string, value any) {
	switch group := t.group(); {
	case t.APIVersion == "v1":
		return t.Kind, coreKind(t.Kind)
	case t.APIVersion == "discovery.k8s.io/v1" && t.Kind == KindEndpointSlice:
		return t.Kind, &discoveryv1.EndpointSlice{}
	case group == "gateway.networking.k8s.io" && t.Kind == "Gateway":
		return KindKubernetesGateway, &gatewayv1.Gateway{}
	case group == "multicluster.x-k8s.io" && t.Kind == KindServiceExport:
		return t.Kind, &mcsv1beta1.ServiceExport{}
	case group == "multicluster.x-k8s.io" && t.Kind == KindServiceImport:
		return t.Kind, &mcsv1beta1.ServiceImport{}
	case meshGroup(group):
		return t.Kind, istioKind(group, t.Kind)
	}
	if spec := declaredSpec(t.group(), t.Kind); spec != nil {
		return t.Kind, &rawDeclared{spec: spec}
	}
	return t.Kind, nil
}

func coreKind(kind string) any {
	switch kind {
	case KindNamespace:
		return &corev1.Namespace{}
	case KindNode:
		return &corev1.Node{}
	case KindPod:
		return &corev1.Pod{}
	case KindService:
		return &corev1.Service{}
	case KindConfigMap:
		return &corev1.ConfigMap{}
	}
	return nil
}

func istioKind(group, kind string) any {
	switch group + "/" + kind {
	case "networking.istio.io/" + KindServiceEntry:
		return &rawServiceEntry{}
	case "networking.istio.io/" + KindWorkloadEntry:
		return &rawWorkloadEntry{}
	}
	if m := configMessage(group, kind); m != nil {
		return &rawConfig{message: m}
	}
	return &rawOther{}
}

// configMessage is an empty spec of a kind whose row is a Config with it.
func configMessage(group, kind string) message {
	switch group + "/" + kind {
	case "networking.istio.io/" + KindDestinationRule:
		return &networking.DestinationRule{}
	case "networking.istio.io/" + KindGateway:
		return &networking.Gateway{}
	case "networking.istio.io/" + KindVirtualService:
		return &networking.VirtualService{}
	case "networking.istio.io/" + KindSidecar:
		return &networking.Sidecar{}
	case "networking.istio.io/" + KindWorkloadGroup:
		return &networking.WorkloadGroup{}
	case "networking.istio.io/" + KindProxyConfig:
		return &networkingv1beta1.ProxyConfig{}
	case "telemetry.istio.io/" + KindTelemetry:
		return &telemetry.Telemetry{}
	case "security.istio.io/" + KindPeerAuthentication:
		return &security.PeerAuthentication{}
	}
	return nil
}

// meshConfigMap reports whether a ConfigMap has a name that mesh-wide settings have.
func meshConfigMap(js []byte) bool {
	var m struct{ Metadata struct{ Name string } }
	return json.Unmarshal(js, &m) == nil && slices.Contains(meshConfigMaps, m.Metadata.Name)
}
