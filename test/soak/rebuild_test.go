package soak_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/test/env"
)

// content is what a cluster contributes, worked out from what its API server says by
// rules that share nothing with the hub's.
type content struct {
	lines  []string            // a line for each service and for each endpoint, sorted
	usable map[string][]string // "ip:port" of healthy endpoints by the name of Envoy clusters, sorted
	ejects map[string]uint32   // errors after which endpoints are ejected, by the host of services; of the config cluster
}

// api is all that content depends on.
type api struct {
	services []corev1.Service
	slices   []discoveryv1.EndpointSlice
	pods     map[string]*corev1.Pod // by "namespace/name"
	nodes    map[string]*corev1.Node
	configs
}

// read asks an API server.
func read(ctx context.Context, c *env.Cluster) (*api, error) {
	all := metav1.ListOptions{}
	services, err := c.Client.CoreV1().Services("").List(ctx, all)
	if err != nil {
		return nil, err
	}
	slices, err := c.Client.DiscoveryV1().EndpointSlices("").List(ctx, all)
	if err != nil {
		return nil, err
	}
	pods, err := c.Client.CoreV1().Pods("").List(ctx, all)
	if err != nil {
		return nil, err
	}
	nodes, err := c.Client.CoreV1().Nodes().List(ctx, all)
	if err != nil {
		return nil, err
	}
	a := &api{services: services.Items, slices: slices.Items, pods: map[string]*corev1.Pod{}, nodes: map[string]*corev1.Node{}}
	if a.configs, err = readConfigs(ctx, c); err != nil {
		return nil, err
	}
	for i := range pods.Items {
		a.pods[pods.Items[i].Namespace+"/"+pods.Items[i].Name] = &pods.Items[i]
	}
	for i := range nodes.Items {
		a.nodes[nodes.Items[i].Name] = &nodes.Items[i]
	}
	return a, nil
}

// content works out what the hub has to know of the cluster. Configuration counts in the config cluster alone.
func (a *api) content(config bool) content {
	out := content{usable: map[string][]string{}, ejects: map[string]uint32{}}
	if config {
		a.configured(&out)
	}
	a.picked(&out)
	clusters := map[string]map[string]string{} // names of Envoy clusters by host and port name
	for _, s := range a.services {
		h := s.Name + "." + s.Namespace + ".svc.cluster.local"
		out.lines = append(out.lines, serviceLine(h, s.Spec.ClusterIPs))
		clusters[h] = map[string]string{}
		for _, p := range s.Spec.Ports {
			name := fmt.Sprintf("outbound|%d||%s", p.Port, h)
			clusters[h][p.Name], out.usable[name] = name, nil
		}
	}
	for _, s := range a.slices {
		h := s.Labels[discoveryv1.LabelServiceName] + "." + s.Namespace + ".svc.cluster.local"
		for _, e := range s.Endpoints {
			for _, p := range s.Ports {
				x, known := a.endpoint(&s, &e, *p.Name, uint16(*p.Port))
				if !known {
					continue
				}
				out.lines = append(out.lines, endpointLine(h, x))
				if name, ok := clusters[h][*p.Name]; ok && x.HealthStatus == "healthy" {
					out.usable[name] = append(out.usable[name], fmt.Sprintf("%s:%d", x.Address, x.EndpointPort))
				}
			}
		}
	}
	out.tidy()
	return out
}

// tidy sorts, and drops what was said twice: an address may be in two slices.
func (c *content) tidy() {
	slices.Sort(c.lines)
	c.lines = slices.Compact(c.lines)
	for name, list := range c.usable {
		slices.Sort(list)
		c.usable[name] = slices.Compact(list)
	}
}

