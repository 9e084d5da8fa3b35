package xdstest

import (
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// Expect gives what an Envoy of the class must hold once all is quiet: made from the snapshot by the
// generators alone, without server, memo or delta.
func Expect(pc *pushcontext.PushContext, list []gen.Generator, c gen.Class, r *pushcontext.Reader) (map[string]map[string]string, error) {
	all := map[string]map[string]string{}
	for _, g := range list {
		out := map[string]string{}
		for _, kind := range g.Kinds() {
			for key := range pc.Keys(kind) {
				v, _ := pc.View(key, r)
				if v == nil {
					continue
				}
				k := c.Keep(g.Traits(v))
				for _, n := range g.Names(v, k) {
					body, err := g.Build(v, k, n)
					if err != nil {
						return nil, err
					}
					out[n] = string(body)
				}
			}
		}
		all[g.TypeURL()] = out
	}
	delete(all, gen.NameTableURL) // an agent asks for it, not Envoy
	return subscribed(all, c.SelfDiscovery)
}

// subscribed keeps the endpoints and routes that clusters and listeners ask for, the hosts of these routes, and the
// peers that an Envoy with self-discovery asks for.
func subscribed(all map[string]map[string]string, self bool) (map[string]map[string]string, error) {
	endpoints, routes := map[string]string{}, map[string]string{}
	var asked []string
	for n, body := range all[gen.ClusterURL] {
		if usesEDS(body) {
			asked = append(asked, n)
		}
	}
	if self {
		asked = append(asked, localCluster)
	}
	for _, n := range asked {
		if e, ok := all[gen.EndpointURL][n]; ok {
			endpoints[n] = e
			continue
		}
		empty, err := encode(&endpointv3.ClusterLoadAssignment{ClusterName: n})
		if err != nil {
			return nil, err
		}
		endpoints[n] = string(empty)
	}
	for _, body := range all[gen.ListenerURL] {
		for _, n := range RouteNames([]byte(body)) {
			if r, ok := all[gen.RouteURL][n]; ok {
				routes[n] = r
			}
		}
	}
	hosts := map[string]string{}
	for n, body := range all[gen.VirtualHostURL] {
		if usesVHDS(routes[tableOf(n)]) {
			hosts[n] = body
		}
	}
	all[gen.EndpointURL], all[gen.RouteURL], all[gen.VirtualHostURL] = endpoints, routes, hosts
	return all, nil
}
