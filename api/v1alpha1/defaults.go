package v1alpha1

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The defaults of a RegistrySpec.
const (
	DefaultHold              = 5 * time.Minute
	DefaultProtectPercent    = 50
	DefaultRequestsPerSecond = 200
	DefaultConcurrency       = 96
	DefaultMaxServices       = 20_000
	DefaultMaxStale          = 10 * time.Second
	DefaultRefreshInterval   = 30 * time.Second
	DefaultDiscoveryInterval = 10 * time.Second
)

// Effective gives the spec with every default filled in, for a Registry of the namespace. Parts of other providers are dropped.
func (s RegistrySpec) Effective(namespace string) RegistrySpec {
	s.Namespace = cmp.Or(s.Namespace, namespace)
	s.Services = copied(s.Services)
	s.Hosts = copied(s.Hosts)
	s.Hosts.Mode = cmp.Or(s.Hosts.Mode, NamingHigress)
	s.Ports = copied(s.Ports)
	s.Ports.Protocol = cmp.Or(s.Ports.Protocol, "http")
	s.Ports.ProtocolKey = cmp.Or(s.Ports.ProtocolKey, "protocol")
	s.Locality = copied(s.Locality)
	s.Locality.RegionKey = cmp.Or(s.Locality.RegionKey, "region")
	s.Locality.ZoneKey = cmp.Or(s.Locality.ZoneKey, "zone")
	s.Locality.SubzoneKey = cmp.Or(s.Locality.SubzoneKey, "subzone")
	s.Weights = copied(s.Weights)
	s.Health = copied(s.Health)
	s.Health.Warning = cmp.Or(s.Health.Warning, "healthy")
	s.Empty = copied(s.Empty)
	s.Empty.Mode = cmp.Or(s.Empty.Mode, EmptyProtect)
	s.Empty.Duration = duration(s.Empty.Duration, DefaultHold)
	if s.Empty.Percent == nil {
		percent := int32(DefaultProtectPercent)
		s.Empty.Percent = &percent
	}
	s.Limits = copied(s.Limits)
	s.Limits.RequestsPerSecond = cmp.Or(s.Limits.RequestsPerSecond, DefaultRequestsPerSecond)
	s.Limits.Concurrency = cmp.Or(s.Limits.Concurrency, DefaultConcurrency)
	s.Limits.MaxServices = cmp.Or(s.Limits.MaxServices, DefaultMaxServices)
	s.Consul, s.Nacos, s.MCP = s.consul(), s.nacos(), s.mcp()
	return s
}

func (s RegistrySpec) consul() *ConsulSpec {
	if s.Provider != Consul {
		return nil
	}
	c := copied(s.Consul)
	c.Consistency = cmp.Or(c.Consistency, "default")
	c.MaxStale = duration(c.MaxStale, DefaultMaxStale)
	c.RefreshInterval = duration(c.RefreshInterval, DefaultRefreshInterval)
	c.TaggedAddress = cmp.Or(c.TaggedAddress, "lan")
	return c
}

func (s RegistrySpec) nacos() *NacosSpec {
	if s.Provider != Nacos {
		return nil
	}
	n := copied(s.Nacos)
	if len(n.Namespaces) == 0 {
		n.Namespaces = []string{"public"}
	}
	if len(n.Groups) == 0 {
		n.Groups = []string{"DEFAULT_GROUP"}
	}
	n.ContextPath = cmp.Or(n.ContextPath, "/nacos")
	n.DiscoveryInterval = duration(n.DiscoveryInterval, DefaultDiscoveryInterval)
	n.ProtectThreshold = cmp.Or(n.ProtectThreshold, "ignore")
	return n
}

func (s RegistrySpec) mcp() *MCPSpec {
	if s.Provider != MCP {
		return nil
	}
	return copied(s.MCP)
}

// copied gives a value of its own, the zero one for nil.
func copied[T any](v *T) *T {
	var out T
	if v != nil {
		out = *v
	}
	return &out
}

func duration(d *metav1.Duration, or time.Duration) *metav1.Duration {
	if d == nil {
		return &metav1.Duration{Duration: or}
	}
	return copied(d)
}
