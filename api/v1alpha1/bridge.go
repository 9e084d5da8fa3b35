package v1alpha1

import (
	"cmp"
	"net"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The least pause between two looks at the list of services, and the one that is meant with none, as Higress has them.
const bridgeFloor = 10 * time.Second

// Bridged is what one registry of a McpBridge means. Exactly one of Spec and Static is set.
type Bridged struct {
	Name   string
	Spec   *RegistrySpec
	Static *StaticService
	// AccessKey and SecretKey stand in the McpBridge itself.
	AccessKey, SecretKey Hidden
	Faults               []Fault // of fields of the item; with one that refuses, the rest is not set
}

// StaticService is a service whose addresses are written down.
type StaticService struct {
	Host      string          `json:"host"`          // "billing.static", "partner.dns"
	DNS       bool            `json:"dns,omitempty"` // the addresses are names, which proxies resolve
	Addresses []StaticAddress `json:"addresses"`     // those that can be used
	Port      uint16          `json:"port"`          // of the service
	Protocol  string          `json:"protocol"`      // "http", "https", "grpcs" …
	TLS       bool            `json:"tls,omitempty"` // proxies speak TLS to the addresses
	SNI       string          `json:"sni,omitempty"` // with TLS
}

// StaticAddress is where a static service runs: an IP address or a name.
type StaticAddress struct {
	Host string `json:"host"`
	Port uint16 `json:"port"`
}

// Key identifies the item within its McpBridge.
func (r *BridgedRegistry) Key() string { return r.Type + "/" + r.Name }

// Bridge gives what the item means, by the rules of Higress.
func (r *BridgedRegistry) Bridge() Bridged {
	out := Bridged{Name: r.Name}
	c := newChecker()
	if !memberName.MatchString(r.Name) {
		c.at("name").refuse(codeName, "%q can't be the name of a registry: letters, digits, '-', '_' and '.', at most 63", clipped(r.Name))
	}
	switch r.Type {
	case "nacos", "nacos2", "nacos3":
		out.Spec, out.AccessKey, out.SecretKey = r.nacos(c), r.NacosAccessKey, r.NacosSecretKey
	case "consul":
		out.Spec = r.consul(c)
	case "static", "dns":
		out.Static = r.static(c)
	case "zookeeper", "eureka":
		c.at("type").refuse(CodeBridged, "registries of type %s are not served: declare the services as ServiceEntries, or have them registered with Nacos or Consul", r.Type)
	default:
		c.at("type").refuse(CodeBridged, "%q is not a type that is known", clipped(r.Type))
	}
	if r.ProxyName != "" {
		c.at("proxyName").add(Warning, codeNotServed, "services are not reached through forward proxies: they are called directly")
	}
	if s := out.Spec; s != nil {
		for _, f := range s.Validate() {
			f.Field = bridgedField(f.Field)
			*c.found = append(*c.found, f)
		}
	}
	out.Faults = *c.found
	if _, refused := Refuses(out.Faults); refused {
		out.Spec, out.Static, out.AccessKey, out.SecretKey = nil, nil, "", ""
	}
	return out
}

// bridgedField names the field of a McpBridge that a field of a Registry was made of.
func bridgedField(field string) string {
	name, _, _ := strings.Cut(field, "[")
	if to, ok := map[string]string{
		"addresses": "domain", "credentials.secretName": "authSecretName", "nacos.groups": "nacosGroups", "nacos.addressServer": "nacosAddressServer",
		"nacos.namespaces": "nacosNamespaceId", "nacos.namespaceNames": "nacosNamespace", "nacos.discoveryInterval": "nacosRefreshInterval",
		"consul.datacenters": "consulDatacenter", "consul.tags": "consulServiceTag", "consul.refreshInterval": "consulRefreshInterval",
	}[name]; ok {
		return to
	}
	if strings.HasPrefix(name, "ports") {
		return "vport"
	}
	return name
}

// server is the address of the registry.
func (r *BridgedRegistry) server(c checker) []string {
	switch {
	case r.Domain == "" && r.NacosAddressServer != "":
		return nil
	case strings.Contains(r.Domain, "://"):
		c.at("domain").refuse(codeAddress, "it is a host, without scheme")
		return nil
	case r.Port == 0 || r.Port > 65535:
		c.at("port").refuse(codePort, "%d is not a port: it is between 1 and 65535", r.Port)
		return nil
	}
	return []string{net.JoinHostPort(strings.Trim(r.Domain, "[]"), strconv.Itoa(int(r.Port)))}
}

func (r *BridgedRegistry) base(c checker, p Provider) *RegistrySpec {
	s := &RegistrySpec{Provider: p, Addresses: r.server(c), Hosts: &HostNaming{Mode: NamingHigress}}
	if r.AuthSecretName != "" {
		s.Credentials = &Credentials{SecretName: r.AuthSecretName}
	}
	return s
}

func (r *BridgedRegistry) nacos(c checker) *RegistrySpec {
	s := r.base(c, Nacos)
	id := cmp.Or(r.NacosNamespaceID, "public")
	s.Nacos = &NacosSpec{
		Namespaces: []string{id}, NamespaceNames: map[string]string{id: cmp.Or(r.NacosNamespace, id)}, Groups: r.NacosGroups,
		AddressServer: addressServer(r.NacosAddressServer), DiscoveryInterval: c.at("nacosRefreshInterval").interval(r.NacosRefreshInterval),
	}
	if r.Vport != nil {
		s.Ports = r.Vport.mapping(c.at("vport"))
	}
	if r.EnableMCPServer != nil && *r.EnableMCPServer {
		c.at("enableMCPServer").add(Info, codeNotServed, "servers of the Model Context Protocol are none of the mesh's concern: only services are read")
	}
	return s
}

// addressServer is the URL that Higress asks for the servers of Nacos.
func addressServer(s string) string {
	if s == "" {
		return ""
	}
	if !strings.Contains(s, "://") {
		s = "http://" + s
	}
	return strings.TrimSuffix(s, "/") + "/nacos/serverlist"
}

// mapping gives the ports of services; what can't be a port counts for nothing.
func (v *BridgedVport) mapping(c checker) *PortMapping {
	out := &PortMapping{}
	port := func(at checker, n uint32) uint16 {
		if n > 65535 {
			at.add(Warning, codePort, "%d is not a port, and counts for nothing", n)
			return 0
		}
		return uint16(n)
	}
	out.Default = port(c.at("default"), v.Default)
	seen := map[string]bool{}
	for i, s := range v.Services {
		at, host := c.item("services", i), strings.ToLower(s.Name)
		switch n := port(at.at("value"), s.Value); {
		case n == 0:
		case host == "" || seen[host]:
			at.add(Warning, codeDuplicate, "it names no host, or one that is there before, and counts for nothing")
		default:
			seen[host] = true
			out.Services = append(out.Services, ServicePort{Host: s.Name, Port: n})
		}
	}
	return out
}

func (r *BridgedRegistry) consul(c checker) *RegistrySpec {
	s := r.base(c, Consul)
	s.Consul = &ConsulSpec{RefreshInterval: c.at("consulRefreshInterval").interval(r.ConsulRefreshInterval)}
	if r.ConsulDatacenter != "" {
		s.Consul.Datacenters = []string{r.ConsulDatacenter}
	}
	if r.ConsulServiceTag != "" {
		s.Consul.Tags = []string{r.ConsulServiceTag}
	}
	if r.ConsulNamespace != "" {
		c.at("consulNamespace").add(Info, codeNotServed, "it has no effect in Higress, and none here: a Registry has consul.namespaces")
	}
	return s
}

// interval reads a refresh interval.
func (c checker) interval(n Nanoseconds) *metav1.Duration {
	d := time.Duration(n)
	switch {
	case n == 0:
		d = bridgeFloor
	case d < bridgeFloor:
		c.add(Info, codeDuration, "the unit is nanoseconds: %s is less than the least, so that it is %s", d, bridgeFloor)
		d = bridgeFloor
	case d > longest:
		c.add(Warning, codeDuration, "the unit is nanoseconds: %s is too long, so that it is %s", d, bridgeFloor)
		d = bridgeFloor
	}
	return &metav1.Duration{Duration: d}
}

// static reads a list of addresses. One that is none costs only itself.
func (r *BridgedRegistry) static(c checker) *StaticService {
	out := &StaticService{Host: r.Name + "." + r.Type, DNS: r.Type == "dns", Protocol: strings.ToLower(cmp.Or(r.Protocol, "http")), Port: uint16(r.Port)}
	c.at("name").unless(isDNS(out.Host), codeName, "%q is not a DNS name", clipped(out.Host))
	if r.Port == 0 || r.Port > 65535 {
		c.at("port").refuse(codePort, "%d is not a port: it is between 1 and 65535", r.Port)
	}
	c.at("protocol").protocol(r.Protocol)
	for item := range strings.SplitSeq(r.Domain, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		if a, why := staticAddress(item, out.DNS, out.Port); why != "" {
			c.at("domain").add(Warning, codeAddress, "%q is left out: %s", clipped(item), why)
		} else {
			out.Addresses = append(out.Addresses, a)
		}
	}
	c.at("domain").unless(len(out.Addresses) > 0, codeAddress, "it has no address that can be used")
	if out.Protocol == "https" || out.Protocol == "grpcs" {
		out.TLS, out.SNI = true, r.SNI
		if out.SNI == "" && out.DNS && len(out.Addresses) == 1 {
			out.SNI = out.Addresses[0].Host
		}
		c.at("sni").unless(out.SNI == "" || isDNS(out.SNI), codeHost, "%q is not a DNS name", clipped(out.SNI))
	}
	return out
}

// staticAddress reads an item of a list of addresses, or says why it can't.
func staticAddress(item string, dns bool, port uint16) (a StaticAddress, why string) {
	host := item
	if h, p, err := net.SplitHostPort(item); err == nil {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return a, "its port is none"
		}
		host, port = h, uint16(n)
	} else if !dns {
		return a, "it is not ip:port"
	}
	c := newChecker()
	switch {
	case dns && !isDNS(host):
		return a, "it is not a DNS name"
	case !dns && !isIP(host):
		return a, "it is not an IP address"
	case !dns && !c.host(host):
		return a, "it can't be dialled"
	}
	return StaticAddress{Host: host, Port: port}, ""
}

// Validate gives what is wrong with the spec. Nothing of it keeps the rest from being in force: a registry that can't be served costs itself.
func (s *McpBridgeSpec) Validate() []Fault {
	var out []Fault
	seen := map[string]bool{}
	for i := range s.Registries {
		r, at := &s.Registries[i], newChecker().item("registries", i)
		for _, f := range r.Bridge().Faults {
			if f.Field = at.path + "." + f.Field; f.Level == Refused {
				f.Level, f.Message = Warning, "the registry is not served: "+f.Message
			}
			out = append(out, f)
		}
		if seen[r.Key()] {
			out = append(out, Fault{Field: at.path, Code: codeDuplicate, Level: Warning, Message: "the registry is not served: there is one of this type and name before"})
		}
		seen[r.Key()] = true
	}
	if len(s.Proxies) > 0 {
		out = append(out, Fault{Field: "proxies", Code: codeNotServed, Level: Warning, Message: "forward proxies are not served"})
	}
	return out[:min(len(out), mostFaults)]
}
