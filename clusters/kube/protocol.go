package kube

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// standardAppProtocol replaces Kubernetes' own appProtocol names.
func standardAppProtocol(s string) string {
	switch s {
	case "kubernetes.io/h2c":
		return "http2"
	case "kubernetes.io/ws":
		return "http"
	case "kubernetes.io/wss":
		return "https"
	}
	return s
}

// serverFirst reports whether the port's usual protocol has the server speak first, so that sniffing
// would wait in vain: SMTP, DNS over TCP, MySQL, MongoDB.
func serverFirst(port int32) bool { return port == 25 || port == 53 || port == 3306 || port == 27017 }

// portProtocol selects a Service port's protocol: UDP stays UDP, then appProtocol, then the port
// name up to its first "-", then TCP for well-known server-first ports, else the proxy sniffs.
func portProtocol(port int32, name string, transport corev1.Protocol, appProtocol *string) model.Protocol {
	if transport == corev1.ProtocolUDP {
		return model.ProtocolUDP
	}
	if appProtocol != nil {
		name = standardAppProtocol(*appProtocol)
	}
	name = strings.ToLower(name)
	if strings.HasPrefix(name, "grpc-web") {
		return model.ProtocolGRPCWeb
	}
	word, _, _ := strings.Cut(name, "-")
	if p, ok := model.ParseProtocol(word); ok {
		return p
	}
	if serverFirst(port) {
		return model.ProtocolTCP
	}
	return model.ProtocolUnknown
}
