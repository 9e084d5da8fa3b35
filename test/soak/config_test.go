package soak_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/test/env"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// ServiceEntries, DestinationRules and WorkloadEntries have the same names in every cluster too. Of the first two
// those of the config cluster count, WorkloadEntries of all. None is given an address by the hub, which would change
// what is compared behind the test.
const (
	entrySuffix = ".mesh"
	pickedLabel = "picked"
	pickedHost  = "picked" + entrySuffix
	perKind     = 4
)

// picking selects Pods and WorkloadEntries of all clusters.
const picking = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: picked, namespace: shop, labels: {networking.istio.io/enable-autoallocate-ip: "false"}}
spec:
  hosts: [picked.mesh]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{name: http, number: 80, protocol: HTTP, targetPort: 8080}]
  workloadSelector: {labels: {picked: "yes"}}
`

// configure makes or deletes an object of Istio's.
func (m *mesh) configure(r *rand.Rand, x *member) {
	m.Helper()
	x.dirty = true
	i := r.IntN(perKind)
	object := pick(r, m.workloadEntry, m.workloadEntry, m.serviceEntry, m.destinationRule)(r, x, i)
	if r.IntN(4) == 0 {
		x.Delete(m.T, object)
		return
	}
	x.Apply(m.T, object)
}

func (m *mesh) workloadEntry(r *rand.Rand, x *member, i int) string {
	return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: vm%d, namespace: shop}
spec: {address: %s, locality: r1/%s, labels: {picked: "%s", version: %s}}
`, i, m.ip(x, 100+r.IntN(20)*perKind+i), pick(r, "z1", "z2"), pick(r, "yes", "yes", "no"), pick(r, "v1", "v2"))
}

// serviceEntry has endpoints of its own, which name the cluster that it is in.
func (m *mesh) serviceEntry(r *rand.Rand, x *member, i int) string {
	var list []string
	for n := range r.IntN(4) {
		list = append(list, fmt.Sprintf("{address: %s, locality: r1/%s, labels: {version: %s}}", m.ip(x, 200+10*i+n), pick(r, "z1", "z2"), pick(r, "v1", "v2")))
	}
	return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: e%d, namespace: shop, labels: {networking.istio.io/enable-autoallocate-ip: "false"}}
spec:
  hosts: [e%d.mesh]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{name: http, number: 80, protocol: HTTP, targetPort: 8080}]
  endpoints: [%s]
`, i, i, strings.Join(list, ", "))
}

// destinationRule is for a Service or, as often, for a ServiceEntry.
func (m *mesh) destinationRule(r *rand.Rand, _ *member, i int) string {
	name, on := fmt.Sprintf("s%d", i), host(fmt.Sprintf("s%d", i))
	if r.IntN(2) == 0 {
		name, on = fmt.Sprintf("e%d", i), fmt.Sprintf("e%d%s", i, entrySuffix)
	}
	return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: %s, namespace: shop}
spec:
  host: %s
  trafficPolicy:
    outlierDetection: {consecutive5xxErrors: %d}
    loadBalancer: {localityLbSetting: {failoverPriority: [version, topology.istio.io/cluster]}}
`, name, on, 1+r.IntN(100))
}

// configs are the objects of Istio's in a cluster.
type configs struct {
	vms, hosts, rules []unstructured.Unstructured // WorkloadEntries, ServiceEntries, DestinationRules
}

func readConfigs(ctx context.Context, c *env.Cluster) (out configs, err error) {
	for resource, to := range map[string]*[]unstructured.Unstructured{
		"workloadentries": &out.vms, "serviceentries": &out.hosts, "destinationrules": &out.rules,
	} {
		all, err := c.Dynamic.Resource(schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: resource}).List(ctx, metav1.ListOptions{})
		if err != nil {
			return out, err
		}
		*to = all.Items
	}
	return out, nil
}

// text reads a field of an object that these tests made.
func text(o map[string]any, path ...string) string {
	s, _, _ := unstructured.NestedString(o, path...)
	return s
}

