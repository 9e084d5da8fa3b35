package aggregate

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// mesh is the mesh-wide settings in the form that merging needs. It is immutable.
type mesh struct {
	view         *pushcontext.MeshView
	local        []localRule // most specific first
	fromRegistry map[model.ClusterID]string
	cidrs        []networkCIDR // longest prefix first
}

// localRule says whether hosts that match are local to their members.
type localRule struct {
	host  string // exact, or "*.suffix" or "*"
	local bool
}

type networkCIDR struct {
	prefix  netip.Prefix
	network string
}

// newMesh derives settings from the effective configuration objects, either of which may be nil.
func newMesh(cfg *meshconfig.MeshConfig, nets *meshconfig.MeshNetworks, o Options) *mesh {
	m := &mesh{fromRegistry: map[model.ClusterID]string{}}
	m.view = &pushcontext.MeshView{
		Config: withDefaults(cfg), Networks: nets, DomainSuffix: o.DomainSuffix, ConfigCluster: o.ConfigCluster,
	}
	m.view.Config.TrustDomain = cmp.Or(o.TrustDomain, m.view.Config.TrustDomain, "cluster.local")
	m.local = localRules(m.view.Config, o.DomainSuffix)
	m.assign(nets)
	return m
}

// same reports whether both stand for equal settings, gateways aside.
func (m *mesh) same(o *mesh) bool {
	return o != nil && proto.Equal(m.view.Config, o.view.Config) && proto.Equal(m.view.Networks, o.view.Networks)
}

// with gives the settings together with what other rows say of the whole mesh; the same if that is in it.
func (m *mesh) with(gatewayNetworks []string, servers []pushcontext.AutoPassthrough) *mesh {
	v := m.view
	if slices.Equal(v.GatewayNetworks, gatewayNetworks) && slices.EqualFunc(v.AutoPassthrough, servers, samePassthrough) {
		return m
	}
	next := *m
	next.view = &pushcontext.MeshView{
		Config: v.Config, Networks: v.Networks, DomainSuffix: v.DomainSuffix, ConfigCluster: v.ConfigCluster,
		GatewayNetworks: gatewayNetworks, AutoPassthrough: servers,
	}
	return &next
}

// gatewayHosts are the Services that meshNetworks names as gateways.
func (m *mesh) gatewayHosts() map[string]bool {
	out := map[string]bool{}
	for _, n := range m.view.Networks.GetNetworks() {
		for _, g := range n.GetGateways() {
			if name := g.GetRegistryServiceName(); name != "" {
				out[name] = true
			}
		}
	}
	return out
}

// withDefaults fills in Istio's defaults (MeshConfig reference).
func withDefaults(in *meshconfig.MeshConfig) *meshconfig.MeshConfig {
	c := &meshconfig.MeshConfig{}
	if in != nil {
		c = proto.Clone(in).(*meshconfig.MeshConfig)
	}
	c.RootNamespace = cmp.Or(c.RootNamespace, "istio-system")
	c.ProxyListenPort = cmp.Or(c.ProxyListenPort, 15001)
	c.ProxyInboundListenPort = cmp.Or(c.ProxyInboundListenPort, 15006)
	c.ConnectTimeout = orDuration(c.ConnectTimeout, 10*time.Second)
	c.DnsRefreshRate = orDuration(c.DnsRefreshRate, time.Minute)
	c.ProtocolDetectionTimeout = orDuration(c.ProtocolDetectionTimeout, 0)
	if c.EnableAutoMtls == nil {
		c.EnableAutoMtls = wrapperspb.Bool(true)
	}
	if c.OutboundTrafficPolicy == nil {
		c.OutboundTrafficPolicy = &meshconfig.MeshConfig_OutboundTrafficPolicy{Mode: meshconfig.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY}
	}
	if c.InboundTrafficPolicy == nil {
		c.InboundTrafficPolicy = &meshconfig.MeshConfig_InboundTrafficPolicy{Mode: meshconfig.MeshConfig_InboundTrafficPolicy_PASSTHROUGH}
	}
	if c.LocalityLbSetting == nil {
		c.LocalityLbSetting = &networking.LocalityLoadBalancerSetting{}
	}
	if c.LocalityLbSetting.Enabled == nil {
		c.LocalityLbSetting.Enabled = wrapperspb.Bool(true)
	}
	for _, to := range []*[]string{&c.DefaultServiceExportTo, &c.DefaultVirtualServiceExportTo, &c.DefaultDestinationRuleExportTo} {
		if len(*to) == 0 {
			*to = []string{"*"}
		}
	}
	c.DefaultConfig = proxyDefaults(c.DefaultConfig, c.RootNamespace)
	return c
}

func proxyDefaults(p *meshconfig.ProxyConfig, root string) *meshconfig.ProxyConfig {
	if p == nil {
		p = &meshconfig.ProxyConfig{}
	}
	p.DiscoveryAddress = cmp.Or(p.DiscoveryAddress, "istiod."+root+".svc:15012")
	p.StatusPort = cmp.Or(p.StatusPort, 15020)
	p.DrainDuration = orDuration(p.DrainDuration, 45*time.Second)
	return p
}

