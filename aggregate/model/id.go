package model

import (
	"cmp"
	"net/netip"
	"strings"
)

// ClusterID names a member: a failure and address domain.
type ClusterID string

// ProviderID names a kind of source.
type ProviderID string

// The providers that exist in the tree.
const (
	ProviderKubernetes ProviderID = "kubernetes"
	ProviderFile       ProviderID = "file"
	ProviderDNS        ProviderID = "dns"
	ProviderMesh       ProviderID = "mesh"
	ProviderSecrets    ProviderID = "secrets"
	ProviderFolder     ProviderID = "folder"
	// ProviderWorkloadGroup are workloads that their proxies registered with the hub.
	ProviderWorkloadGroup ProviderID = "workloadgroup"
	ProviderMemory        ProviderID = "memory"
	// The foreign registries: each is a member of its own, called as it was declared.
	ProviderConsul ProviderID = "consul"
	ProviderNacos  ProviderID = "nacos"
	ProviderMCP    ProviderID = "mcp" // a server of the Mesh Configuration Protocol
	// Services whose addresses, or names, stand in a declaration.
	ProviderStatic    ProviderID = "static"
	ProviderStaticDNS ProviderID = "static-dns"
)

// Foreign reports whether registries of the provider are declared, and no cluster that proxies run in.
func (p ProviderID) Foreign() bool {
	switch p {
	case ProviderConsul, ProviderNacos, ProviderMCP, ProviderStatic, ProviderStaticDNS:
		return true
	}
	return false
}

// OfHub reports whether registries of the provider are about the hub's own affairs, and belong to no member: mesh-wide
// settings, names of gateways, credentials in Secrets or in a folder.
func (p ProviderID) OfHub() bool {
	switch p {
	case ProviderMesh, ProviderDNS, ProviderSecrets, ProviderFolder:
		return true
	}
	return false
}

// ShardKey names a registry: one provider in one member. What it contributed is its shard.
type ShardKey struct {
	Provider ProviderID
	Cluster  ClusterID
}

// String gives "provider/cluster".
func (k ShardKey) String() string { return string(k.Provider) + "/" + string(k.Cluster) }

// Compare orders shards by provider, then cluster.
func (k ShardKey) Compare(o ShardKey) int {
	return cmp.Or(strings.Compare(string(k.Provider), string(o.Provider)), strings.Compare(string(k.Cluster), string(o.Cluster)))
}

// MarshalText makes a ShardKey usable as a JSON key.
func (k ShardKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// ServiceKey identifies a service in a snapshot. Cluster is empty for a mesh-wide service; a
// cluster-local one carries the cluster that owns it, so equal names in two members stay apart.
type ServiceKey struct {
	Cluster   ClusterID
	Namespace string
	Host      string
}

// Compare orders by host, namespace, cluster.
func (k ServiceKey) Compare(o ServiceKey) int {
	return cmp.Or(strings.Compare(k.Host, o.Host), strings.Compare(k.Namespace, o.Namespace), strings.Compare(string(k.Cluster), string(o.Cluster)))
}

// String gives "namespace/host" or "namespace/host@cluster".
func (k ServiceKey) String() string {
	s := k.Namespace + "/" + k.Host
	if k.Cluster != "" {
		s += "@" + string(k.Cluster)
	}
	return s
}

// Addr is the identity of an endpoint: where it can be dialled, and in which member that address
// means something. A bare IP is never an identity, since members may reuse address ranges.
//
// Exactly one of three forms is used: an IP and port (Host empty), a DNS name and port (AddrPort
// holds only the port), or a unix socket (Host starts with "unix://", no port). An address-less
// endpoint, reachable only through its network's gateway, has neither IP nor Host.
type Addr struct {
	Cluster  ClusterID
	AddrPort netip.AddrPort
	Host     string
}

// Compare is a total order over all fields.
func (a Addr) Compare(o Addr) int {
	if c := a.AddrPort.Compare(o.AddrPort); c != 0 {
		return c // the common case, in large sorts
	}
	return cmp.Or(strings.Compare(a.Host, o.Host), strings.Compare(string(a.Cluster), string(o.Cluster)))
}

// Dialable reports whether the address can be dialled directly.
func (a Addr) Dialable() bool { return a.Host != "" || a.AddrPort.Addr().IsValid() }

// String gives the address without its cluster, as "ip:port", "host:port" or "unix://path".
func (a Addr) String() string {
	switch {
	case strings.HasPrefix(a.Host, "unix://"):
		return a.Host
	case a.Host != "":
		return a.Host + ":" + itoa(a.AddrPort.Port())
	case !a.AddrPort.Addr().IsValid():
		return ":" + itoa(a.AddrPort.Port())
	}
	return a.AddrPort.String()
}

// InstanceKey identifies a running proxy by where it runs: one of its IPs in its own member.
type InstanceKey struct {
	Cluster ClusterID
	IP      netip.Addr
}

// Compare orders by IP, then cluster.
func (k InstanceKey) Compare(o InstanceKey) int {
	if c := k.IP.Compare(o.IP); c != 0 {
		return c
	}
	return strings.Compare(string(k.Cluster), string(o.Cluster))
}

// Locality places an endpoint or proxy. Empty parts are unknown.
type Locality struct {
	Region  string `json:"region,omitempty"`
	Zone    string `json:"zone,omitempty"`
	Subzone string `json:"subzone,omitempty"`
}

// ParseLocality reads "region/zone/subzone"; missing parts stay empty.
func ParseLocality(s string) Locality {
	p := strings.SplitN(s, "/", 3)
	p = append(p, "", "", "")
	return Locality{Region: p[0], Zone: p[1], Subzone: p[2]}
}

// String gives "region/zone/subzone" without trailing slashes, "" when unknown.
func (l Locality) String() string {
	return strings.TrimRight(l.Region+"/"+l.Zone+"/"+l.Subzone, "/")
}

// Compare orders by region, zone, subzone.
func (l Locality) Compare(o Locality) int {
	return cmp.Or(strings.Compare(l.Region, o.Region), strings.Compare(l.Zone, o.Zone), strings.Compare(l.Subzone, o.Subzone))
}
