package multicluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/test/env"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// entry is a ServiceEntry in shop that selects workloads.
func entry(host, port, selector string) string {
	return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %s, namespace: shop}
spec:
  hosts: [%s]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [%s]
  workloadSelector: {labels: {%s}}
`, strings.TrimSuffix(host, ".mesh"), host, port, selector)
}

const httpPort = `{name: http, number: 80, protocol: HTTP, targetPort: 8080}`

// vm is a WorkloadEntry in shop.
func vm(name, spec string) string {
	return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: %s, namespace: shop}
spec: {%s}
`, name, spec)
}

// A ServiceEntry selects Pods of every cluster, also of those that come later, and loses them with it.
// Defect 1: Pods of one name in two clusters are two.
func TestIncident53SelectingEntrySeesPodsOfEveryCluster(t *testing.T) {
	m := newMesh(t, 2)
	m.apply(primary, entry("app.mesh", httpPort, "app: x"), env.Pod("shop/db-0", "x", "10.0.0.1"))
	m.apply("c1", env.Pod("shop/db-0", "x", "10.1.0.1"))
	m.apply("c2", env.Pod("shop/db-0", "x", "10.2.0.1"))
	m.join("c1")
	m.serve()
	p := m.proxy("client.shop")
	p.has("app.mesh", "10.0.0.1", "10.1.0.1")
	m.join("c2")
	p.has("app.mesh", "10.0.0.1", "10.1.0.1", "10.2.0.1")
	m.remove("c1", env.Pod("shop/db-0", "x", ""))
	p.has("app.mesh", "10.0.0.1", "10.2.0.1")
	m.leave("c2")
	p.has("app.mesh", "10.0.0.1")
}

// A workload whose labels no longer match goes to where they match.
func TestIncident55LabelsStopMatching(t *testing.T) {
	m := newMesh(t, 1)
	pod := env.Pod("shop/p", "x", "10.1.0.1")
	pod.Labels["ready"] = "true"
	m.apply(primary, entry("ready.mesh", httpPort, `ready: "true"`), entry("waiting.mesh", httpPort, `ready: "false"`))
	m.apply("c1", pod, vm("w", `address: 10.1.0.2, labels: {ready: "true"}`))
	m.join("c1")
	m.serve()
	p := m.proxy("client.shop")
	p.has("ready.mesh", "10.1.0.1", "10.1.0.2")
	p.has("waiting.mesh")
	pod.Labels["ready"] = "false"
	m.apply("c1", pod)
	p.has("ready.mesh", "10.1.0.2")
	p.has("waiting.mesh", "10.1.0.1")
	m.apply("c1", vm("w", `address: 10.1.0.2, labels: {ready: "false"}`))
	p.has("ready.mesh")
	p.has("waiting.mesh", "10.1.0.1", "10.1.0.2")
}

// No selector, or an empty one, selects nothing.
func TestIncident56EmptySelectorSelectsNothing(t *testing.T) {
	m := newMesh(t, 1)
	plain := env.Service("shop/plain", 80)
	plain.Spec.Selector = nil
	m.apply(primary, entry("none.mesh", httpPort, ""), entry("all.mesh", httpPort, "app: x"))
	m.apply("c1", plain, vm("w", "address: 10.1.0.9, labels: {app: x}"))
	m.join("c1")
	m.serve()
	p := m.proxy("client.shop", "cluster=c1")
	p.has("all.mesh", "10.1.0.9")
	p.has("plain.shop")
	p.has("none.mesh")
}

// The port of an endpoint: the workload's for the target port's name, then for the service port's
// name, then the number; anew at each change.
func TestIncident57EndpointPort(t *testing.T) {
	m := newMesh(t, 1)
	m.apply(primary, entry("app.mesh", `{name: http, number: 80, protocol: HTTP}`, "app: x"))
	m.apply("c1", vm("w", "address: 10.1.0.1, labels: {app: x}"))
	m.join("c1")
	m.serve()
	p := m.proxy("client.shop", "cluster=c1")
	p.has("app.mesh", "10.1.0.1:80")
	m.apply(primary, entry("app.mesh", `{name: http, number: 80, protocol: HTTP, targetPort: 8090}`, "app: x"))
	p.has("app.mesh", "10.1.0.1:8090")
	m.apply("c1", vm("w", "address: 10.1.0.1, labels: {app: x}, ports: {http: 17070}"))
	p.has("app.mesh", "10.1.0.1:17070")

	svc := env.Service("shop/foo", 80)
	svc.Spec.Ports[0].Name, svc.Spec.Ports[0].TargetPort = "main", intstr.FromString("web")
	m.apply("c1", svc, vm("named", "address: 10.1.0.5, labels: {app: foo}, ports: {web: 9090, main: 1}"))
	p.has("foo.shop", "10.1.0.5:9090")
	m.apply("c1", vm("named", "address: 10.1.0.5, labels: {app: foo}, ports: {web: 9091}"))
	p.has("foo.shop", "10.1.0.5:9091")
	m.apply("c1", vm("named", "address: 10.1.0.5, labels: {app: foo}"))
	p.has("foo.shop")
	m.explained("foo.shop", "the reason", func(e debug.Explanation) bool {
		return len(e.Endpoints) == 1 && e.Endpoints[0].Reason == "NoPort"
	})
}

