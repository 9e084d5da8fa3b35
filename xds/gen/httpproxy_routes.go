package gen

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// The table of an HTTP proxy has the virtual hosts of the tables of all ports, by names with the port: "<host>:<port>". Those
// of port 80, which clients leave out, have the names without it too.

// httpProxyTraits are those of all ports' tables, and those that say which HTTP proxies there are.
const httpProxyTraits = TraitType | TraitCluster | TraitNamespace | TraitFamilies | TraitInterception | TraitExtensions | TraitScope | TraitPolicy

// allPorts are the ports by number.
type allPorts struct {
	ports  []*pushcontext.PortView
	labels []string // that routes of some port look at, sorted
}

// portsOf is worked out once for all classes.
func portsOf(v *pushcontext.PortsView) *allPorts {
	return v.Derived().Do(pushcontext.MemoKey{Generator: memoNumbered}, func() any {
		out, labels := &allPorts{}, map[string]struct{}{}
		for _, p := range v.Ports() {
			out.ports = append(out.ports, p)
			for _, l := range routingOf(p).labels {
				labels[l] = struct{}{}
			}
		}
		out.labels = slices.Sorted(maps.Keys(labels))
		slices.SortFunc(out.ports, func(a, b *pushcontext.PortView) int { return cmp.Compare(a.Number, b.Number) })
		return out
	}).(*allPorts)
}

func httpProxyTables(v *pushcontext.PortsView, c Class) (names []string) {
	for _, p := range httpProxiesOf(c, v.Mesh) {
		names = append(names, p.table())
	}
	return names
}

func httpProxyTable(v *pushcontext.PortsView, c Class, name string) ([]byte, error) {
	all := httpProxiesOf(c, v.Mesh)
	i := slices.IndexFunc(all, func(p httpProxy) bool { return p.table() == name })
	if i < 0 {
		return nil, errName(RouteURL, name)
	}
	out := protowire.AppendString(protowire.AppendTag(nil, fieldName, protowire.BytesType), name)
	rest := &routev3.RouteConfiguration{ValidateClusters: no(), VirtualHosts: []*routev3.VirtualHost{all[i].unknownHost(c, v.Mesh)}}
	for _, port := range portsOf(v).ports {
		hosts, err := proxiedHosts(port, c, &all[i])
		if err != nil {
			return nil, err
		}
		for _, h := range hosts {
			out = append(out, h...)
		}
		if routingOf(port).bodies {
			rest.MaxDirectResponseBodySizeBytes = u32(maxDirectResponse)
		}
	}
	end, err := marshal(rest)
	return append(out, end...), err
}

// unknownHost is for requests that no service is for.
func (p *httpProxy) unknownHost(c Class, m *pushcontext.MeshView) *routev3.VirtualHost {
	if p.forwards(c, m) {
		return allowAnyHost(httpProxyCluster)
	}
	return unknownHost(c, m)
}

// proxiedKey says whose virtual hosts are meant.
type proxiedKey struct {
	class Class
	table string
}

// proxiedCache keeps the virtual hosts of one PortView as they stand in tables of HTTP proxies.
type proxiedCache struct {
	mu    sync.Mutex
	hosts map[proxiedKey][][]byte // guarded by mu
}

// proxiedHosts gives those of a port, each encoded with its field tag.
func proxiedHosts(v *pushcontext.PortView, c Class, p *httpProxy) ([][]byte, error) {
	cache := v.Derived().Do(pushcontext.MemoKey{Generator: memoProxied}, func() any {
		return &proxiedCache{hosts: map[proxiedKey][][]byte{}}
	}).(*proxiedCache)
	k := proxiedKey{c, p.table()}
	cache.mu.Lock()
	out, known := cache.hosts[k]
	cache.mu.Unlock()
	if known {
		return out, nil
	}
	if p.egress != nil {
		c.Scope = c.Scope.Only(p.egress)
	}
	hosts, _, err := encodedHosts(v, c)
	if err != nil {
		return nil, err
	}
	for _, h := range hosts {
		if len(h) == 0 {
			continue
		}
		b, err := withPort(h, v.Number)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	cache.mu.Lock()
	defer cache.mu.Unlock()
	cache.hosts[k] = out
	return out, nil
}

// withPort gives a virtual host, which is encoded with its field tag, with the port in its domains.
func withPort(tagged []byte, port uint16) ([]byte, error) {
	_, _, n := protowire.ConsumeTag(tagged)
	body, _ := protowire.ConsumeBytes(tagged[n:])
	h := &routev3.VirtualHost{}
	if err := proto.Unmarshal(body, h); err != nil {
		return nil, err
	}
	var domains []string
	for _, d := range h.Domains {
		if port == pushcontext.RoutedPort {
			domains = append(domains, d)
		}
		if strings.ContainsRune(d, ':') && !strings.HasSuffix(d, "]") {
			continue // a bare address, which can't be told from a host with a port
		}
		domains = append(domains, d+":"+itoa(port))
	}
	h.Domains = domains
	if len(domains) == 0 {
		return nil, nil
	}
	return taggedHost(h)
}