func orDuration(d *durationpb.Duration, def time.Duration) *durationpb.Duration {
	if d == nil {
		return durationpb.New(def)
	}
	return d
}

// localRules are the built-in cluster-local hosts and those of serviceSettings. Of several that
// match, the most specific decides; a setting beats a built-in rule for the same host.
func localRules(c *meshconfig.MeshConfig, suffix string) []localRule {
	byHost := map[string]bool{"*.kube-system.svc." + suffix: true, "kubernetes.default.svc." + suffix: true}
	if h := discoveryHost(c, suffix); h != "" {
		byHost[h] = true
	}
	for _, s := range c.ServiceSettings {
		for _, h := range s.GetHosts() {
			byHost[h] = s.GetSettings().GetClusterLocal()
		}
	}
	rules := make([]localRule, 0, len(byHost))
	for h, local := range byHost {
		rules = append(rules, localRule{h, local})
	}
	slices.SortFunc(rules, func(a, b localRule) int {
		return cmp.Or(
			cmp.Compare(strings.Count(a.host, "*"), strings.Count(b.host, "*")),
			cmp.Compare(len(b.host), len(a.host)),
			strings.Compare(a.host, b.host),
		)
	})
	return rules
}

// discoveryHost is the hub's own service, which proxies must reach in their own member.
func discoveryHost(c *meshconfig.MeshConfig, suffix string) string {
	h, _, _ := strings.Cut(c.GetDefaultConfig().GetDiscoveryAddress(), ":")
	if strings.HasSuffix(h, ".svc") {
		h += "." + suffix
	}
	return h
}

// clusterLocal reports whether settings make the host local to each member.
func (m *mesh) clusterLocal(host string) bool {
	for _, r := range m.local {
		if suffix, wild := strings.CutPrefix(r.host, "*"); host == r.host || wild && strings.HasSuffix(host, suffix) {
			return r.local
		}
	}
	return false
}

// assign indexes which registries and address ranges belong to which network. Of several networks
// that claim one registry or range, the first by name has it.
func (m *mesh) assign(nets *meshconfig.MeshNetworks) {
	names := make([]string, 0, len(nets.GetNetworks()))
	for name := range nets.GetNetworks() {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, e := range nets.Networks[name].GetEndpoints() {
			if r := model.ClusterID(e.GetFromRegistry()); r != "" && m.fromRegistry[r] == "" {
				m.fromRegistry[r] = name
			}
			if p, err := netip.ParsePrefix(e.GetFromCidr()); err == nil {
				m.cidrs = append(m.cidrs, networkCIDR{p.Masked(), name})
			}
		}
	}
	slices.SortStableFunc(m.cidrs, func(a, b networkCIDR) int { return cmp.Compare(b.prefix.Bits(), a.prefix.Bits()) })
}

// network gives the network of an endpoint that names none itself.
func (m *mesh) network(a model.Addr) string {
	if n := m.fromRegistry[a.Cluster]; n != "" {
		return n
	}
	ip := a.AddrPort.Addr()
	for _, c := range m.cidrs {
		if c.prefix.Contains(ip) {
			return c.network
		}
	}
	return ""
}

// meshRow is a mesh-wide configuration row.
type meshRow struct {
	shard model.ShardKey
	key   string
	cfg   *model.Config
}

// effective picks the configuration objects in force among mesh-wide rows: the hub's own settings
// first, then the config cluster's, then by shard and key.
func effective(rows []meshRow, configCluster model.ClusterID) (cfg *meshconfig.MeshConfig, nets *meshconfig.MeshNetworks) {
	rank := func(k model.ShardKey) int {
		switch {
		case k.Provider == model.ProviderMesh:
			return 0
		case k.Cluster == configCluster:
			return 1
		}
		return 2
	}
	slices.SortFunc(rows, func(a, b meshRow) int {
		return cmp.Or(cmp.Compare(rank(a.shard), rank(b.shard)), a.shard.Compare(b.shard), strings.Compare(a.key, b.key))
	})
	for _, r := range rows {
		switch spec := r.cfg.Spec.(type) {
		case *meshconfig.MeshConfig:
			if cfg == nil {
				cfg = spec
			}
		case *meshconfig.MeshNetworks:
			if nets == nil {
				nets = spec
			}
		}
	}
	return cfg, nets
}

// meshWide reports whether the object holds settings of the whole mesh.
func meshWide(c *model.Config) bool {
	return c.Kind == model.ConfigMesh || c.Kind == model.ConfigNetworks
}

func appendMesh(rows []meshRow, shard model.ShardKey, key string, c *model.Config) []meshRow {
	if meshWide(c) {
		rows = append(rows, meshRow{shard, key, c})
	}
	return rows
}