// A cluster-local service keeps its WorkloadEntries, for the proxies of their cluster. Defect 6: so does
// a ServiceEntry with the Pods beside the proxy, and a service that is local to nodes.
func TestIncident59ClusterLocalServiceKeepsItsWorkloadEntries(t *testing.T) {
	m := newMesh(t, 1)
	settings := m.dir + "/mesh.yaml"
	m.write(settings, []byte(`serviceSettings: [{settings: {clusterLocal: true}, hosts: ["foo.shop.svc.cluster.local", "app.mesh"]}]`))
	m.foo(primary, "c1")
	m.apply("c1", vm("w", "address: 10.1.0.9, labels: {app: foo}"), env.Pod("shop/p", "x", "10.1.0.7"))
	m.apply(primary, entry("app.mesh", httpPort, "app: x"), env.Pod("shop/p", "x", "10.0.0.7"))
	m.join("c1")
	m.serve("--mesh-config", settings)
	near, far := m.proxy("near.shop", "cluster=c1", "ip=10.250.0.2"), m.proxy("far.shop")
	near.has("foo.shop", "10.1.0.1", "10.1.0.9")
	far.has("foo.shop", "10.0.0.1")
	near.has("app.mesh", "10.1.0.7")
	far.has("app.mesh", "10.0.0.7")

	// Likewise a service of each node, whose nodes have equal names in both clusters.
	policy := corev1.ServiceInternalTrafficPolicyLocal
	for id, ip := range map[string]string{primary: "10.0.1.", "c1": "10.1.1."} {
		agents := env.App("shop/agent", 80, "node-1", ip+"1")
		agents[0].(*corev1.Service).Spec.InternalTrafficPolicy = &policy
		other := env.Pod("shop/agent-other", "agent", ip+"2")
		other.Spec.NodeName = "node-2"
		slice := agents[2].(*discoveryv1.EndpointSlice)
		slice.Endpoints = append(slice.Endpoints, env.Of(env.Endpoint(ip+"2"), other))
		m.apply(id, env.Node("node-1", "r", "z"), env.Node("node-2", "r", "z"), other, agents)
	}
	m.proxy("one.shop", "ip=10.250.0.3", "NODE_NAME=node-1").has("agent.shop", "10.0.1.1")
	m.proxy("two.shop", "ip=10.250.0.4", "NODE_NAME=node-2", "cluster=c1").has("agent.shop", "10.1.1.2")
}

// A Pod that becomes a backend after its proxy has connected: the proxy learns it, in whatever cluster.
// Defect 13: in a remote cluster too, and a proxy with the same address elsewhere is left alone.
func TestIncident60BecomingABackendReachesItsOwnProxy(t *testing.T) {
	m := newMesh(t, 1)
	pod := env.Pod("shop/db-0", "starting", "10.9.0.1")
	pod.Status.Conditions[0].Status = corev1.ConditionFalse
	m.apply(primary, entry("app.mesh", httpPort, "app: x"))
	m.apply("c1", pod)
	m.join("c1")
	m.serve()
	own := m.proxy("db-0.shop", "cluster=c1", "ip=10.9.0.1")
	twin := m.proxy("db-0.shop", "cluster="+primary, "ip=10.9.0.1")
	own.has("app.mesh")
	pod.Labels["app"], pod.Status.Conditions[0].Status = "x", corev1.ConditionTrue
	m.apply("c1", pod)
	own.has("app.mesh", "10.9.0.1")
	inbound := func(p *proxy) bool {
		return slices.ContainsFunc(p.inbound(), func(n string) bool {
			return strings.HasPrefix(n, "inbound|8080|") || strings.HasPrefix(n, "inbound|80|")
		})
	}
	m.eventually("inbound configuration of the backend", func() error {
		if !inbound(own) {
			return fmt.Errorf("inbound clusters %q", own.inbound())
		}
		return nil
	})
	m.fence([]string{primary, "c1"}, own, twin)
	if inbound(twin) {
		t.Errorf("the proxy with the same address in another cluster serves %q", twin.inbound())
	}
	pod.Labels["app"] = "retired"
	m.apply("c1", pod)
	own.has("app.mesh")
	m.eventually("no inbound configuration", func() error {
		if inbound(own) {
			return fmt.Errorf("inbound clusters %q", own.inbound())
		}
		return nil
	})
}

// inbound are the names of the proxy's own clusters.
func (p *proxy) inbound() (names []string) {
	for n := range p.State()[gen.ClusterURL] {
		if strings.HasPrefix(n, "inbound|") {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return names
}
