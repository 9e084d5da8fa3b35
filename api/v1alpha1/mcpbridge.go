package v1alpha1

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// The group of McpBridge, and the name that the one object has which counts.
const (
	GroupHigress  = "networking.higress.io"
	KindMcpBridge = "McpBridge"
	McpBridgeName = "default"
)

// McpBridgeSpec is the spec of Higress's McpBridge (networking.higress.io/v1), read as it is so that its registries can be served before
// they are declared anew. Fields that are not here are passed over.
type McpBridgeSpec struct {
	Registries []BridgedRegistry `json:"registries,omitempty"`
	Proxies    []BridgedProxy    `json:"proxies,omitempty"` // forward proxies; not served
}

// BridgedRegistry is one registry of a McpBridge. Type and Name together identify it.
type BridgedRegistry struct {
	Type   string `json:"type"` // nacos, nacos2, nacos3, consul, static, dns; zookeeper and eureka are not served
	Name   string `json:"name"`
	Domain string `json:"domain,omitempty"` // of the server; for static a list of addresses, for dns one of names, with commas
	Port   uint32 `json:"port,omitempty"`

	NacosAddressServer   string      `json:"nacosAddressServer,omitempty"`
	NacosAccessKey       Hidden      `json:"nacosAccessKey,omitempty"`
	NacosSecretKey       Hidden      `json:"nacosSecretKey,omitempty"`
	NacosNamespaceID     string      `json:"nacosNamespaceId,omitempty"` // "public" if empty
	NacosNamespace       string      `json:"nacosNamespace,omitempty"`   // in host names; the id if empty
	NacosGroups          []string    `json:"nacosGroups,omitempty"`
	NacosRefreshInterval Nanoseconds `json:"nacosRefreshInterval,omitempty"`

	ConsulNamespace       string      `json:"consulNamespace,omitempty"` // without effect in Higress, too
	ConsulDatacenter      string      `json:"consulDatacenter,omitempty"`
	ConsulServiceTag      string      `json:"consulServiceTag,omitempty"`
	ConsulRefreshInterval Nanoseconds `json:"consulRefreshInterval,omitempty"`

	ZkServicesPath []string `json:"zkServicesPath,omitempty"`
	AuthSecretName string   `json:"authSecretName,omitempty"` // keys nacosUsername and nacosPassword, consulToken

	Protocol  string        `json:"protocol,omitempty"` // of static and dns; HTTP if empty
	SNI       string        `json:"sni,omitempty"`      // likewise
	ProxyName string        `json:"proxyName,omitempty"`
	Vport     *BridgedVport `json:"vport,omitempty"` // service ports of Nacos

	// What concerns the Model Context Protocol, and nothing here.
	EnableMCPServer        *bool           `json:"enableMCPServer,omitempty"`
	EnableScopeMcpServers  *bool           `json:"enableScopeMcpServers,omitempty"`
	AllowMcpServers        []string        `json:"allowMcpServers,omitempty"`
	McpServerBaseURL       string          `json:"mcpServerBaseUrl,omitempty"`
	McpServerExportDomains []string        `json:"mcpServerExportDomains,omitempty"`
	Metadata               json.RawMessage `json:"metadata,omitempty"`
}

// BridgedVport gives services a port that does not depend on their instances: Default, or another one for some hosts.
type BridgedVport struct {
	Default  uint32               `json:"default,omitempty"`
	Services []BridgedServicePort `json:"services,omitempty"`
}

// BridgedServicePort is the port of one host.
type BridgedServicePort struct {
	Name  string `json:"name"`
	Value uint32 `json:"value"`
}

// BridgedProxy is a forward proxy.
type BridgedProxy struct {
	Type string `json:"type,omitempty"`
	Name string `json:"name,omitempty"`
}

// Nanoseconds is a number, in JSON possibly as text.
type Nanoseconds int64

// UnmarshalJSON implements json.Unmarshaler.
func (n *Nanoseconds) UnmarshalJSON(js []byte) error {
	text := string(js)
	if unquoted, err := strconv.Unquote(text); err == nil {
		text = unquoted
	}
	if text == "null" {
		return nil
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return fmt.Errorf("%q is not a whole number of nanoseconds", clipped(text))
	}
	*n = Nanoseconds(v)
	return nil
}

// Hidden is a credential that stands in an object. It is left out of all that is written: logs, debug pages, files.
type Hidden string

// String implements fmt.Stringer.
func (Hidden) String() string { return "credentials" }

// GoString implements fmt.GoStringer.
func (Hidden) GoString() string { return "credentials" }

// MarshalJSON leaves it out.
func (Hidden) MarshalJSON() ([]byte, error) { return []byte(`""`), nil }

// clipped bounds what is quoted of an object.
func clipped(s string) string {
	const most = 80
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
