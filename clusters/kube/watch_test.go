package kube_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

const web = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.0.0.1, ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.1.0.1]}]
---
apiVersion: v1
kind: Pod
metadata: {name: web-a, namespace: shop, labels: {app: web}}
spec: {containers: [{name: c}]}
status: {phase: Running, podIP: 10.1.0.9}`

var webRows = []string{"endpoints EndpointSlice/shop/web-1", "service Service/shop/web", "workload Pod/shop/web-a"}

func options(s *apiServer) kube.Options {
	return kube.Options{Cluster: "c1", Config: s.config(), Timing: quick}
}

func TestFirstSyncIsOneFullTruth(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.apply(web)
	w := watch(t, kube.New(options(s)))
	w.awaitRows(webRows...)
	w.awaitState(model.StateLive)
	if len(w.puts) > 0 {
		t.Errorf("puts: %v", w.puts)
	}
	s.apply(`
apiVersion: v1
kind: Service
metadata: {name: api, namespace: shop}
spec: {clusterIP: 10.0.0.2, ports: [{name: http, port: 80}]}`)
	w.awaitRows(append(webRows, "service Service/shop/api")...)
	s.remove("pods", "shop/web-a")
	s.remove("services", "shop/api")
	w.awaitRows(webRows[:2]...)
}

// Lists come in pages, each of which is as of now.
func TestPages(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	var want []string
	for i := range 1203 {
		name := fmt.Sprintf("svc-%04d", i)
		s.set(object{"kind": "Service", "metadata": object{"name": name, "namespace": "shop"}, "spec": object{"clusterIP": "10.0.0.1"}})
		want = append(want, "service Service/shop/"+name)
	}
	w := watch(t, kube.New(options(s)))
	w.awaitRows(want...)
	pages := s.count(func(r request) bool { return r.verb == "list" && r.resource == "services" })
	stale := s.count(func(r request) bool { return r.verb == "list" && r.query["resourceVersion"] != nil })
	if pages != 3 || stale != 0 {
		t.Errorf("%d pages, want 3; %d lists that may be outdated", pages, stale)
	}
}

// A watch that ends goes on where it ended: nothing is listed again.
func TestWatchGoesOn(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.apply(web)
	w := watch(t, kube.New(options(s)))
	w.awaitRows(webRows...)
	lists := s.count(func(r request) bool { return r.verb == "list" })
	for range 3 {
		s.drop()
		s.apply(apiService)
		w.awaitRows(append([]string{"service Service/shop/api"}, webRows...)...)
		s.drop()
		s.remove("services", "shop/api")
		w.awaitRows(webRows...)
	}
	if n := s.count(func(r request) bool { return r.verb == "list" }); n != lists {
		t.Errorf("%d lists more", n-lists)
	}
	w.awaitState(model.StateLive)
}

// A bookmark moves the revision that a watch goes on from, though nothing of its kind has changed.
func TestBookmarks(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.apply(web)
	w := watch(t, kube.New(options(s)))
	w.awaitRows(webRows...)
	s.apply(apiService)
	w.awaitRows(append([]string{"service Service/shop/api"}, webRows...)...)
	marks := map[string]bool{}
	w.until("a watch from a bookmark", func() bool {
		marks[s.bookmark("Service")] = true
		w.turn() // until it has arrived, most likely
		s.drop()
		return s.count(func(r request) bool {
			return r.verb == "watch" && r.resource == "services" && marks[r.query["resourceVersion"][0]]
		}) > 0
	})
}

// When the server has forgotten what came since, everything is listed again, and what changed meanwhile
// comes as single changes: also what was deleted, of which nothing tells.
func TestHistoryIsGone(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.apply(web)
	w := watch(t, kube.New(options(s)))
	w.awaitRows(webRows...)
	s.change(func() { // unseen
		delete(s.objects["pods"], "shop/web-a")
	})
	s.expire()
	w.awaitRows(webRows[:2]...)
	w.awaitState(model.StateLive)
	for _, put := range w.puts {
		for _, e := range put {
			if e.Row.Key != "Pod/shop/web-a" || e.Obj != nil {
				t.Errorf("event %+v", e)
			}
		}
	}
}

// A server that was restored from a backup is behind what was known.
func TestServerIsBehind(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.apply(web)
	w := watch(t, kube.New(options(s)))
	w.awaitRows(webRows...)
	s.change(func() {
		delete(s.objects["pods"], "shop/web-a")
		s.rv, s.log, s.ahead = 50, nil, true
		s.epoch++
	})
	w.awaitRows(webRows[:2]...)
}

// Of namespaces that are not selected nothing is read; they come and go with their labels.
func TestSelectors(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.apply(web)
	s.apply(strings.ReplaceAll(web, "shop", "bank"))
	o := options(s)
	o.Selectors = []*meshconfig.LabelSelector{
		{MatchLabels: map[string]string{"mesh": "on"}},
		{MatchExpressions: []*meshconfig.LabelSelectorRequirement{{Key: "team", Operator: "In", Values: []string{"a", "b"}}, {Key: "off", Operator: "DoesNotExist"}}},
	}
	label := func(ns string, labels object) {
		s.set(object{"kind": "Namespace", "metadata": object{"name": ns, "labels": labels}})
	}
	bank := strings.Split(strings.ReplaceAll(strings.Join(webRows, ","), "shop", "bank"), ",")
	w := watch(t, kube.New(o))
	w.awaitRows()
	label("shop", object{"mesh": "on"})
	w.awaitRows(webRows...)
	label("bank", object{"team": "b"})
	w.awaitRows(append(bank, webRows...)...)
	label("bank", object{"team": "b", "off": "yes"})
	w.awaitRows(webRows...)
	s.remove("pods", "bank/web-a")
	label("shop", object{})
	w.awaitRows()
	label("bank", object{"team": "a"})
	w.awaitRows(bank[:2]...)
	s.remove("namespaces", "/bank")
	w.awaitRows()
}

// The system namespace is read whatever is selected: its label names the network of all endpoints, and its
// Services are that network's gateways.
func TestIncident61SelectorsHideNoGateway(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.apply(web)
	s.apply(`
