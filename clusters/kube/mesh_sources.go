package kube

import (
	"fmt"
	"net"
	"strings"

	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
)

// mcpScheme begins the addresses of servers of MCP, the Mesh Configuration Protocol.
const mcpScheme = "xds://"

// SourceAddress is the host:port of a configSource that is an MCP server. Why says why the source is not read, "" if it is.
func SourceAddress(s *meshconfig.ConfigSource) (address, why string) {
	address, mcp := strings.CutPrefix(strings.TrimSuffix(s.GetAddress(), "/"), mcpScheme)
	_, port, err := net.SplitHostPort(address)
	tls := s.GetTlsSettings()
	switch {
	case strings.HasPrefix(s.GetAddress(), "k8s://"):
		return "", "the hub's flags say which API servers are read, and whether their configuration counts (--config-from)"
	case !mcp:
		return "", "only servers of MCP (xds://HOST:PORT) are read; folders are read with --dir"
	case strings.Contains(address, "@"):
		return "", "it has a user or a password: servers of MCP are shown certificates or tokens"
	case err != nil || port == "":
		return "", "it has no port (an IPv6 address is in brackets)"
	case tls.GetMode() == networking.ClientTLSSettings_ISTIO_MUTUAL:
		return "", "the hub has no certificates of the mesh: use SIMPLE, or MUTUAL with files"
	case tls.GetCredentialName() != "" || tls.GetCaCertCredentialName() != "":
		return "", "Secrets are not read for it: name the authorities in caCertificates, as a file or in PEM"
	case tls.GetMode() == networking.ClientTLSSettings_MUTUAL && (tls.GetClientCertificate() == "" || tls.GetPrivateKey() == ""):
		return "", "MUTUAL needs clientCertificate and privateKey"
	}
	return address, ""
}

// hideUsers takes users and passwords out of the addresses of sources.
func hideUsers(m *meshconfig.MeshConfig) {
	for _, s := range m.GetConfigSources() {
		s.Address = api.HideUser(s.Address)
	}
}

// unread lists the sources of configuration that are not read.
func unread(data []byte, m *meshconfig.MeshConfig) (out []Fault) {
	for _, s := range m.GetConfigSources() {
		if _, why := SourceAddress(s); why != "" {
			out = append(out, Fault{Line: fieldLine(data, "configSources"), Reason: fmt.Sprintf("configSources: %.200q is not read: %s", s.GetAddress(), why)})
		}
	}
	return out
}