// endpoint describes an endpoint as the debug page does; false if it stands for a Pod that is not there.
func (a *api) endpoint(s *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint, port string, number uint16) (debug.ShardEndpoint, bool) {
	x := debug.ShardEndpoint{
		Address: e.Addresses[0], EndpointPort: number, ServicePortName: port, TLSMode: "disabled", HealthStatus: "healthy",
	}
	if e.Conditions.Ready != nil && !*e.Conditions.Ready {
		x.HealthStatus = "unhealthy"
	}
	if e.NodeName != nil {
		x.NodeName = *e.NodeName
	}
	if e.TargetRef != nil {
		p := a.pods[s.Namespace+"/"+e.TargetRef.Name]
		if p == nil {
			return x, false
		}
		x.WorkloadName, x.Namespace, x.Labels = p.Name, p.Namespace, p.Labels
		x.NodeName = cmp.Or(p.Spec.NodeName, x.NodeName)
		x.ServiceAccount = "spiffe://cluster.local/ns/" + p.Namespace + "/sa/" + p.Spec.ServiceAccountName
		x.TLSMode = cmp.Or(p.Labels["security.istio.io/tlsMode"], x.TLSMode)
	}
	if n := a.nodes[x.NodeName]; n != nil {
		place := []string{n.Labels[corev1.LabelTopologyRegion], n.Labels[corev1.LabelTopologyZone]}
		x.Locality.Label = strings.TrimRight(strings.Join(place, "/"), "/")
	}
	return x, true
}

func serviceLine(host string, addresses []string) string {
	addresses = slices.DeleteFunc(slices.Clone(addresses), func(a string) bool { return a == corev1.ClusterIPNone })
	slices.Sort(addresses)
	return fmt.Sprintf("service %s %q", host, addresses)
}

func endpointLine(host string, e debug.ShardEndpoint) string {
	return fmt.Sprintf("endpoint %s %s %s:%d %s of %s/%s (app %q, version %q, tls %s, account %q) on %q in %q", host, e.ServicePortName,
		e.Address, e.EndpointPort, e.HealthStatus, e.Namespace, e.WorkloadName, e.Labels["app"], e.Labels["version"], e.TLSMode,
		e.ServiceAccount, e.NodeName, e.Locality.Label)
}

// knows is what the hub has, in lines by cluster, sorted.
func (m *mesh) knows() (map[string][]string, error) {
	var services []debug.Service
	if err := m.ask("/debug/registryz", &services); err != nil {
		return nil, err
	}
	var endpoints map[string]map[string]debug.Shards
	if err := m.ask("/debug/endpointz", &endpoints); err != nil {
		return nil, err
	}
	out, err := m.knowsRules()
	if err != nil {
		return nil, err
	}
	add := func(shard, line string) {
		id := strings.TrimPrefix(shard, "kubernetes/")
		out[id] = append(out[id], line)
	}
	for _, s := range services {
		for _, shard := range s.Sources {
			add(shard, serviceLine(s.Hostname, s.Addresses[strings.TrimPrefix(shard, "kubernetes/")]))
		}
	}
	for h, namespaces := range endpoints {
		for _, n := range namespaces {
			for shard, list := range n.Shards {
				for _, e := range list {
					add(shard, endpointLine(h, e))
					if id := strings.TrimPrefix(shard, "kubernetes/"); e.Locality.ClusterID != id {
						return nil, fmt.Errorf("%s has an endpoint of %s: %+v", shard, e.Locality.ClusterID, e)
					}
				}
			}
		}
	}
	for _, lines := range out {
		slices.Sort(lines)
	}
	return out, nil
}

// difference says how two sorted lists differ.
func difference(got, want []string) string {
	var b strings.Builder
	for _, l := range got {
		if _, ok := slices.BinarySearch(want, l); !ok {
			b.WriteString("\n  + " + l)
		}
	}
	for _, l := range want {
		if _, ok := slices.BinarySearch(got, l); !ok {
			b.WriteString("\n  - " + l)
		}
	}
	if b.Len() == 0 && len(got) != len(want) {
		fmt.Fprintf(&b, "\n  %d lines instead of %d", len(got), len(want))
	}
	return b.String()
}
