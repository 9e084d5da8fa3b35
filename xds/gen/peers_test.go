package gen_test

import (
	"strings"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

func template(hash string) func(*model.Endpoint) {
	return func(e *model.Endpoint) { e.Labels = model.Labels{"pod-template-hash": hash} }
}

func asPeer(workload, template string) func(*gen.Class) {
	return func(c *gen.Class) {
		c.SelfDiscovery, c.Peers = true, gen.Peers{Workload: workload, Template: template}
	}
}

// Peers are the instances of the proxy's own workload, of its version, in its region.
func TestPeers(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 60)
	pod := func(name, hash, addr, where string, edits ...func(*model.Endpoint)) *model.Endpoint {
		return ep("c1", "http", addr, append([]func(*model.Endpoint){template(hash), workload(name), at(where)}, edits...)...)
	}
	entry := func(name, stated, addr string) *model.Endpoint {
		return ep("c1", "http", addr, workload(name), func(e *model.Endpoint) {
			e.Workload.Kind, e.Labels = "WorkloadEntry", model.Labels{"service.istio.io/workload-name": stated}
		})
	}
	for _, c := range []struct {
		name      string
		endpoints []*model.Endpoint
		class     gen.Class
		want      []string
	}{
		{"by zone, each once", []*model.Endpoint{pod("web-1a-x1", "1a", "10.0.0.1:80", "r/z1"), pod("web-1a-x2", "1a", "10.0.0.2:80", "r/z2"),
			ep("c1", "admin", "10.0.0.1:81", template("1a"), workload("web-1a-x1"), at("r/z1"))}, sidecar("c1", "shop", inZone("r/z1"), asPeer("web", "1a")),
			[]string{"p0 r/z1 w=1: 10.0.0.1:81*1", "p0 r/z2 w=1: 10.0.0.2:80*1"}},
		{"in several members", []*model.Endpoint{pod("web-1a-x1", "1a", "10.0.0.1:80", "r/z1"), ep("c2", "http", "10.0.0.1:80", template("1a"), workload("web-1a-x9"), at("r/z2"), network("n2"))},
			sidecar("c1", "shop", inZone("r/z1"), asPeer("web", "1a")), []string{"p0 r/z1 w=1: 10.0.0.1:80*1", "p0 r/z2 w=1: 10.0.0.1:80*1"}},
		{"another region", []*model.Endpoint{pod("web-1a-x1", "1a", "10.0.0.1:80", "r/z1"), pod("web-1a-x2", "1a", "10.0.0.2:80", "s/z1"), pod("web-1a-x3", "1a", "10.0.0.3:80", "")},
			sidecar("c1", "shop", inZone("r/z1"), asPeer("web", "1a")), []string{"p0 r/z1 w=1: 10.0.0.1:80*1"}},
		{"another version", []*model.Endpoint{pod("web-1a-x1", "1a", "10.0.0.1:80", ""), pod("web-2b-x2", "2b", "10.0.0.2:80", ""), ep("c1", "http", "10.0.0.3:80", workload("web-x"))},
			sidecar("c1", "shop", asPeer("web", "1a")), []string{"p0  w=1: 10.0.0.1:80*1"}},
		{"another workload of the same template", []*model.Endpoint{pod("web-1a-x1", "1a", "10.0.0.1:80", ""), pod("web-canary-1a-x2", "1a", "10.0.0.2:80", ""), pod("we-1a-x2", "1a", "10.0.0.3:80", "")},
			sidecar("c1", "shop", asPeer("web", "1a")), []string{"p0  w=1: 10.0.0.1:80*1"}},
		{"a proxy that does not say its workload", []*model.Endpoint{pod("web-1a-x1", "1a", "10.0.0.1:80", ""), pod("other-1a-x2", "1a", "10.0.0.2:80", ""), pod("x-2b-x", "2b", "10.0.0.3:80", "")},
			sidecar("c1", "shop", asPeer("", "1a")), []string{"p0  w=2: 10.0.0.1:80*1 10.0.0.2:80*1"}},
		{"Argo Rollouts", []*model.Endpoint{ep("c1", "http", "10.0.0.1:80", workload("web-7f-x1"), func(e *model.Endpoint) { e.Labels = model.Labels{"rollouts-pod-template-hash": "7f"} })},
			sidecar("c1", "shop", asPeer("web", "7f")), []string{"p0  w=1: 10.0.0.1:80*1"}},
		{"a StatefulSet", []*model.Endpoint{ep("c1", "http", "10.0.0.1:80", workload("db-0")), ep("c1", "http", "10.0.0.2:80", workload("db-1")), ep("c1", "http", "10.0.0.3:80", workload("db-x-0"))},
			sidecar("c1", "shop", asPeer("db", "")), []string{"p0  w=2: 10.0.0.1:80*1 10.0.0.2:80*1"}},
		{"a lone pod", []*model.Endpoint{ep("c1", "http", "10.0.0.1:80", workload("client"))}, sidecar("c1", "shop", asPeer("client", "")), []string{"p0  w=1: 10.0.0.1:80*1"}},
		{"a name too long for that of a pod", []*model.Endpoint{pod(long[:58]+"x1xyz", "1a", "10.0.0.1:80", "")}, sidecar("c1", "shop", asPeer(long, "1a")), []string{"p0  w=1: 10.0.0.1:80*1"}},
		{"WorkloadEntries that say it", []*model.Endpoint{entry("vm-1", "web", "10.0.0.1:80"), entry("web", "other", "10.0.0.2:80")},
			sidecar("c1", "shop", asPeer("web", "")), []string{"p0  w=1: 10.0.0.1:80*1"}},
		{"states", []*model.Endpoint{ep("c1", "http", "10.0.0.1:80", health(model.Unhealthy)), ep("c1", "http", "10.0.0.2:80", health(model.Draining)), ep("c1", "http", "10.0.0.3:80", health(model.Terminating))},
			sidecar("c1", "shop", asPeer("w", "")), []string{"p0  w=1: 10.0.0.1:80*1!"}},
		{"addresses that Envoy would refuse", []*model.Endpoint{ep("c1", "http", "a.example:80"), ep("c1", "http", "unix:///x"), ep("c1", "http", ":80"), ep("c1", "http", "[fe80::1%eth0]:80")},
			sidecar("c1", "shop", asPeer("w", "")), nil},
		{"none", nil, sidecar("c1", "shop", asPeer("w", "")), nil},
	} {
		rs := build(t, gen.Endpoints{}, &pushcontext.PeersView{Endpoints: group(c.endpoints)}, c.class)
		if len(rs) != 1 || rs[0].name != "local_cluster" {
			t.Errorf("%s: %d resources", c.name, len(rs))
			continue
		}
		if d := cmp.Diff(c.want, assignmentText(decode(t, rs[0]).(*endpointv3.ClusterLoadAssignment))); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}

// A proxy that does not ask for its peers has no such resource, and nobody has another of the view.
func TestPeersAreAskedFor(t *testing.T) {
	t.Parallel()
	v := &pushcontext.PeersView{Endpoints: group([]*model.Endpoint{ep("c1", "http", "10.0.0.1:80")})}
	if rs := build(t, gen.Endpoints{}, v, sidecar("c1", "shop")); len(rs) > 0 {
		t.Errorf("unasked: %d resources", len(rs))
	}
	for name, c := range map[string]gen.Class{"local_cluster": sidecar("c1", "shop"), "outbound|80||a": sidecar("c1", "shop", asPeer("", ""))} {
		if _, err := (gen.Endpoints{}).Build(v, c, name); err == nil {
			t.Errorf("%s is built", name)
		}
	}
	same := sidecar("c1", "shop", inZone("r/z1"), asPeer("web", "1a"))
	other := sidecar("c9", "x", inZone("r/z2"), asPeer("web", "1a"), onNetwork("n"))
	if traits := (gen.Endpoints{}).Traits(v); same.Keep(traits) != other.Keep(traits) {
		t.Error("peers of one region are told apart")
	}
}
