package kube_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

const (
	dualPod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: demo, labels: {app: x}}\nspec: {nodeName: node}\nstatus: {phase: %s, podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}, {ip: \"fd00::1\"}]}\n---\n"
	ofPod   = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %s, namespace: demo, labels: {kubernetes.io/service-name: svc}}\naddressType: %s\nports: [{name: http, port: 8080}]\nendpoints: [{addresses: [\"%s\"]%s}]\n---\n"
)

func podSlice(name, family, address, more string) string {
	return fmt.Sprintf(ofPod, name, family, address, more)
}

func podIn(phase string) string { return fmt.Sprintf(dualPod, phase) }

// Incident 51, dual stack: the slices of a pod's two families are two endpoints of one workload, and neither
// overwrites the other.
func TestIncident51DualStack(t *testing.T) {
	t.Parallel()
	const ref = ", targetRef: {kind: Pod, name: p}"
	s := load(t, podIn("Running")+podSlice("v4", "IPv4", "10.0.0.1", ref)+podSlice("v6", "IPv6", "fd00::1", ref))
	v4, v6 := row[*model.Endpoints](t, s, "EndpointSlice/demo/v4"), row[*model.Endpoints](t, s, "EndpointSlice/demo/v6")
	if len(v4.Endpoints) != 1 || len(v6.Endpoints) != 1 {
		t.Fatalf("endpoints %v and %v", v4.Endpoints, v6.Endpoints)
	}
	a, b := v4.Endpoints[0], v6.Endpoints[0]
	if a.Workload != b.Workload || a.Workload.Name != "p" || a.PortName != b.PortName || v4.Host != v6.Host {
		t.Errorf("%+v and %+v are not of one workload", a, b)
	}
	if !a.Addr.AddrPort.Addr().Is4() || !b.Addr.AddrPort.Addr().Is6() {
		t.Errorf("addresses %v and %v", a.Addr, b.Addr)
	}
}

// Incident 51: the same address with two ports in two slices, by the names of the ports.
func TestIncident51PortsByName(t *testing.T) {
	t.Parallel()
	other := strings.ReplaceAll(podSlice("b", "IPv4", "10.0.0.1", ""), "{name: http, port: 8080}", "{name: http, port: 9090}, {name: admin, port: 8080}")
	s := load(t, podSlice("a", "IPv4", "10.0.0.1", "")+other)
	var got []string
	for _, key := range []string{"a", "b"} {
		for _, ep := range row[*model.Endpoints](t, s, "EndpointSlice/demo/"+key).Endpoints {
			got = append(got, ep.PortName+" "+ep.Addr.String())
		}
	}
	if d := cmp.Diff([]string{"http 10.0.0.1:8080", "http 10.0.0.1:9090", "admin 10.0.0.1:8080"}, got); d != "" {
		t.Error(d)
	}
}

// A pod that has finished is as good as none: a slice that names it is held back, whether or not the
// source still tells of the pod; and what follows at its address is not taken for it.
func TestFinishedPods(t *testing.T) {
	t.Parallel()
	for _, phase := range []string{"Failed", "Succeeded"} {
		named := podSlice("named", "IPv4", "10.0.0.1", ", targetRef: {kind: Pod, name: p}")
		guessed := podSlice("guessed", "IPv4", "10.0.0.1", "")
		with, without := load(t, podIn(phase)+named+guessed), load(t, named+guessed)
		if d := cmp.Diff(dump(without), dump(with)); d != "" {
			t.Errorf("%s: %s", phase, d)
		}
		if l := row[*model.Endpoints](t, with, "EndpointSlice/demo/named").LeftOut; len(l) != 1 || l[0].Reason != model.ReasonPodUnknown {
			t.Errorf("%s: left out %v", phase, l)
		}
		if ep := row[*model.Endpoints](t, with, "EndpointSlice/demo/guessed").Endpoints; len(ep) != 1 || ep[0].Workload != (model.ObjectKey{}) {
			t.Errorf("%s: guessed %v", phase, ep)
		}
	}
}

// A pod that is being deleted still explains the endpoints that name it, which drain; it is not guessed.
func TestPodBeingDeleted(t *testing.T) {
	t.Parallel()
	pod := strings.Replace(podIn("Running"), "namespace: demo,", "namespace: demo, deletionTimestamp: \"2026-01-01T00:00:00Z\",", 1)
	s := load(t, pod+podSlice("named", "IPv4", "10.0.0.1", ", targetRef: {kind: Pod, name: p}, conditions: {ready: false, terminating: true}")+
		podSlice("guessed", "IPv4", "10.0.0.1", ""))
	if ep := row[*model.Endpoints](t, s, "EndpointSlice/demo/named").Endpoints[0]; ep.Workload.Name != "p" || ep.Health != model.Terminating {
		t.Errorf("named: %+v", ep)
	}
	if ep := row[*model.Endpoints](t, s, "EndpointSlice/demo/guessed").Endpoints[0]; ep.Workload.Name != "" {
		t.Errorf("guessed: %+v", ep)
	}
	if _, there := rowsOf(s)["workload Pod/demo/p"]; there {
		t.Error("it can still be selected")
	}
}

// Health of endpoints: conditions, session labels of the service, and the draining label of the pod, which
// overrules all.
func TestEndpointHealth(t *testing.T) {
	t.Parallel()
	service := func(label string) string {
		return "apiVersion: v1\nkind: Service\nmetadata: {name: svc, namespace: demo, labels: {" + label + "}}\nspec: {clusterIP: 10.9.0.1, ports: [{name: http, port: 80}]}\n---\n"
	}
	draining := strings.Replace(podIn("Running"), "app: x", "app: x, istio.io/draining: \"true\"", 1)
	for name, tt := range map[string]struct {
		pod, service, conditions string
		want                     model.Health
	}{
		"nothing said":                 {podIn("Running"), "", "{}", model.Healthy},
		"ready":                        {podIn("Running"), "", "{ready: true}", model.Healthy},
		"ready, terminating":           {podIn("Running"), "", "{ready: true, terminating: true}", model.Healthy},
		"unready":                      {podIn("Running"), "", "{ready: false}", model.Unhealthy},
		"unready, not terminating":     {podIn("Running"), "", "{ready: false, terminating: false}", model.Unhealthy},
		"terminating":                  {podIn("Running"), "", "{ready: false, terminating: true}", model.Terminating},
		"terminating, session":         {podIn("Running"), service("istio.io/persistent-session: c"), "{ready: false, serving: true, terminating: true}", model.Draining},
		"terminating, session header":  {podIn("Running"), service("istio.io/persistent-session-header: h"), "{ready: false, terminating: true}", model.Draining},
		"terminating, no more serving": {podIn("Running"), service("istio.io/persistent-session: c"), "{ready: false, serving: false, terminating: true}", model.Terminating},
		"draining label":               {draining, "", "{ready: true}", model.Draining},
		"draining label, unready":      {draining, "", "{ready: false}", model.Draining},
		"draining label, terminating":  {draining, "", "{ready: false, serving: false, terminating: true}", model.Draining},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := load(t, tt.pod+tt.service+podSlice("a", "IPv4", "10.0.0.1", ", targetRef: {kind: Pod, name: p}, conditions: "+tt.conditions))
			if got := row[*model.Endpoints](t, s, "EndpointSlice/demo/a").Endpoints[0].Health; got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

// The labels that subset selectors may name: the pod's, and where it runs.
func TestEndpointLabels(t *testing.T) {
	t.Parallel()
	node := "apiVersion: v1\nkind: Node\nmetadata: {name: node, labels: {topology.kubernetes.io/region: r, topology.kubernetes.io/zone: z, topology.istio.io/subzone: s}}\n---\n"
	system := "apiVersion: v1\nkind: Namespace\nmetadata: {name: istio-system, labels: {topology.istio.io/network: n1}}\n---\n"
	s := load(t, node+system+podIn("Running")+podSlice("a", "IPv4", "10.0.0.1", ", targetRef: {kind: Pod, name: p}"))
	want := model.Labels{"app": "x", "topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": "z", "topology.istio.io/subzone": "s",
		"topology.istio.io/cluster": "c1", "kubernetes.io/hostname": "node", "topology.istio.io/network": "n1"}
	if d := cmp.Diff(want, row[*model.Endpoints](t, s, "EndpointSlice/demo/a").Endpoints[0].Labels); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(want, row[*model.Workload](t, s, "Pod/demo/p").Labels); d != "" {
		t.Error(d)
	}
}

// Localities: the pod's label, its old form, the node's labels, their beta form.
func TestLocalityOrder(t *testing.T) {
	t.Parallel()
	beta := "apiVersion: v1\nkind: Node\nmetadata: {name: node, labels: {failure-domain.beta.kubernetes.io/region: rb, failure-domain.beta.kubernetes.io/zone: zb%s}}\n---\n"
	for name, tt := range map[string]struct{ node, label, want string }{
		"label":            {fmt.Sprintf(beta, ""), "topology.istio.io/locality: a/b/c, istio-locality: d.e.f", "a/b/c"},
		"old label":        {fmt.Sprintf(beta, ""), "istio-locality: d.e.f", "d/e/f"},
		"old, slashes":     {fmt.Sprintf(beta, ""), "istio-locality: d/e.1/f", "d/e.1/f"},
		"beta":             {fmt.Sprintf(beta, ""), "x: v", "rb/zb"},
		"stable":           {fmt.Sprintf(beta, ", topology.kubernetes.io/region: r, topology.kubernetes.io/zone: z"), "x: v", "r/z"},
		"no node":          {"", "x: v", ""},
		"subzone, no more": {"apiVersion: v1\nkind: Node\nmetadata: {name: node, labels: {topology.istio.io/subzone: s}}\n---\n", "x: v", "//s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := load(t, tt.node+strings.Replace(podIn("Running"), "app: x", tt.label, 1)+podSlice("a", "IPv4", "10.0.0.1", ", targetRef: {kind: Pod, name: p}"))
			for _, got := range []model.Locality{row[*model.Workload](t, s, "Pod/demo/p").Locality, row[*model.Endpoints](t, s, "EndpointSlice/demo/a").Endpoints[0].Locality} {
				if got.String() != tt.want {
					t.Errorf("%s, want %s", got, tt.want)
				}
			}
		})
	}
}

// Services: virtual addresses, resolution, and what of them the objects around them decide.
func TestServiceConversion(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		spec, meta string
		check      func(*model.Service) bool
	}{
		"one address":        {"{clusterIP: 10.0.0.1}", "", func(s *model.Service) bool { return len(s.Addresses) == 1 && s.Resolution == model.ClientSideLB }},
		"two families":       {"{clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1, 'fd00::1']}", "", func(s *model.Service) bool { return len(s.Addresses) == 2 }},
		"none":               {"{}", "", func(s *model.Service) bool { return len(s.Addresses) == 0 && s.Resolution == model.ClientSideLB }},
		"headless":           {"{clusterIP: None}", "", func(s *model.Service) bool { return len(s.Addresses) == 0 && s.Resolution == model.Passthrough }},
		"headless by list":   {"{clusterIPs: [None]}", "", func(s *model.Service) bool { return s.Resolution == model.Passthrough }},
		"external name":      {"{type: ExternalName, externalName: a.example}", "", func(s *model.Service) bool { return s.Resolution == model.DNSLB && s.External }},
		"not ready":          {"{clusterIP: None, publishNotReadyAddresses: true}", "", func(s *model.Service) bool { return s.PublishNotReady }},
		"local traffic":      {"{clusterIP: 10.0.0.1, internalTrafficPolicy: Local}", "", func(s *model.Service) bool { return s.NodeLocal }},
		"cluster traffic":    {"{clusterIP: 10.0.0.1, internalTrafficPolicy: Cluster}", "", func(s *model.Service) bool { return !s.NodeLocal }},
		"persistent":         {"{clusterIP: 10.0.0.1}", "labels: {istio.io/persistent-session: c}", func(s *model.Service) bool { return s.Persistent }},
		"persistent, header": {"{clusterIP: 10.0.0.1}", "labels: {istio.io/persistent-session-header: h}", func(s *model.Service) bool { return !s.Persistent }},
		"close":              {"{clusterIP: 10.0.0.1, trafficDistribution: PreferClose}", "", func(s *model.Service) bool { return s.Traffic == model.TrafficPreferSameZone }},
		"same zone":          {"{clusterIP: 10.0.0.1, trafficDistribution: PreferSameZone}", "", func(s *model.Service) bool { return s.Traffic == model.TrafficPreferSameZone }},
		"same node":          {"{clusterIP: 10.0.0.1, trafficDistribution: PreferSameNode}", "annotations: {networking.istio.io/traffic-distribution: PreferClose}", func(s *model.Service) bool { return s.Traffic == model.TrafficPreferSameNode }},
		"by annotation":      {"{clusterIP: 10.0.0.1}", "annotations: {networking.istio.io/traffic-distribution: PreferClose}", func(s *model.Service) bool { return s.Traffic == model.TrafficPreferSameZone }},
		"unknown traffic":    {"{clusterIP: 10.0.0.1, trafficDistribution: PreferMoon}", "", func(s *model.Service) bool { return s.Traffic == model.TrafficAny }},
		"exported to":        {"{clusterIP: 10.0.0.1}", "annotations: {networking.istio.io/exportTo: '., other'}", func(s *model.Service) bool { return slices.Equal(s.ExportTo, []string{".", "other"}) }},
		"exported to nobody": {"{clusterIP: 10.0.0.1}", "annotations: {networking.istio.io/exportTo: '~'}", func(s *model.Service) bool { return slices.Equal(s.ExportTo, []string{"~"}) }},
		"accounts": {"{clusterIP: 10.0.0.1}", "annotations: {alpha.istio.io/canonical-serviceaccounts: x, alpha.istio.io/kubernetes-serviceaccounts: 'a, b'}",
			func(s *model.Service) bool {
				return slices.Equal(s.ServiceAccounts, []string{"x", "spiffe://td/ns/demo/sa/a", "spiffe://td/ns/demo/sa/b"})
			}},
		"host": {"{clusterIP: 10.0.0.1}", "", func(s *model.Service) bool { return s.Host == "svc.demo.svc.cluster.local" && s.Name == "svc" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := load(t, "apiVersion: v1\nkind: Service\nmetadata: {name: svc, namespace: demo, "+tt.meta+"}\nspec: "+tt.spec)
			if got := row[*model.Service](t, s, "Service/demo/svc"); !tt.check(got) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// Workloads of one name in two members, and a pod and a WorkloadEntry of one name, are different workloads.
func TestWorkloadsKeepTheirMemberAndKind(t *testing.T) {
	t.Parallel()
	const objs = "apiVersion: v1\nkind: Pod\nmetadata: {name: db-0, namespace: demo}\nstatus: {podIP: 10.0.0.1}\n---\n" +
		"apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: db-0, namespace: demo}\nspec: {address: 10.0.0.1}"
	seen := map[model.WorkloadKey]netip.Addr{}
	for _, cluster := range []model.ClusterID{"c1", "c2"} {
		s := storeOf(cluster)
		s.Apply(objects(t, objs), nil)
		for _, key := range []string{"Pod/demo/db-0", "WorkloadEntry/demo/db-0"} {
			w := row[*model.Workload](t, s, key)
			if w.Address.Cluster != cluster {
				t.Errorf("%s: address in %s", key, w.Address.Cluster)
			}
			seen[w.Key()] = w.Address.AddrPort.Addr()
		}
	}
	if len(seen) != 4 {
		t.Errorf("workloads %v", seen)
	}
}
