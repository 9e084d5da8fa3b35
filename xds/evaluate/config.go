package evaluate

import (
	"fmt"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
)

// Config is what a proxy was sent. It is read-only once all resources are added.
type Config struct {
	listeners map[string]*listenerv3.Listener
	routes    map[string]*routev3.RouteConfiguration
	hosts     map[string][]*routev3.VirtualHost // by route table: those sent one by one (VHDS)
	clusters  map[string]*clusterv3.Cluster
	endpoints map[string]*endpointv3.ClusterLoadAssignment
}

// New starts an empty configuration.
func New() *Config {
	return &Config{
		listeners: map[string]*listenerv3.Listener{}, routes: map[string]*routev3.RouteConfiguration{}, hosts: map[string][]*routev3.VirtualHost{},
		clusters: map[string]*clusterv3.Cluster{}, endpoints: map[string]*endpointv3.ClusterLoadAssignment{},
	}
}

// Add adds a decoded resource. A virtual host is named "table/host".
func (c *Config) Add(resource proto.Message) error {
	switch r := resource.(type) {
	case *listenerv3.Listener:
		c.listeners[r.Name] = r
	case *routev3.RouteConfiguration:
		c.routes[r.Name] = r
	case *routev3.VirtualHost:
		table, _, ok := strings.Cut(r.Name, "/")
		if !ok {
			return fmt.Errorf("virtual host %q is of no route table: its name is \"table/host\"", r.Name)
		}
		c.hosts[table] = append(c.hosts[table], r)
	case *clusterv3.Cluster:
		c.clusters[r.Name] = r
	case *endpointv3.ClusterLoadAssignment:
		c.endpoints[r.ClusterName] = r
	default:
		return fmt.Errorf("%T is no resource that decides where requests go", resource)
	}
	return nil
}

// Intercepts reports whether the proxy takes connections wherever they go to. One that does not takes those to its own address.
func (c *Config) Intercepts() bool { return c.listeners[virtualOutbound] != nil }

// virtualHosts gives all virtual hosts of a route table.
func (c *Config) virtualHosts(table *routev3.RouteConfiguration) []*routev3.VirtualHost {
	if more := c.hosts[table.Name]; len(more) > 0 && table.Vhds != nil {
		return append(table.VirtualHosts[:len(table.VirtualHosts):len(table.VirtualHosts)], more...)
	}
	return table.VirtualHosts
}

// configOf reads which objects a part of a resource is from: filter_metadata "istio", "config" has the path of an
// object in its API, as in Istio's resources, and "delegate" that of the one that a route was taken from.
func configOf(m *corev3.Metadata) (out []string) {
	for _, field := range []string{"config", "delegate"} {
		parts := strings.Split(m.GetFilterMetadata()["istio"].GetFields()[field].GetStringValue(), "/")
		// "", "apis", group, version, "namespaces", namespace, kind, name
		if len(parts) == 8 && parts[4] == "namespaces" {
			out = append(out, parts[6]+"/"+parts[5]+"/"+parts[7])
		}
	}
	return out
}
