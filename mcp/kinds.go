package mcp

import "strings"

// KindMesh is the kind of the mesh-wide settings, which travel without envelope.
const KindMesh = "MeshConfig"

// Kind is a kind of configuration and the versions under which servers know it. All hold the same objects.
type Kind struct {
	Group, Name string
	Versions    []string // the one to ask for first, then older ones
}

// TypeURLs are the names of the kind on the wire, in the order of its versions.
func (k Kind) TypeURLs() []string {
	out := make([]string, len(k.Versions))
	for i, v := range k.Versions {
		out[i] = k.Group + "/" + v + "/" + k.Name
	}
	return out
}

// Kinds are those that a hub asks for: of Istio all, and its own. Services come before what refers to them.
func Kinds() []Kind {
	const networking, security = "networking.istio.io", "security.istio.io"
	grown := []string{"v1", "v1beta1", "v1alpha3"}
	return []Kind{
		{"core", KindMesh, []string{"v1alpha1"}},
		{networking, "ServiceEntry", grown},
		{networking, "WorkloadEntry", grown},
		{networking, "WorkloadGroup", grown},
		{networking, "DestinationRule", grown},
		{networking, "VirtualService", grown},
		{networking, "Gateway", grown},
		{networking, "Sidecar", grown},
		{networking, "ProxyConfig", []string{"v1beta1"}},
		{networking, "EnvoyFilter", []string{"v1alpha3"}},
		{security, "PeerAuthentication", []string{"v1", "v1beta1"}},
		{security, "RequestAuthentication", []string{"v1", "v1beta1"}},
		{security, "AuthorizationPolicy", []string{"v1", "v1beta1"}},
		{"telemetry.istio.io", "Telemetry", []string{"v1", "v1alpha1"}},
		{"extensions.istio.io", "WasmPlugin", []string{"v1alpha1"}},
		{"extensions.istio.io", "TrafficExtension", []string{"v1alpha1"}},
		{"isthmus.io", "Registry", []string{"v1alpha1"}},
		{"isthmus.io", "FederatedService", []string{"v1alpha1"}},
	}
}

// ParseTypeURL splits "group/version/kind".
func ParseTypeURL(s string) (group, version, kind string, ok bool) {
	p := strings.Split(s, "/")
	if len(p) != 3 || p[0] == "" || p[1] == "" || p[2] == "" {
		return "", "", "", false
	}
	return p[0], p[1], p[2], true
}
