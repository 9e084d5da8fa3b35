package kube_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

// variant gives one of several versions of an object, so that all kinds refer to each other.
func variant(kind string, n, version int) string {
	pick := func(s ...string) string { return s[version%len(s)] }
	switch kind {
	case kube.KindNamespace:
		name := []string{"istio-system", "demo", "other"}[n%3]
		return fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s, labels: {topology.istio.io/network: %s}, annotations: {networking.istio.io/traffic-distribution: %s}}",
			name, pick("n1", "n2", "n1"), pick("PreferClose", "Any", "PreferClose"))
	case kube.KindNode:
		return fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: node-%d, labels: {topology.kubernetes.io/zone: %s, role: %s}}\nstatus: {addresses: [%s]}",
			n, pick("z1", "z2", "z1"), pick("edge", "edge", "inner"), pick("", fmt.Sprintf("{type: ExternalIP, address: 192.0.2.%d}", n), "{type: ExternalIP, address: 192.0.2.9}"))
	case kube.KindPod:
		return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: pod-%d, namespace: %s, labels: {app: a%d, security.istio.io/tlsMode: %s}%s}
spec: {nodeName: node-%d}
status: {podIP: 10.0.0.%d, phase: %s, conditions: [{type: Ready, status: "%s"}]}`,
			n, []string{"demo", "other"}[n%2], version%2, pick("istio", "disabled"), pick("", ", uid: u1", ", uid: u2"), version%3, 1+(n+version)%3,
			pick("Running", "Running", "Failed"), pick("True", "False", "True"))
	case kube.KindService:
		return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: svc-%d, namespace: demo, labels: {%s}, annotations: {traffic.istio.io/nodeSelector: '%s', alpha.istio.io/kubernetes-serviceaccounts: sa}}\nspec: {%s, clusterIP: 10.1.0.%d, ports: [{name: http, port: %d, nodePort: 30000}]}",
			n, pick("x: v", "istio.io/persistent-session: c"), pick(`{"role": "edge"}`, `{"role": "edge", "topology.kubernetes.io/zone": "z1"}`, ""),
			pick("type: NodePort", "type: ClusterIP", "type: NodePort", "type: ExternalName, externalName: a.example"), n+1, 80+version%2)
	case kube.KindServiceExport:
		return fmt.Sprintf("apiVersion: multicluster.x-k8s.io/v1alpha1\nkind: ServiceExport\nmetadata: {name: svc-%d, namespace: demo, creationTimestamp: \"2026-01-0%dT00:00:00Z\"}", n, 1+version%2)
	case kube.KindServiceImport:
		return fmt.Sprintf("apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceImport\nmetadata: {name: svc-%d, namespace: demo}\nspec: {type: %s, ips: [%s], ports: [{name: http, port: 80}]}",
			n, pick("ClusterSetIP", "Headless"), pick("10.7.0.1", "", "10.7.0.2, fd00::7"))
	case kube.KindConfigMap:
		return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %s}\ndata: {mesh: '%s'}",
			[]string{"istio", "isthmus", "istio"}[n%3], []string{"istio-system", "istio-system", "demo"}[n%3], pick("trustDomain: a.example", "trustDomain: b.example", "{}", "trustDomain: no domain"))
	case kube.KindKubernetesGateway:
		return fmt.Sprintf("apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: gw-%d, namespace: demo, labels: {%s}}\nspec: {gatewayClassName: %s, listeners: [{name: a, port: 15443, protocol: TLS, tls: {mode: Passthrough}}]}\nstatus: {addresses: [%s]}",
			n, pick("topology.istio.io/network: n1", "x: v"), pick("istio", "istio-remote", "istio-remote"), pick("{value: 192.0.2.1}", "{value: 192.0.2.1}", ""))
	case kube.KindDestinationRule:
		return fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: dr-%d, namespace: demo}\nspec: {host: %s, trafficPolicy: {tls: {mode: %s}}}", n, pick("svc-0", "a.example", "a..b"), pick("DISABLE", "ISTIO_MUTUAL"))
	case kube.KindVirtualService:
		return fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: vs-%d, namespace: demo}\nspec: {hosts: [%s], http: [{route: [{destination: {host: a.example}}], timeout: %s}]}", n, pick("a.example", "b.example", "'**'"), pick("1s", "2s"))
	case kube.KindPeerAuthentication:
		return fmt.Sprintf("apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: pa-%d, namespace: demo}\nspec: {mtls: {mode: %s}}", n, pick("STRICT", "DISABLE", "UNSET"))
	case kube.KindGateway:
		return fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: gw-%d, namespace: demo}\nspec: {servers: [{port: {number: 15443, protocol: TLS, name: a}, hosts: [\"*\"], tls: {mode: %s}}]}", n, pick("AUTO_PASSTHROUGH", "PASSTHROUGH"))
	case kube.KindEndpointSlice:
		return fmt.Sprintf(`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: slice-%d, namespace: demo, labels: {kubernetes.io/service-name: svc-%d}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
  - {addresses: [10.0.0.1], targetRef: {kind: Pod, name: pod-%d%s}}
  - {addresses: [10.0.0.2], conditions: {ready: false, serving: true, terminating: true}, nodeName: node-%d}
  - {addresses: [10.0.0.3], nodeName: node-1}`, n, version%3, 2*(version%2), pick("", ", uid: u1", ""), n)
	case kube.KindServiceEntry:
		return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: se-%d, namespace: demo}
spec: {hosts: [%s], location: MESH_INTERNAL, resolution: %s, ports: [{name: http, number: 80, protocol: HTTP}], endpoints: [{address: 10.9.0.1}]}`,
			n, pick("a.example, b.example", "a.example", "c.example", "b..example"), pick("STATIC", "DNS"))
	}
	return fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: we-%d, namespace: demo}\nspec: {address: 10.8.0.%d, labels: {app: a%d}, %s}",
		n, n+1, version%2, pick("weight: 1", "network: n9", "locality: r/z", "ports: {http: 70000}"))
}

