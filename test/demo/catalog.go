package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// catalog is what the hub has read from the example.
type catalog struct {
	services []debug.Service
	shards   map[string]map[string]debug.Shards // by host and namespace
}

// endpoint is a place where the example says that something serves.
type endpoint struct {
	host, addr, name, cluster string
	kind                      envoytest.Kind
}

func readCatalog(ctx context.Context, hub *envoytest.Hub) (c catalog, err error) {
	for path, into := range map[string]any{"/debug/registryz": &c.services, "/debug/endpointz": &c.shards} {
		body, err := hub.Get(ctx, hub.URL+path)
		if err != nil {
			return c, err
		}
		if err := json.Unmarshal(body, into); err != nil {
			return c, fmt.Errorf("read %s: %w", path, err)
		}
	}
	return c, nil
}

// service finds a service by the first part of its host name, or all of it.
func (c catalog) service(name string) (debug.Service, error) {
	for _, s := range c.services {
		if s.Hostname == name || strings.HasPrefix(s.Hostname, name+".") {
			return s, nil
		}
	}
	return debug.Service{}, fmt.Errorf("the example has no service %s", name)
}

// endpoints lists each address once, in the order of addresses.
func (c catalog) endpoints() []endpoint {
	byAddr := map[string]endpoint{}
	for _, s := range c.services {
		for _, shard := range c.shards[s.Hostname][s.Namespace].Shards {
			for _, e := range shard {
				addr := net.JoinHostPort(e.Address, strconv.Itoa(int(e.EndpointPort)))
				byAddr[addr] = endpoint{
					host: s.Hostname, addr: addr, cluster: e.Locality.ClusterID, kind: kind(s, e.ServicePortName),
					name: cmp.Or(e.WorkloadName, s.Hostname),
				}
			}
		}
	}
	return slices.SortedFunc(maps.Values(byAddr), func(a, b endpoint) int { return strings.Compare(a.addr, b.addr) })
}

// kind is how a backend of the port serves.
func kind(s debug.Service, port string) envoytest.Kind {
	kinds := map[string]envoytest.Kind{"tcp": envoytest.TCP, "grpc": envoytest.GRPC, "http2": envoytest.HTTP2}
	for _, p := range s.Ports {
		if p.Name == port {
			return kinds[p.Protocol]
		}
	}
	return envoytest.HTTP1
}
