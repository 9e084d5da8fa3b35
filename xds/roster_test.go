package xds_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds"
	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
	"github.com/isthmus-mesh/isthmus/xds/xdstest"
)

// TestProxiesOfManyClassesGetTheirOwn: what is worked out once for a class is given to no other:
// neither to other namespaces and members, which see other services, nor to workloads that serve
// something.
func TestProxiesOfManyClassesGetTheirOwn(t *testing.T) {
	both(t, func(t *testing.T, p wire.Protocol) {
		r := newRig(t, func(o *xds.Options) { o.Generators = gen.All() })
		r.mesh.Set(classServices(0)...)
		var nodes []*corev3.Node
		var envoys []*xdstest.Envoy
		join := func() {
			for i := range 12 {
				n := classNode(len(nodes), []string{"c1", "c2"}[i%2], []string{"x", "y", "z"}[i/2%3])
				nodes, envoys = append(nodes, n), append(envoys, r.envoy(p, n))
			}
		}
		join()
		join() // classes are known now
		r.holdTheirs(nodes, envoys)
		r.mesh.Set(classServices(1)...)
		join() // while the others are brought up to date
		r.holdTheirs(nodes, envoys)
		r.mesh.SetMesh()
		join()
		r.holdTheirs(nodes, envoys)
		for _, e := range envoys {
			e.Disconnect()
		}
	})
}

// classServices are visible to some, or different in each member. The first is backed by proxies.
func classServices(generation int) []xdstest.Service {
	own := svc("own.x.svc.cluster.local", generation)
	own.Endpoints = []string{"10.77.0.1", "10.77.0.4", "10.77.0.14", "10.77.0.26"}
	own.Ports = []uint16{80, 81}
	hidden := svc("hidden.y.svc.cluster.local", generation, "10.0.1.1")
	hidden.Namespace, hidden.Export = "y", []string{"y"}
	local := svc("local.x.svc.cluster.local", generation, "10.0.2.1")
	local.Cluster, local.Member = "c2", "c2"
	return []xdstest.Service{own, hidden, local, svc("plain.x.svc.cluster.local", generation, "10.0.3.1")}
}

func classNode(i int, cluster, namespace string) *corev3.Node {
	md, _ := structpb.NewStruct(map[string]any{"CLUSTER_ID": cluster, "NAMESPACE": namespace})
	return &corev3.Node{Id: fmt.Sprintf("sidecar~10.77.0.%d~p%d.%s~%s.svc.cluster.local", i, i, namespace, namespace), Metadata: md}
}

// holdTheirs compares every client with what the generators make for it alone.
func (r *rig) holdTheirs(nodes []*corev3.Node, envoys []*xdstest.Envoy) {
	r.Helper()
	time.Sleep(2 * time.Second)
	synctest.Wait()
	status := map[string]xds.ProxyStatus{}
	for _, s := range r.server.Proxies() {
		status[s.ID] = s
	}
	for i, e := range envoys {
		if v := e.Violations(); len(v) > 0 {
			r.Fatal(v)
		}
		s := status[nodes[i].Id]
		reader := &pushcontext.Reader{Cluster: s.Cluster, Namespace: s.Namespace, Instances: s.Instances, Scope: s.Class.Scope}
		want, err := xdstest.Expect(r.mesh.Hub.Current(), gen.All(), s.Class, reader)
		if err != nil {
			r.Fatal(err)
		}
		have := e.State()
		for u := range want {
			for n := range want[u] {
				if have[u][n] != want[u][n] {
					r.Errorf("%s: %s %s: has %q, want %q", s.ID, u, n, have[u][n], want[u][n])
				}
			}
			if len(have[u]) != len(want[u]) {
				r.Errorf("%s: %s: has %d, want %d", s.ID, u, len(have[u]), len(want[u]))
			}
		}
	}
}