var kinds = []string{kube.KindNamespace, kube.KindNode, kube.KindPod, kube.KindService, kube.KindEndpointSlice, kube.KindServiceEntry, kube.KindWorkloadEntry,
	kube.KindServiceExport, kube.KindServiceImport, kube.KindConfigMap, kube.KindKubernetesGateway, kube.KindDestinationRule, kube.KindPeerAuthentication, kube.KindGateway, kube.KindVirtualService}

// converter varies the options, so that each is there in some runs.
func converter(seed uint64) kube.Converter {
	return kube.Converter{Shard: shard, TrustDomain: "td", MCS: seed%2 == 1, ConfigCluster: seed%3 == 1}
}

// TestAnyOrderGivesTheSameRows drives a store with random changes, alone and in batches, and
// compares it with one that got the surviving objects at once; the events must add up to the same.
func TestAnyOrderGivesTheSameRows(t *testing.T) {
	t.Parallel()
	for seed := range uint64(48) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 1))
			s := kube.NewStore(converter(seed))
			live := map[model.ObjectKey]versions{}
			folded := map[model.RowKey]model.Object{}
			for range 40 {
				set, del := randomStep(t, rng, live)
				for _, ev := range s.Apply(set, del) {
					if ev.Obj == nil {
						delete(folded, ev.Row)
					} else {
						folded[ev.Row] = ev.Obj
					}
				}
				check(t, s, converter(seed), live, folded)
			}
		})
	}
}

// versions are what a store is to make of an object: that of its last version without errors.
type versions struct{ good, last kube.Object }

func randomStep(t *testing.T, rng *rand.Rand, live map[model.ObjectKey]versions) (set []kube.Object, del []model.ObjectKey) {
	for range 1 + rng.IntN(4) {
		o := objects(t, variant(kinds[rng.IntN(len(kinds))], rng.IntN(3), rng.IntN(6)))[0]
		if rng.IntN(3) == 0 {
			del = append(del, o.Ref)
		} else {
			set = append(set, o)
		}
	}
	for _, ref := range del {
		delete(live, ref)
	}
	for i, o := range set {
		if slices.ContainsFunc(set[i+1:], func(later kube.Object) bool { return later.Ref == o.Ref }) {
			continue // it never is in force
		}
		v := live[o.Ref]
		if v.last = o; inForce(o) {
			v.good = o
		}
		live[o.Ref] = v
	}
	return set, del
}

