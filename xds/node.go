package xds

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// identity is what a proxy says of itself in the node of its first request, reduced to what the hub
// uses. It is immutable.
type identity struct {
	id        string // node id
	version   string // metadata ISTIO_VERSION, "" if unsaid
	class     gen.Class
	locality  bool // the node states its locality
	network   bool // the node states its network
	instances []model.InstanceKey
	labels    model.Labels // of the proxy's workload
	// configured: the node sent PROXY_CONFIG, as proxies run by an agent do.
	configured bool
	workload   *Workload // nil if it does not ask to be registered
	vhds       bool      // its Envoy takes virtual hosts one by one over ADS
	ignored    bool      // it has more addresses than are looked at
}

// parseNode reads an encoded Node. The node id is "<type>~<ip>~<pod>.<namespace>~<DNS domain>".
func parseNode(b []byte, aliases map[model.ClusterID]model.ClusterID) (*identity, error) {
	var n corev3.Node
	if len(b) > maxNode {
		return nil, invalid("node has %d bytes; the limit is %d", len(b), maxNode)
	}
	if err := proto.Unmarshal(b, &n); err != nil {
		return nil, invalid("node can't be decoded: %v", err)
	}
	if len(n.Id) > maxNodeID {
		return nil, invalid("node id has %d bytes; the limit is %d", len(n.Id), maxNodeID)
	}
	id := &identity{id: n.Id}
	if err := id.parseID(n.Id); err != nil {
		return nil, err
	}
	if err := id.metadata(metadata{n.Metadata.GetFields()}, aliases); err != nil {
		return nil, err
	}
	if l := n.Locality; l.GetRegion() != "" {
		if err := within("node locality", l.Region, l.Zone, l.SubZone); err != nil {
			return nil, err
		}
		id.class.Locality = model.Locality{Region: l.Region, Zone: l.Zone, Subzone: l.SubZone}
		id.locality = true
	}
	id.class.Extensions = extensions(n.Extensions)
	if id.vhds = takesVirtualHosts(&n); id.workload != nil {
		id.workload.complete(id)
	}
	return id, nil
}

// The first version of Envoy that is known to take virtual hosts over delta ADS. Earlier ones refuse the tables.
const vhdsMajor, vhdsMinor = 1, 40

// takesVirtualHosts goes by the version that an Envoy states. One that does not is taken for a new one, and
// what says that it is something else for none.
func takesVirtualHosts(n *corev3.Node) bool {
	if a := n.GetUserAgentName(); a != "" && a != "envoy" {
		return false
	}
	v := n.GetUserAgentBuildVersion().GetVersion()
	if v == nil {
		return n.GetUserAgentVersion() == ""
	}
	return v.MajorNumber > vhdsMajor || v.MajorNumber == vhdsMajor && v.MinorNumber >= vhdsMinor
}

const nodeIDForm = `want "<sidecar|router>~<ip>~<pod>.<namespace>~<domain>"`

func (id *identity) parseID(s string) error {
	if s == "" {
		return invalid("node id is empty; %s", nodeIDForm)
	}
	parts := strings.Split(s, "~")
	if len(parts) != 4 {
		return invalid("node id %q has %d parts; %s", s, len(parts), nodeIDForm)
	}
	switch parts[0] {
	case "sidecar":
		id.class.Type = gen.Sidecar
	case "router":
		id.class.Type = gen.Router
	default:
		return invalid("node id %q: type %q is not served; %s", s, parts[0], nodeIDForm)
	}
	ip, err := netip.ParseAddr(parts[1])
	if err != nil {
		return invalid("node id %q: %q is not an IP address; %s", s, parts[1], nodeIDForm)
	}
	id.class.IP = ip.Unmap()
	if dot := strings.LastIndexByte(parts[2], '.'); dot >= 0 { // pod names may have dots, namespaces have none
		id.class.Namespace = parts[2][dot+1:]
	}
	if domain := parts[3]; domain != "" {
		id.class.DNSDomain = domain
		if id.class.Namespace == "" {
			id.class.Namespace, _, _ = strings.Cut(domain, ".")
		}
	}
	return nil
}

// metadata reads node metadata. Agents send booleans as strings.
type metadata struct{ fields map[string]*structpb.Value }

func (m metadata) text(key string) string {
	switch v := m.fields[key].GetKind().(type) {
	case *structpb.Value_StringValue:
		return v.StringValue
	case *structpb.Value_BoolValue:
		if v.BoolValue {
			return "true"
		}
	}
	return ""
}

// name reads a name of something, which has a bounded length.
func (m metadata) name(key string, to *string) error {
	*to = m.text(key)
	return within("node metadata "+key, *to)
}

// brief is a text that decides nothing: one that is too long counts for none.
func (m metadata) brief(key string) string {
	if v := m.text(key); len(v) <= maxNodeValue {
		return v
	}
	return ""
}

