package xds_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds"
	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
	"github.com/isthmus-mesh/isthmus/xds/xdstest"
)

// rig is a server on a hand-made mesh, within a synctest bubble.
type rig struct {
	*testing.T
	server *xds.Server
	mesh   *xdstest.Mesh
	faults *xdstest.Faults
}

func newRig(t *testing.T, change ...func(*xds.Options)) *rig {
	r := &rig{T: t, faults: &xdstest.Faults{}}
	o := xds.Options{Generators: xdstest.Generators(r.faults)}
	for _, f := range change {
		f(&o)
	}
	r.server = xds.NewServer(o)
	r.mesh = xdstest.NewMesh(r.server.Notify)
	r.server.UseHub(r.mesh.Hub)
	return r
}

func node(i int) *corev3.Node {
	md, _ := structpb.NewStruct(map[string]any{"CLUSTER_ID": "c1", "NAMESPACE": "x"})
	return &corev3.Node{Id: fmt.Sprintf("sidecar~10.99.%d.%d~p%d.x~x.svc.cluster.local", i/250, i%250+1, i), Metadata: md}
}

func (r *rig) pipe(p wire.Protocol) *xdstest.Pipe {
	return xdstest.NewPipe(r.Context(), p, func(p wire.Protocol, e *xdstest.PipeEnd) error { return r.server.Serve(p, e) })
}

// envoy connects a client.
func (r *rig) envoy(p wire.Protocol, n *corev3.Node, change ...func(*xdstest.Envoy)) *xdstest.Envoy {
	r.Helper()
	e := xdstest.NewEnvoy(p, n, func() (xdstest.Stream, error) { return r.pipe(p), nil })
	for _, f := range change {
		f(e)
	}
	if err := e.Connect(); err != nil {
		r.Fatal(err)
	}
	return e
}

// expected is what a proxy of node(i) must hold.
func (r *rig) expected(i int) map[string]map[string]string {
	r.Helper()
	for _, p := range r.server.Proxies() {
		if p.ID != node(i).Id {
			continue
		}
		reader := &pushcontext.Reader{Cluster: p.Cluster, Namespace: p.Namespace, Instances: p.Instances, Scope: p.Class.Scope}
		want, err := xdstest.Expect(r.mesh.Hub.Current(), xdstest.Generators(nil), p.Class, reader)
		if err != nil {
			r.Fatal(err)
		}
		return want
	}
	r.Fatalf("proxy %d is not connected", i)
	return nil
}

// converged waits for quiet and compares a client with what it must hold.
func (r *rig) converged(i int, e *xdstest.Envoy) {
	r.Helper()
	synctest.Wait()
	if v := e.Violations(); len(v) > 0 {
		r.Fatalf("the server broke the protocol: %v", v)
	}
	if d := cmp.Diff(readable(r.expected(i)), readable(e.State())); d != "" {
		r.Fatalf("proxy %d differs (-want +got):\n%s\nwarming: %v", i, d, e.Warming())
	}
	if u := e.Unready(); len(u) > 0 {
		r.Fatalf("proxy %d: tables %v wait for hosts", i, u)
	}
}

func readable(m map[string]map[string]string) map[string]map[string]string {
	short := map[string]string{gen.ClusterURL: "cds", gen.EndpointURL: "eds", gen.ListenerURL: "lds", gen.RouteURL: "rds", gen.VirtualHostURL: "vhds"}
	out := map[string]map[string]string{}
	for u, rs := range m {
		out[short[u]] = map[string]string{}
		for n, b := range rs {
			out[short[u]][n] = fmt.Sprintf("%q", b)
		}
	}
	return out
}

func both(t *testing.T, f func(t *testing.T, p wire.Protocol)) {
	for _, p := range []wire.Protocol{wire.SotW, wire.Delta} {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { f(t, p) })
		})
	}
}