// inForce reports whether an object has no errors.
func inForce(o kube.Object) bool {
	s := newStore()
	s.Set(o)
	for _, r := range s.State().Rows() {
		if c, ok := r.(*model.Config); ok && c.Refused {
			return false
		}
	}
	return true
}

func check(t *testing.T, s *kube.Store, c kube.Converter, live map[model.ObjectKey]versions, folded map[model.RowKey]model.Object) {
	t.Helper()
	scratch := kube.NewStore(c)
	var good, last []kube.Object
	for _, v := range live {
		if v.good.Value != nil {
			good = append(good, v.good)
		}
		last = append(last, v.last)
	}
	scratch.Apply(good, nil)
	scratch.Apply(last, nil)
	if d := cmp.Diff(dump(scratch), dump(s)); d != "" {
		t.Fatal("differs from scratch:\n", d)
	}
	got := map[string]string{}
	for k, o := range folded {
		got[k.Kind.String()+" "+k.Key] = dumpRow(k, o)
	}
	if d := cmp.Diff(rowsOf(s), got); d != "" {
		t.Fatal("events do not add up to the state:\n", d)
	}
}

// Incident 72: endpoints, service and pod in every order, and pods that never come.
func TestIncident72EveryOrder(t *testing.T) {
	t.Parallel()
	objs := objects(t, strings.Join([]string{
		"apiVersion: v1\nkind: Node\nmetadata: {name: node-0, labels: {topology.kubernetes.io/zone: z1}}",
		"apiVersion: v1\nkind: Service\nmetadata: {name: svc, namespace: demo}\nspec: {clusterIP: 10.0.0.1, ports: [{name: http, port: 80}]}",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: pod, namespace: demo}\nspec: {nodeName: node-0}\nstatus: {podIP: 10.1.0.1}",
		"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: svc-1, namespace: demo, labels: {kubernetes.io/service-name: svc}}\naddressType: IPv4\nports: [{name: http, port: 1}]\nendpoints: [{addresses: [10.1.0.1], targetRef: {kind: Pod, name: pod}}, {addresses: [10.1.0.2], targetRef: {kind: Pod, name: never}}]",
	}, "\n---\n"))
	want := ""
	permute(objs, func(order []kube.Object) {
		s := newStore()
		for _, o := range order {
			s.Set(o)
		}
		if got := dump(s); want == "" {
			want = got
		} else if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	})
	for _, x := range []string{"Addr=10.1.0.1:1 ", "Locality=/z1", "Addr=10.1.0.2:0 Reason=PodUnknown"} {
		if !strings.Contains(want, x) {
			t.Errorf("%q is missing in\n%s", x, want)
		}
	}
}

func permute(in []kube.Object, f func([]kube.Object)) {
	var rec func(done, rest []kube.Object)
	rec = func(done, rest []kube.Object) {
		if len(rest) == 0 {
			f(done)
			return
		}
		for i := range rest {
			rec(append(slices.Clone(done), rest[i]), slices.Delete(slices.Clone(rest), i, i+1))
		}
	}
	rec(nil, in)
}

func keysOf(events []model.Event) []string {
	out := []string{}
	for _, ev := range events {
		k := ev.Row.Kind.String() + " " + ev.Row.Key
		if ev.Obj == nil {
			k = "-" + k
		}
		out = append(out, k)
	}
	return out
}

