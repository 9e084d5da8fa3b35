package script

import (
	"fmt"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// streams gives "LISTENER [RANGES] [SERVER NAMES] CLUSTERS" for each chain that forwards connections.
func (p *proxy) streams(part string) (string, error) {
	var lines []string
	for name, body := range p.State()[gen.ListenerURL] {
		if !strings.Contains(name, part) {
			continue
		}
		var l listenerv3.Listener
		if err := proto.Unmarshal([]byte(body), &l); err != nil {
			return "", err
		}
		for _, c := range append(l.FilterChains, l.DefaultFilterChain) {
			to, err := forwards(c)
			if err != nil {
				return "", err
			}
			if to != "" {
				lines = append(lines, name+chainMatch(c.FilterChainMatch)+" "+to)
			}
		}
	}
	return text(lines), nil
}

func chainMatch(m *listenerv3.FilterChainMatch) string {
	out := ""
	for _, r := range m.GetPrefixRanges() {
		out += fmt.Sprintf(" %s/%d", r.AddressPrefix, r.PrefixLen.GetValue())
	}
	for _, n := range m.GetServerNames() {
		out += " " + n
	}
	return out
}

// forwards gives the clusters of a chain's TCP proxy, "" if it has none.
func forwards(c *listenerv3.FilterChain) (string, error) {
	for _, f := range c.GetFilters() {
		var t tcpv3.TcpProxy
		if !f.GetTypedConfig().MessageIs(&t) {
			continue
		}
		if err := f.GetTypedConfig().UnmarshalTo(&t); err != nil {
			return "", err
		}
		if all := t.GetWeightedClusters().GetClusters(); len(all) > 0 {
			var out []string
			for _, w := range all {
				out = append(out, fmt.Sprintf("%s*%d", w.Name, w.Weight))
			}
			return strings.Join(out, " "), nil
		}
		return t.GetCluster(), nil
	}
	return "", nil
}
