package envoydump

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/output"
)

type listener struct {
	Name               string        `json:"name"`
	Address            address       `json:"address"`
	FilterChains       []filterChain `json:"filter_chains"`
	DefaultFilterChain *filterChain  `json:"default_filter_chain"`
	// Matcher chooses the chain instead of the chains' own matches, if it is set.
	Matcher json.RawMessage `json:"filter_chain_matcher"`
}

type filterChain struct {
	Name    string   `json:"name"`
	Match   match    `json:"filter_chain_match"`
	Filters []filter `json:"filters"`
}

type match struct {
	DestinationPort      uint32   `json:"destination_port"`
	ServerNames          []string `json:"server_names"`
	TransportProtocol    string   `json:"transport_protocol"`
	ApplicationProtocols []string `json:"application_protocols"`
	PrefixRanges         []struct {
		AddressPrefix string `json:"address_prefix"`
		PrefixLen     uint32 `json:"prefix_len"`
	} `json:"prefix_ranges"`
}

func (m match) String() string {
	var out []string
	add := func(name string, values ...string) {
		if len(values) > 0 && values[0] != "" {
			out = append(out, name+"="+strings.Join(values, ","))
		}
	}
	if m.DestinationPort != 0 {
		add("port", strconv.Itoa(int(m.DestinationPort)))
	}
	for _, p := range m.PrefixRanges {
		add("to", fmt.Sprintf("%s/%d", p.AddressPrefix, p.PrefixLen))
	}
	add("sni", m.ServerNames...)
	add("transport", m.TransportProtocol)
	add("app", m.ApplicationProtocols...)
	if len(out) == 0 {
		return "any"
	}
	return strings.Join(out, ";")
}

// filter holds what the two filters that end a chain say about where traffic goes.
type filter struct {
	Typed struct {
		Type string `json:"@type"`
		RDS  struct {
			Name string `json:"route_config_name"`
		} `json:"rds"`
		RouteConfig routeConfig `json:"route_config"`
		Cluster     string      `json:"cluster"`
		Weighted    struct {
			Clusters []struct {
				Name string `json:"name"`
			} `json:"clusters"`
		} `json:"weighted_clusters"`
	} `json:"typed_config"`
}

func (c filterChain) target() string {
	for _, f := range c.Filters {
		switch t := f.Typed; {
		case strings.HasSuffix(t.Type, ".SniCluster"):
			return "cluster:<server name>"
		case t.RDS.Name != "":
			return "route:" + t.RDS.Name
		case t.RouteConfig.Name != "" || len(t.RouteConfig.VirtualHosts) > 0:
			return "inline-route:" + t.RouteConfig.Name
		case t.Cluster != "":
			return "cluster:" + t.Cluster
		case len(t.Weighted.Clusters) > 0:
			return fmt.Sprintf("cluster:%s(+%d)", t.Weighted.Clusters[0].Name, len(t.Weighted.Clusters)-1)
		}
	}
	return ""
}

// Listeners has a row per filter chain.
func (d *Dump) Listeners() *output.Table {
	t := &output.Table{Header: []string{"LISTENER", "ADDRESS", "CHAIN", "MATCH", "TARGET"}}
	for _, s := range d.Configs {
		for _, l := range s.Listeners {
			x := l.State.Listener
			chains := x.FilterChains
			if x.DefaultFilterChain != nil {
				chains = append(chains, *x.DefaultFilterChain)
			}
			for _, c := range chains {
				match := c.Match.String()
				if len(x.Matcher) > 0 {
					match = "matcher"
				}
				t.Add(x.Name, x.Address.String(), c.Name, match, c.target())
			}
		}
	}
	return t
}