const minimal = `
apiVersion: v1
kind: Namespace
metadata: {name: istio-system}
---
apiVersion: v1
kind: Node
metadata: {name: node, labels: {topology.kubernetes.io/zone: z1}}
---
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: demo, resourceVersion: "1"}
spec: {nodeName: node}
status: {podIP: 10.0.0.1}
---
apiVersion: v1
kind: Pod
metadata: {name: b, namespace: demo}
status: {podIP: 10.0.0.2}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: of-a, namespace: demo, labels: {kubernetes.io/service-name: svc}}
addressType: IPv4
ports: [{name: http, port: 1}]
endpoints: [{addresses: [10.0.0.1], targetRef: {kind: Pod, name: a}}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: by-ip, namespace: demo, labels: {kubernetes.io/service-name: svc}}
addressType: IPv4
ports: [{name: http, port: 1}]
endpoints: [{addresses: [10.0.0.2]}]
---
apiVersion: v1
kind: Service
metadata: {name: svc, namespace: demo}
spec: {clusterIP: 10.0.1.1, ports: [{name: http, port: 80}]}
`

// A change gives the rows that differ and no others.
func TestOnlyWhatDiffers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change string
		want   []string
	}{
		"pod's labels": {"apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: demo, labels: {x: v}}\nspec: {nodeName: node}\nstatus: {podIP: 10.0.0.1}",
			[]string{"endpoints EndpointSlice/demo/of-a", "workload Pod/demo/a"}},
		"pod's readiness": {"apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: demo}\nspec: {nodeName: node}\nstatus: {podIP: 10.0.0.1, conditions: [{type: Ready, status: \"True\"}]}",
			[]string{"workload Pod/demo/a"}},
		"pod's revision": {"apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: demo, resourceVersion: \"2\"}\nspec: {nodeName: node}\nstatus: {podIP: 10.0.0.1}",
			[]string{}},
		"pod by address": {"apiVersion: v1\nkind: Pod\nmetadata: {name: b, namespace: demo}\nstatus: {podIP: 10.0.0.3}",
			[]string{"endpoints EndpointSlice/demo/by-ip", "workload Pod/demo/b"}},
		"node": {"apiVersion: v1\nkind: Node\nmetadata: {name: node, labels: {topology.kubernetes.io/zone: z2}}",
			[]string{"endpoints EndpointSlice/demo/of-a", "workload Pod/demo/a"}},
		"network": {"apiVersion: v1\nkind: Namespace\nmetadata: {name: istio-system, labels: {topology.istio.io/network: n1}}",
			[]string{"endpoints EndpointSlice/demo/by-ip", "endpoints EndpointSlice/demo/of-a", "workload Pod/demo/a", "workload Pod/demo/b"}},
		"service's port": {"apiVersion: v1\nkind: Service\nmetadata: {name: svc, namespace: demo}\nspec: {clusterIP: 10.0.1.1, ports: [{name: http, port: 81}]}",
			[]string{"service Service/demo/svc"}},
		"namespace's traffic": {"apiVersion: v1\nkind: Namespace\nmetadata: {name: demo, annotations: {networking.istio.io/traffic-distribution: PreferClose}}",
			[]string{"service Service/demo/svc"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := load(t, minimal)
			if d := cmp.Diff(tt.want, keysOf(s.Apply(objects(t, tt.change), nil))); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestDelete(t *testing.T) {
	t.Parallel()
	s := load(t, minimal)
	got := keysOf(s.Delete(model.ObjectKey{Kind: "Pod", Namespace: "demo", Name: "a"}))
	if d := cmp.Diff([]string{"endpoints EndpointSlice/demo/of-a", "-workload Pod/demo/a"}, got); d != "" {
		t.Error(d)
	}
	if got := s.Delete(model.ObjectKey{Kind: "Pod", Namespace: "demo", Name: "a"}); len(got) != 0 {
		t.Error("second delete gave", got)
	}
}

// A host that a ServiceEntry no longer has goes, and only that.
func TestServiceEntryLosesHost(t *testing.T) {
	t.Parallel()
	const se = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: x, namespace: demo}\nspec: {hosts: [%s], resolution: DNS, ports: [{name: http, number: 80, protocol: HTTP}]}"
	s := load(t, fmt.Sprintf(se, "a.example, b.example"))
	got := keysOf(s.Apply(objects(t, fmt.Sprintf(se, "a.example, c.example")), nil))
	want := []string{"service ServiceEntry/demo/x/c.example", "endpoints ServiceEntry/demo/x/c.example",
		"-service ServiceEntry/demo/x/b.example", "-endpoints ServiceEntry/demo/x/b.example"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
