package fleet

import (
	"bytes"
	"slices"
	"strings"
	"sync"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Type URLs that the fleet asks for, in the order in which Envoy does.
const (
	ClusterURL  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	EndpointURL = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	ListenerURL = "type.googleapis.com/envoy.config.listener.v3.Listener"
	RouteURL    = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"

	// Asked for if some route table has its virtual hosts on their own.
	VirtualHostURL = "type.googleapis.com/envoy.config.route.v3.VirtualHost"
)

// catalog remembers which names a response makes its receiver ask for, so that only the first
// proxy of a class reads it.
type catalog struct {
	mu      sync.Mutex
	entries map[catalogKey]*entry
	latest  map[catalogKey]*names // by class and type: equal lists are shared
}

type catalogKey struct{ class, typeURL, version string }

type entry struct {
	once  sync.Once
	names *names
}

// names are sorted; encoded is their form in a request.
type names struct {
	list    []string
	encoded []byte
}

func newCatalog() *catalog {
	return &catalog{entries: map[catalogKey]*entry{}, latest: map[catalogKey]*names{}}
}

// learn gives the names in a whole response, which read gives if nobody of the class has had it.
func (c *catalog) learn(k catalogKey, read func() []string) *names {
	c.mu.Lock()
	e := c.entries[k]
	if e == nil {
		e = &entry{}
		c.entries[k] = e
	}
	c.mu.Unlock()
	e.once.Do(func() { e.names = c.share(catalogKey{class: k.class, typeURL: k.typeURL}, read()) })
	return e.names
}

func (c *catalog) share(k catalogKey, list []string) *names {
	n := newNames(list)
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.latest[k]; old != nil && bytes.Equal(old.encoded, n.encoded) {
		return old
	}
	c.latest[k] = n
	return n
}

func newNames(list []string) *names {
	slices.Sort(list)
	list = slices.Compact(list)
	return &names{list: list, encoded: encodeNames(list)}
}

// dependents names what the receiver of a response has to ask for next: assignments of its EDS
// clusters, route tables of its listeners, or the type of the virtual hosts of its tables.
func dependents(typeURL string, response []byte, delta bool) (list []string) {
	read := map[string]func([]byte) []string{ClusterURL: assignment, ListenerURL: tables, RouteURL: hosts}[typeURL]
	resources(response, delta, func(body []byte) { list = append(list, read(body)...) })
	return list
}

// tableVHDS is a field of envoy.config.route.v3.RouteConfiguration.
const tableVHDS = 9

// hosts gives the type of a table's virtual hosts, if they are on their own.
func hosts(table []byte) []string {
	if last(table, tableVHDS) == nil {
		return nil
	}
	return []string{VirtualHostURL}
}

// Fields of envoy.config.cluster.v3.Cluster.
const (
	clusterName, clusterType, clusterEDS, edsServiceName = 1, 2, 3, 2
	typeEDS                                              = 3
)

// assignment names the assignment of an EDS cluster.
func assignment(cluster []byte) []string {
	for b := cluster; len(b) > 0; {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil
		}
		if num == clusterType && typ == protowire.VarintType {
			if v, _ := protowire.ConsumeVarint(b[n:]); v != typeEDS {
				return nil
			}
			if s := last(last(cluster, clusterEDS), edsServiceName); len(s) > 0 {
				return []string{string(s)}
			}
			return []string{string(last(cluster, clusterName))}
		}
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 {
			return nil
		}
		b = b[n+m:]
	}
	return nil
}

// tables names the route tables of a listener.
func tables(listener []byte) (list []string) {
	var l listenerv3.Listener
	if proto.Unmarshal(listener, &l) != nil {
		return nil
	}
	chains := l.GetFilterChains()
	if d := l.GetDefaultFilterChain(); d != nil {
		chains = append(chains, d)
	}
	for _, c := range chains {
		for _, f := range c.GetFilters() {
			if t := f.GetTypedConfig(); strings.HasSuffix(t.GetTypeUrl(), "HttpConnectionManager") {
				var h hcmv3.HttpConnectionManager
				if proto.Unmarshal(t.GetValue(), &h) == nil && h.GetRds() != nil {
					list = append(list, h.GetRds().GetRouteConfigName())
				}
			}
		}
	}
	return list
}