func within(what string, values ...string) error {
	for _, v := range values {
		if len(v) > maxNodeValue {
			return invalid("%s has %d bytes; the limit is %d", what, len(v), maxNodeValue)
		}
	}
	return nil
}

func (m metadata) flag(key string) bool {
	switch strings.ToLower(m.text(key)) {
	case "1", "true", "t", "yes", "on":
		return true
	}
	return false
}

func interception(mode string) gen.Interception {
	switch mode {
	case "TPROXY":
		return gen.InterceptTProxy
	case "NONE":
		return gen.InterceptNone
	}
	return gen.InterceptRedirect
}

func (id *identity) metadata(m metadata, aliases map[model.ClusterID]model.ClusterID) error {
	c := &id.class
	var cluster, namespace string
	for key, to := range map[string]*string{"CLUSTER_ID": &cluster, "NAMESPACE": &namespace, "NETWORK": &c.Network, "NODE_NAME": &c.Node} {
		if err := m.name(key, to); err != nil {
			return err
		}
	}
	c.Cluster = model.ClusterID(cluster)
	if real, ok := aliases[c.Cluster]; ok {
		c.Cluster = real
	}
	if namespace != "" {
		c.Namespace = namespace
	}
	id.network = c.Network != ""
	c.Interception = interception(m.text("INTERCEPTION_MODE"))
	c.HTTP10, c.CapturesDNS = m.flag("HTTP10"), m.flag("DNS_CAPTURE")
	c.Tuning = m.tuning()
	c.ExposeServices = c.Type == gen.Router && m.flag("ISTHMUS_EXPOSE_SERVICES")
	if err := m.tls(c); err != nil {
		return err
	}
	labels := m.labels()
	c.Labels, id.labels = gen.NewLabels(labels), labels
	c.Spans = gen.NewSpanTags(labels, m.brief("WORKLOAD_NAME"), m.brief("MESH_ID"), c.Namespace, c.Cluster)
	if err := m.view(c); err != nil {
		return err
	}
	if err := m.self(c, labels); err != nil {
		return err
	}
	if err := m.registration(id); err != nil {
		return err
	}
	id.version = clip(m.text("ISTIO_VERSION"), maxVersion)
	if own, ok := m.fields["PROXY_CONFIG"]; ok {
		id.configured, c.Tuning.Own = true, proxySettings(own)
	}
	return id.addresses(m.text("INSTANCE_IPS"))
}

// tuning reads how the proxy wants its listeners. A time that is none is left to Envoy.
func (m metadata) tuning() gen.Tuning {
	out := gen.Tuning{BalanceInbound: m.flag("INBOUND_LISTENER_EXACT_BALANCE"), BalanceOutbound: m.flag("OUTBOUND_LISTENER_EXACT_BALANCE")}
	if port, err := strconv.ParseUint(m.text("HTTP_PROXY_PORT"), 10, 16); err == nil {
		out.HTTPProxy = uint16(port)
	}
	switch d, err := time.ParseDuration(m.text("IDLE_TIMEOUT")); {
	case err != nil || d < 0:
	case d == 0:
		out.Idle = -1
	default:
		out.Idle = min(d, 365*24*time.Hour)
	}
	return out
}

// proxySettings reads what an agent was told, which Istio has go before the mesh's defaultConfig as a whole. What can't be read
// counts for nothing.
func proxySettings(v *structpb.Value) gen.ProxySettings {
	text, err := protojson.Marshal(v.GetStructValue())
	c := &meshconfig.ProxyConfig{}
	if v.GetStructValue() == nil || err != nil || (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, c) != nil {
		return ""
	}
	return gen.NewProxySettings(c)
}

// self reads whether the proxy asks for its peers, and what they have in common with it.
func (m metadata) self(c *gen.Class, labels model.Labels) error {
	if c.SelfDiscovery = m.flag("ENABLE_SELF_DISCOVERY"); !c.SelfDiscovery {
		return nil
	}
	c.Peers.Template = gen.TemplateOf(labels)
	return m.name("WORKLOAD_NAME", &c.Peers.Workload)
}

// tls reads the files for mutual TLS. A set that lacks one of its files is of no use and not kept.
func (m metadata) tls(c *gen.Class) error {
	for prefix, to := range map[string]*gen.TLSFiles{"TLS_CLIENT_": &c.ClientTLS, "TLS_SERVER_": &c.ServerTLS} {
		for key, path := range map[string]*string{"CERT_CHAIN": &to.Chain, "KEY": &to.Key, "ROOT_CERT": &to.Root} {
			if err := m.name(prefix+key, path); err != nil {
				return err
			}
		}
		if !to.Complete() {
			*to = gen.TLSFiles{}
		}
	}
	return nil
}