// configured adds what only the config cluster brings.
func (a *api) configured(out *content) {
	for _, s := range a.hosts {
		all, _, _ := unstructured.NestedStringSlice(s.Object, "spec", "hosts")
		out.lines = append(out.lines, serviceLine(all[0], nil))
		out.usable[clusterOf(all[0])] = nil
		list, _, _ := unstructured.NestedSlice(s.Object, "spec", "endpoints")
		for _, e := range list {
			out.add(all[0], a.vm(s.GetNamespace(), "", e.(map[string]any)))
		}
	}
	for _, d := range a.rules {
		n, _, _ := unstructured.NestedInt64(d.Object, "spec", "trafficPolicy", "outlierDetection", "consecutive5xxErrors")
		on := text(d.Object, "spec", "host")
		out.lines = append(out.lines, ruleLine(d.GetNamespace(), d.GetName(), on, float64(n)))
		out.ejects[on] = uint32(n)
	}
}

// picked adds the endpoints of the ServiceEntry that selects.
func (a *api) picked(out *content) {
	for _, w := range a.vms {
		spec := w.Object["spec"].(map[string]any)
		if text(spec, "labels", pickedLabel) == "yes" {
			out.add(pickedHost, a.vm(w.GetNamespace(), w.GetName(), spec))
		}
	}
	for _, p := range a.pods {
		if p.Namespace != namespace || p.Labels[pickedLabel] != "yes" {
			continue
		}
		e := env.Of(env.Endpoint(p.Status.PodIP), p)
		if x, known := a.endpoint(env.Slice(namespace+"/"+pickedLabel, env.AppPort), &e, "http", env.AppPort); known {
			out.add(pickedHost, x)
		}
	}
}

// vm describes a WorkloadEntry, or an endpoint of a ServiceEntry, which has no name.
func (a *api) vm(namespace, name string, spec map[string]any) debug.ShardEndpoint {
	x := debug.ShardEndpoint{
		Address: text(spec, "address"), EndpointPort: env.AppPort, ServicePortName: "http", TLSMode: "disabled", HealthStatus: "healthy",
		WorkloadName: name, Labels: map[string]string{"version": text(spec, "labels", "version")},
	}
	if name != "" {
		x.Namespace = namespace
	}
	x.Locality.Label = text(spec, "locality")
	return x
}

func (c *content) add(host string, x debug.ShardEndpoint) {
	c.lines = append(c.lines, endpointLine(host, x))
	if x.HealthStatus == "healthy" {
		c.usable[clusterOf(host)] = append(c.usable[clusterOf(host)], fmt.Sprintf("%s:%d", x.Address, x.EndpointPort))
	}
}

func clusterOf(host string) string { return "outbound|80||" + host }

func ruleLine(namespace, name, host string, errors float64) string {
	return fmt.Sprintf("rule %s/%s of %s: %v errors", namespace, name, host, errors)
}

// knowsRules is what the hub has of DestinationRules, in lines by cluster.
func (m *mesh) knowsRules() (map[string][]string, error) {
	var all []debug.Config
	if err := m.ask("/debug/configz", &all); err != nil {
		return nil, err
	}
	out := map[string][]string{}
	for _, c := range all {
		spec, ok := c.Spec.(map[string]any)
		if c.Kind != "DestinationRule" || !ok {
			continue
		}
		n, _, _ := unstructured.NestedFloat64(spec, "trafficPolicy", "outlierDetection", "consecutive5xxErrors")
		id := strings.TrimPrefix(c.Source.Shard, "kubernetes/")
		out[id] = append(out[id], ruleLine(c.Namespace, c.Name, text(spec, "host"), n))
	}
	return out, nil
}

// ejects checks after how many errors the proxy ejects endpoints, by the host of its clusters.
func (p *proxy) ejects(want map[string]uint32) error {
	for name, body := range p.State()[gen.ClusterURL] {
		if !ours(name) {
			continue
		}
		var c clusterv3.Cluster
		if err := proto.Unmarshal([]byte(body), &c); err != nil {
			return err
		}
		host := name[strings.LastIndexByte(name, '|')+1:]
		if n := c.GetOutlierDetection().GetConsecutive_5Xx().GetValue(); n != want[host] {
			return fmt.Errorf("%s has %s eject after %d errors, want %d", p.ID(), name, n, want[host])
		}
	}
	return nil
}