kind: Namespace
metadata: {name: istio-system, labels: {topology.istio.io/network: n1}}
---
kind: Service
metadata: {name: eastwest, namespace: istio-system, labels: {topology.istio.io/network: n1}}
spec: {type: LoadBalancer, clusterIP: 10.0.0.9, ports: [{name: tls, port: 15443}]}
status: {loadBalancer: {ingress: [{ip: 203.0.113.1}]}}`)
	o := options(s)
	o.Selectors = []*meshconfig.LabelSelector{{MatchLabels: map[string]string{"mesh": "on"}}}
	w := watch(t, kube.New(o))
	gateway := "service Service/istio-system/eastwest"
	w.awaitRows(gateway)
	s.set(object{"kind": "Namespace", "metadata": object{"name": "shop", "labels": object{"mesh": "on"}}})
	w.awaitRows(append([]string{gateway}, webRows...)...)
	s.set(object{"kind": "Namespace", "metadata": object{"name": "istio-system", "labels": object{"mesh": "on"}}})
	s.set(object{"kind": "Namespace", "metadata": object{"name": "istio-system"}})
	s.set(object{"kind": "Namespace", "metadata": object{"name": "shop"}})
	w.awaitRows(gateway)
}

// A first sync that takes long says what it waits for.
func TestFirstSyncSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.apply(web)
	s.serve(istio, entries)
	release := s.hold("list workloadentries.networking.istio.io")
	o, logs := options(s), &logBook{}
	o.Timing.Explain, o.Log = 10*time.Millisecond, logs.logger()
	w := watch(t, kube.New(o))
	w.awaitErr("still reading workloadentries.networking.istio.io")
	if logs.count("level=WARN") > 0 || logs.count("still reading") == 0 {
		t.Errorf("progress is no warning:\n%s", logs)
	}
	if w.replaces > 0 {
		t.Error("it has synced without")
	}
	release()
	w.awaitState(model.StateLive)
	if w.status.Err != "" {
		t.Errorf("err %q while live", w.status.Err)
	}
}

func TestSelectorsThatCannotBe(t *testing.T) {
	t.Parallel()
	o := options(newAPIServer(t))
	o.Selectors = []*meshconfig.LabelSelector{{MatchExpressions: []*meshconfig.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}}
	if err := kube.New(o).Run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "discoverySelectors") {
		t.Errorf("Run: %v", err)
	}
}

// What changes while the first lists are read belongs to the first truth or comes after it, and is never lost.
func TestChangesDuringFirstSync(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.apply(web)
	var w *watcher
	for i := range 20 {
		s.set(object{"kind": "Service", "metadata": object{"name": "api", "namespace": "shop"}, "spec": object{"clusterIP": fmt.Sprintf("10.0.1.%d", i)}})
		if i == 5 {
			w = watch(t, kube.New(options(s)))
		}
	}
	w.await("the last state", func() bool {
		svc, _ := w.rows[model.RowKey{Kind: model.RowService, Key: "Service/shop/api"}].(*model.Service)
		return w.replaces == 1 && svc != nil && len(svc.Addresses) == 1 && svc.Addresses[0].Addr().String() == "10.0.1.19"
	})
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.apply(web)
	reg := prometheus.NewRegistry()
	o := options(s)
	o.Metrics = kube.NewMetrics(reg)
	w := watch(t, kube.New(o))
	w.awaitRows(webRows...)
	s.expire()
	s.apply(apiService)
	w.awaitRows(append([]string{"service Service/shop/api"}, webRows...)...)
	s.set(object{"kind": "Pod", "metadata": object{"name": "web-a", "namespace": "shop", "labels": object{"app": "other"}}, "status": object{"podIP": "10.1.0.8"}})
	w.await("the pod's address", func() bool {
		p, _ := w.rows[model.RowKey{Kind: model.RowWorkload, Key: "Pod/shop/web-a"}].(*model.Workload)
		return p != nil && p.Address.AddrPort.Addr().String() == "10.1.0.8"
	})
	s.remove("services", "shop/api")
	w.awaitRows(webRows...)
	s.fail("list pods", http.StatusInternalServerError)
	s.expire()
	w.awaitState(model.StateStale)
	w.stop()
	want := map[string]float64{
		`pilot_k8s_reg_events{event="add",type="Services"}`: 2, `pilot_k8s_reg_events{event="delete",type="Services"}`: 1,
		`pilot_k8s_reg_events{event="update",type="Pods"}`: 1, `pilot_k8s_reg_events{event="add",type="Nodes"}`: 0,
	}
	got := gather(t, reg)
	for k, n := range want {
		if got[k] != n {
			t.Errorf("%s is %v, want %v", k, got[k], n)
		}
	}
	for _, k := range []string{`pilot_k8s_reg_events{event="updatesame",type="EndpointSlice"}`, `isthmus_kube_list_pages_total{cluster="c1"}`,
		`isthmus_kube_listed_objects_total{cluster="c1"}`, `isthmus_kube_failed_requests_total{cluster="c1",failure="server",type="Pod"}`} {
		if got[k] < 1 {
			t.Errorf("%s is %v", k, got[k])
		}
	}
	o.Metrics.Forget("c1")
	for k := range gather(t, reg) {
		if strings.Contains(k, "c1") {
			t.Errorf("%s is left", k)
		}
	}
}

// gather gives all values by name and labels.
func gather(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			slices.Sort(labels)
			out[f.GetName()+"{"+strings.Join(labels, ",")+"}"] = m.GetCounter().GetValue()
		}
	}
	return out
}

// What a cluster can make us keep is bounded: what is beyond is left out, and that is said.
func TestMoreObjectsThanAreKept(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	pod := func(i int) string { return fmt.Sprintf("pod-%02d", i) }
	for i := range 8 {
		s.set(object{"kind": "Pod", "metadata": object{"name": pod(i), "namespace": "shop"}, "status": object{"podIP": "10.1.0.1"}})
	}
	o := options(s)
	o.MaxObjects = 5
	w := watch(t, kube.New(o))
	w.await("five pods", func() bool { return w.replaces == 1 && len(w.rows) == 5 })
	w.awaitProblem("Pod//", "more than 5 of these objects")
	s.set(object{"kind": "Service", "metadata": object{"name": "api", "namespace": "shop"}})
	w.awaitRow("service Service/shop/api", true)
	for i := range 4 {
		s.remove("pods", "shop/"+pod(i))
	}
	s.expire()
	s.drop()
	w.awaitRow("workload Pod/shop/pod-07", true)
	w.awaitNoProblem()
	for i := range 20 {
		s.set(object{"kind": "Pod", "metadata": object{"name": pod(i), "namespace": "shop"}, "status": object{"podIP": "10.1.0.1"}})
	}
	s.expire()
	w.awaitErr("what " + s.srv.Listener.Addr().String() + " gives as pods can't be read")
}