// view reads the networks whose endpoints the proxy asks for. All or none of the list counts: without
// one of them the proxy would miss endpoints that it means to have.
func (m metadata) view(c *gen.Class) error {
	const key = "REQUESTED_NETWORK_VIEW"
	var list []string
	for n := range strings.SplitSeq(m.text(key), ",") {
		if n = strings.TrimSpace(n); n == "" {
			continue
		}
		if err := within("node metadata "+key, n); err != nil {
			return err
		}
		if list = append(list, n); len(list) > maxNetworks {
			return invalid("node metadata %s has more than %d networks", key, maxNetworks)
		}
	}
	slices.Sort(list)
	c.NetworkView = strings.Join(slices.Compact(list), ",")
	return nil
}

// labels are those of the proxy's workload, as many as are looked at.
func (m metadata) labels() model.Labels {
	of := metadata{m.fields["LABELS"].GetStructValue().GetFields()}
	out := model.Labels{}
	for _, k := range slices.Sorted(maps.Keys(of.fields)) {
		if v := of.text(k); len(k) <= maxLabel && len(v) <= maxLabel && len(out) < maxLabels {
			out[k] = v
		}
	}
	return out
}

// addresses takes the node's own addresses, the one of its id first, then those of INSTANCE_IPS up to a
// limit: on the host's network an agent may list very many. A proxy on a loopback address shares its
// host with others and binds there.
func (id *identity) addresses(list string) error {
	ips := []netip.Addr{id.class.IP}
	for s := range strings.SplitSeq(list, ",") {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		ip, err := netip.ParseAddr(s)
		if err != nil {
			return invalid("node metadata INSTANCE_IPS: %q is not an IP address", clip(s, maxQuoted))
		}
		if ip = ip.Unmap(); slices.Contains(ips, ip) {
			continue
		}
		if len(ips) == maxAddresses {
			id.ignored = true
			break
		}
		ips = append(ips, ip)
	}
	for _, ip := range ips {
		if ip.Is4() {
			id.class.IPv4 = true
		} else {
			id.class.IPv6 = true
		}
		id.instances = append(id.instances, model.InstanceKey{Cluster: id.class.Cluster, IP: ip})
	}
	if ips[0].IsLoopback() {
		id.class.Bind = ips[0]
	}
	return nil
}

// extension gives the optional extension that builds of Envoy list under a name.
func extension(name string) gen.Extensions {
	switch name {
	case "istio.alpn", "envoy.filters.http.alpn":
		return gen.ExtIstioALPN
	case "istio.metadata_exchange", "envoy.filters.network.metadata_exchange":
		return gen.ExtIstioMetadataExchange
	case "istio.peer_metadata", "envoy.filters.http.peer_metadata":
		return gen.ExtIstioPeerMetadata
	case "istio.stats", "envoy.filters.http.istio_stats":
		return gen.ExtIstioStats
	}
	return 0
}

func extensions(list []*corev3.Extension) (out gen.Extensions) {
	for _, e := range list {
		if !e.GetDisabled() {
			out |= extension(e.GetName())
		}
	}
	return out
}

// audience gives what resources depend on. Where the node does not say its locality or network, its
// endpoint does.
func (id *identity) audience(pc *pushcontext.PushContext, k *classes) *audience {
	a := &audience{class: id.class, classes: k}
	in := pc.Instance(id.instances...)
	if id.class.Type == gen.Router {
		a.class.Passthrough = gen.Selecting(pc.Mesh, id.labels)
		a.class.GatewayPorts = gatewayPorts(in)
		a.class.ExposeServices = id.class.ExposeServices && !gen.Configured(pc.Gateways, id.labels)
	}
	a.class.Scope = pc.ScopeOf(pushcontext.ScopeKey{Namespace: id.class.Namespace, Labels: id.labels, Router: id.class.Type == gen.Router})
	a.reader = pushcontext.Reader{Cluster: id.class.Cluster, Namespace: id.class.Namespace, Instances: id.instances, Scope: a.class.Scope}
	if in != nil {
		if !id.locality {
			a.class.Locality = in.Locality
		}
		if !id.network {
			a.class.Network = in.Network
		}
	}
	return a
}

// gatewayPorts says at which of its own ports a router is reached, see gen.Class.GatewayPorts. Of several
// services with one port number the first has the word; some have it that theirs do not count.
func gatewayPorts(in *pushcontext.InstanceView) string {
	if in == nil {
		return ""
	}
	to := map[uint16]uint16{}
	for _, t := range in.Targets.Targets {
		if _, twice := to[t.Port]; !twice && t.Protocol != model.ProtocolUDP && !t.OwnPort {
			to[t.Port] = t.Endpoint
		}
	}
	var out []string
	for _, port := range slices.Sorted(maps.Keys(to)) {
		out = append(out, strconv.Itoa(int(port))+":"+strconv.Itoa(int(to[port])))
	}
	return strings.Join(out, ",")
}
