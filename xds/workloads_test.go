package xds_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/isthmus-mesh/isthmus/xds"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// diary writes down what a registry of workloads is told.
type diary struct {
	mu    sync.Mutex
	lines []string // guarded by mu
	last  *xds.Workload
}

func (d *diary) note(format string, a ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, a...))
}

func (d *diary) Connected(w *xds.Workload) {
	d.note("connected %s/%s %s %s %v", w.Namespace, w.Group, w.Network, w.Labels, w.Addresses)
	d.last = w
}
func (d *diary) Disconnected(w *xds.Workload) {
	d.note("disconnected %s same=%v", w.Group, w == d.last)
}
func (d *diary) Health(w *xds.Workload, healthy bool, message string) {
	d.note("health %s %v %s", w.Group, healthy, message)
}

func (d *diary) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.lines
	d.lines = nil
	return out
}

const healthURL = "type.googleapis.com/istio.v1.HealthInformation"

// What asks to be registered is told of when it comes, when it goes, and how it is; nothing else is.
func TestWorkloads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := &diary{}
		r := newRig(t, func(o *xds.Options) { o.Workloads = d })
		told := func(want ...string) {
			t.Helper()
			synctest.Wait()
			if got := d.take(); !slices.Equal(got, want) {
				t.Errorf("told %q, want %q", got, want)
			}
		}
		s := r.script()
		s.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: healthURL}) // too early
		n := registering(node(1), map[string]any{"AUTO_REGISTER_GROUP": "vms", "NETWORK": "n1", "LABELS": map[string]any{"app": "db"}})
		s.send(&discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: gen.ClusterURL})
		s.next(true)
		told("connected x/vms n1 app=db [10.99.0.2]")
		s.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: healthURL})
		s.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: healthURL, ErrorDetail: refusal(strings.Repeat("sick ", 1000))})
		synctest.Wait()
		got := d.take()
		if len(got) != 2 || got[0] != "health vms true " || !strings.HasPrefix(got[1], "health vms false sick") || len(got[1]) > 3000 {
			t.Errorf("told %.100q", got)
		}
		s.quiet() // a report has no answer
		s.p.Close()
		told("disconnected vms same=true")

		other := r.script()
		other.send(&discoveryv3.DeltaDiscoveryRequest{Node: node(2), TypeUrl: gen.ClusterURL})
		other.next(true)
		other.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: healthURL})
		other.p.Close()
		told()
	})
}

func registering(n *corev3.Node, meta map[string]any) *corev3.Node {
	for k, v := range meta {
		n.Metadata.Fields[k], _ = structpb.NewValue(v)
	}
	return n
}

// An agent is sent the name table when it asks, again when a name stands for something else, and not for what
// makes no difference to names.
func TestNameTableIsSent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *xds.Options) { o.Generators = gen.All() })
		named := func(host, vip string, ips ...string) {
			s := svc(host, 0, ips...)
			s.VIP = vip
			r.mesh.Set(s)
		}
		named("a.x.svc.cluster.local", "10.255.0.1", "10.0.0.1")
		s := r.script()
		defer s.p.Close()
		s.send(&discoveryv3.DeltaDiscoveryRequest{Node: node(1), TypeUrl: gen.NameTableURL})
		table := func(want ...string) {
			t.Helper()
			m, _ := s.next(true)
			for _, w := range want {
				if m.TypeUrl != gen.NameTableURL || len(m.Resources) != 1 || !strings.Contains(string(m.Resources[0].Resource.Value), w) {
					t.Fatalf("not in the table: %s: %v", w, m)
				}
			}
		}
		table("a.x.svc.cluster.local", "10.255.0.1")
		named("a.x.svc.cluster.local", "10.255.0.1", "10.0.0.1", "10.0.0.2")
		s.quiet()
		named("b.x.svc.cluster.local", "10.255.0.2")
		table("a.x.svc.cluster.local", "b.x.svc.cluster.local", "10.255.0.2")
		db := svc("db.x.svc.cluster.local", 0, "10.0.0.7")
		db.Headless = true
		r.mesh.Set(db)
		table("db.x.svc.cluster.local", "10.0.0.7")
		db.Endpoints = append(db.Endpoints, "10.0.0.8")
		r.mesh.Set(db)
		table("10.0.0.7", "10.0.0.8")
		r.mesh.Delete(db)
		if m, _ := s.next(true); strings.Contains(m.String(), "db.x") {
			t.Errorf("a service that is gone has a name: %v", m)
		}
		s.quiet()
	})
}
