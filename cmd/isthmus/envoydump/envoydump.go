// Package envoydump turns an Envoy configuration dump (JSON as the admin interface writes it) into
// tables. It reads only the fields that the tables show, so a dump may hold types that this program
// does not know.
package envoydump

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/output"
)

// Dump is a configuration dump.
type Dump struct {
	Configs []section `json:"configs"`
}

// section is one of Envoy's ...ConfigDump messages; each fills the field of its own type.
type section struct {
	Clusters []struct {
		Cluster cluster `json:"cluster"`
	} `json:"dynamic_active_clusters"`
	Endpoints []struct {
		Assignment assignment `json:"endpoint_config"`
	} `json:"dynamic_endpoint_configs"`
	Listeners []struct {
		State struct {
			Listener listener `json:"listener"`
		} `json:"active_state"`
	} `json:"dynamic_listeners"`
	Routes []struct {
		Config routeConfig `json:"route_config"`
	} `json:"dynamic_route_configs"`
}

// Parse reads a dump.
func Parse(raw []byte) (*Dump, error) {
	d := &Dump{}
	if err := json.Unmarshal(raw, d); err != nil {
		return nil, fmt.Errorf("read configuration dump: %w", err)
	}
	return d, nil
}

type cluster struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	ClusterType struct {
		Name string `json:"name"`
	} `json:"cluster_type"`
	LbPolicy       string     `json:"lb_policy"`
	LoadAssignment assignment `json:"load_assignment"`
}

// kind is the discovery type; the default is not written out.
func (c cluster) kind() string {
	switch {
	case c.ClusterType.Name != "":
		return c.ClusterType.Name
	case c.Type == "":
		return "STATIC"
	}
	return c.Type
}

type assignment struct {
	ClusterName string `json:"cluster_name"`
	Endpoints   []struct {
		Locality struct {
			Region  string `json:"region"`
			Zone    string `json:"zone"`
			SubZone string `json:"sub_zone"`
		} `json:"locality"`
		Priority    uint32       `json:"priority"`
		LbEndpoints []lbEndpoint `json:"lb_endpoints"`
	} `json:"endpoints"`
}

type lbEndpoint struct {
	HealthStatus        string `json:"health_status"`
	LoadBalancingWeight uint32 `json:"load_balancing_weight"`
	Endpoint            struct {
		Address address `json:"address"`
	} `json:"endpoint"`
}

type address struct {
	SocketAddress struct {
		Address   string `json:"address"`
		PortValue uint16 `json:"port_value"`
	} `json:"socket_address"`
	Pipe struct {
		Path string `json:"path"`
	} `json:"pipe"`
	Internal struct {
		Name string `json:"server_listener_name"`
	} `json:"envoy_internal_address"`
}

func (a address) String() string {
	switch {
	case a.Pipe.Path != "":
		return "unix://" + a.Pipe.Path
	case a.Internal.Name != "":
		return "envoy://" + a.Internal.Name
	case strings.Contains(a.SocketAddress.Address, ":"):
		return "[" + a.SocketAddress.Address + "]:" + strconv.Itoa(int(a.SocketAddress.PortValue))
	}
	return a.SocketAddress.Address + ":" + strconv.Itoa(int(a.SocketAddress.PortValue))
}

// Clusters has a row per cluster, its name taken apart.
func (d *Dump) Clusters() *output.Table {
	t := &output.Table{Header: []string{"HOST", "PORT", "SUBSET", "DIRECTION", "TYPE", "NAME"}}
	for _, s := range d.Configs {
		for _, c := range s.Clusters {
			direction, port, subset, host := splitName(c.Cluster.Name)
			t.Add(host, port, subset, direction, c.Cluster.kind(), c.Cluster.Name)
		}
	}
	return t
}

// splitName takes "direction|port|subset|host" apart; any other name is all host.
func splitName(name string) (direction, port, subset, host string) {
	p := strings.Split(name, "|")
	if len(p) != 4 {
		return "", "", "", name
	}
	return p[0], p[1], p[2], p[3]
}

// Endpoints has a row per endpoint, also of clusters that hold theirs themselves; an assignment
// without any has a row too.
func (d *Dump) Endpoints() *output.Table {
	t := &output.Table{Header: []string{"CLUSTER", "ENDPOINT", "HEALTH", "PRIORITY", "WEIGHT", "LOCALITY"}}
	for _, s := range d.Configs {
		for _, e := range s.Endpoints {
			addAssignment(t, e.Assignment)
		}
		for _, c := range s.Clusters {
			if len(c.Cluster.LoadAssignment.Endpoints) > 0 {
				c.Cluster.LoadAssignment.ClusterName = c.Cluster.Name
				addAssignment(t, c.Cluster.LoadAssignment)
			}
		}
	}
	return t
}

func addAssignment(t *output.Table, a assignment) {
	before := len(t.Rows)
	for _, l := range a.Endpoints {
		locality := strings.TrimRight(l.Locality.Region+"/"+l.Locality.Zone+"/"+l.Locality.SubZone, "/")
		for _, e := range l.LbEndpoints {
			health := e.HealthStatus
			if health == "" {
				health = "UNKNOWN"
			}
			t.Add(a.ClusterName, e.Endpoint.Address.String(), health, strconv.Itoa(int(l.Priority)), strconv.Itoa(int(max(e.LoadBalancingWeight, 1))), locality)
		}
	}
	if len(t.Rows) == before {
		t.Add(a.ClusterName, "", "", "", "", "")
	}
}
