package kube_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

func edgeNode(name, role, addresses string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: %s, labels: {role: %s}}\nstatus: {addresses: [%s]}\n---\n", name, role, addresses)
}

func external(ip string) string { return "{type: ExternalIP, address: " + ip + "}" }

const edgeServices = `
apiVersion: v1
kind: Service
metadata: {name: edge, namespace: demo, annotations: {traffic.istio.io/nodeSelector: '{"role": "edge"}'}}
spec: {type: NodePort, clusterIP: 10.0.0.1, ports: [{name: tls, port: 15443, nodePort: 30443}]}
---
apiVersion: v1
kind: Service
metadata: {name: inner, namespace: demo, annotations: {traffic.istio.io/nodeSelector: '{"role": "inner"}'}}
spec: {type: NodePort, clusterIP: 10.0.0.2, ports: [{name: tls, port: 15443, nodePort: 30444}]}
---
apiVersion: v1
kind: Service
metadata: {name: plain, namespace: demo}
spec: {type: NodePort, clusterIP: 10.0.0.3, ports: [{name: tls, port: 15443, nodePort: 30445}]}
---
`

// A node that changes its labels or addresses changes the services that are reached at it, and no others.
func TestNodeChangeMovesExposedServices(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change string
		want   []string
		edge   string
	}{
		"address":       {edgeNode("a", "edge", external("192.0.2.9")), []string{"service Service/demo/edge"}, "192.0.2.9 192.0.2.2"},
		"label":         {edgeNode("a", "inner", external("192.0.2.1")), []string{"service Service/demo/edge", "service Service/demo/inner"}, "192.0.2.2"},
		"address gone":  {edgeNode("a", "edge", ""), []string{"service Service/demo/edge"}, "192.0.2.2"},
		"new node":      {edgeNode("c", "edge", external("192.0.2.3")), []string{"service Service/demo/edge"}, "192.0.2.1 192.0.2.2 192.0.2.3"},
		"inner address": {edgeNode("a", "edge", external("192.0.2.1")+", {type: InternalIP, address: 10.9.9.9}"), []string{}, "192.0.2.1 192.0.2.2"},
		"of no service": {edgeNode("d", "other", external("192.0.2.4")), []string{}, "192.0.2.1 192.0.2.2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := load(t, edgeServices+edgeNode("a", "edge", external("192.0.2.1"))+edgeNode("b", "edge", external("192.0.2.2")))
			if d := cmp.Diff(tt.want, keysOf(s.Apply(objects(t, tt.change), nil))); d != "" {
				t.Error(d)
			}
			got := map[string]bool{}
			for _, e := range row[*model.Service](t, s, "Service/demo/edge").Exposed {
				got[e.IP.String()] = true
				if d := cmp.Diff(map[uint16]uint16{15443: 30443}, e.Ports); d != "" {
					t.Error(d)
				}
			}
			want := map[string]bool{}
			for ip := range strings.FieldsSeq(tt.edge) {
				want[ip] = true
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestNodeDeletion(t *testing.T) {
	t.Parallel()
	s := load(t, edgeServices+edgeNode("a", "edge", external("192.0.2.1")))
	got := keysOf(s.Delete(model.ObjectKey{Kind: kube.KindNode, Name: "a"}))
	if d := cmp.Diff([]string{"service Service/demo/edge"}, got); d != "" {
		t.Error(d)
	}
	if e := row[*model.Service](t, s, "Service/demo/edge").Exposed; e != nil {
		t.Errorf("still exposed at %v", e)
	}
}

// A node's external address is of no concern to its pods, nor is its zone to the services exposed at it.
func TestNodeChangeLeavesPodsAlone(t *testing.T) {
	t.Parallel()
	s := load(t, minimal+"---\n"+edgeServices)
	const node = "apiVersion: v1\nkind: Node\nmetadata: {name: node, labels: {topology.kubernetes.io/zone: z1, role: edge}}\nstatus: {addresses: [{type: ExternalIP, address: 192.0.2.1}]}"
	if d := cmp.Diff([]string{"service Service/demo/edge"}, keysOf(s.Apply(objects(t, node), nil))); d != "" {
		t.Error(d)
	}
}

// The addresses of a load balancer come and go with its status.
func TestLoadBalancerStatus(t *testing.T) {
	t.Parallel()
	const svc = "apiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: demo}\nspec: {type: LoadBalancer, clusterIP: 10.0.0.1, ports: [{name: tls, port: 15443}]}\nstatus: {loadBalancer: {ingress: [%s]}}"
	s := load(t, fmt.Sprintf(svc, ""))
	exposed := func() []model.Exposure { return row[*model.Service](t, s, "Service/demo/s").Exposed }
	if e := exposed(); e != nil {
		t.Errorf("exposed at %v before there is a status", e)
	}
	s.Apply(objects(t, fmt.Sprintf(svc, "{ip: 192.0.2.1}, {hostname: lb.example}")), nil)
	want := []model.Exposure{{IP: netip.MustParseAddr("192.0.2.1")}, {Host: "lb.example"}}
	if d := cmp.Diff(want, exposed(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
		t.Error(d)
	}
	s.Apply(objects(t, fmt.Sprintf(svc, "")), nil)
	if e := exposed(); e != nil {
		t.Errorf("exposed at %v after the status is gone", e)
	}
}

// FuzzNodeSelector: no annotation makes conversion fail, and none that is no map of labels selects nodes.
func FuzzNodeSelector(f *testing.F) {
	for _, seed := range []string{"", "{}", `{"role":"edge"}`, `{"role":7}`, "null", "[]", `{"":""}`, `{"role":"edge","role":"inner"}`, `"edge"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, annotation string) {
		objs := objects(t, edgeServices+edgeNode("a", "edge", external("192.0.2.1")))
		svc := asService(t, objs[0])
		svc.Annotations = map[string]string{"traffic.istio.io/nodeSelector": annotation}
		one, two := newStore(), newStore()
		one.Apply(objs, nil)
		for i := len(objs) - 1; i >= 0; i-- {
			two.Set(objs[i])
		}
		if d := cmp.Diff(dump(one), dump(two)); d != "" {
			t.Fatal("order matters:", d)
		}
		noPanics(t, one)
	})
}
