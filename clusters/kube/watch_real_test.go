package kube_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
	"github.com/isthmus-mesh/isthmus/kubeapi"
	"github.com/isthmus-mesh/isthmus/test/env"
)

// brisk are timings for real servers.
var brisk = kube.Timing{
	Timing: kubeapi.Timing{Dial: 2 * time.Second, Ping: 500 * time.Millisecond, Pong: 500 * time.Millisecond,
		Retry: 20 * time.Millisecond, RetryMax: 200 * time.Millisecond},
	Discovery: time.Second, Absent: 2 * time.Second,
}

func real(cfg *rest.Config) kube.Options {
	return kube.Options{Cluster: "c1", Config: cfg, Timing: brisk}
}

// awaitRow waits until a row is there, or is not.
func (w *watcher) awaitRow(key string, there bool) {
	w.t.Helper()
	w.await("row "+key, func() bool { return w.replaces > 0 && slices.Contains(w.keys(), key) == there })
}

const vm = `
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: vm, namespace: shop}
spec: {address: 10.9.0.1}`

// A credential may read what is required and nothing else: that is told, kind by kind, and all the rest works.
// Then it gets the other rights, and later loses all of them.
func TestRightsOfARealServer(t *testing.T) {
	c := servers.Take(t, 1)[0]
	c.Apply(t, env.App("shop/web", 80, "n1", "10.1.0.1"), env.Node("n1", "r1", "z1"), vm)
	const account = "hub/reader"
	c.ServiceAccount(t, account)
	c.Grant(t, account, env.Reader("services", "pods", "nodes", "namespaces", "endpointslices.discovery.k8s.io"))
	link := c.Link(t)
	reg := kube.New(real(link.Config(c.Token(t, account, 3600))))
	w := watch(t, reg)
	w.awaitRow("service Service/shop/web", true)
	w.awaitState(model.StateLive)
	for _, item := range []string{"workloadentries.networking.istio.io", "gateways.gateway.networking.k8s.io", "configmap istio-system/istio"} {
		w.awaitProblem(item, "the right to list "+item+" is missing (403)")
	}
	if got := reg.Serves(); got == nil || len(got) > 0 {
		t.Errorf("serves %v", got)
	}
	c.Grant(t, account, env.Reader("workloadentries.networking.istio.io", "gateways.gateway.networking.k8s.io", "configmaps"))
	w.awaitRow("workload WorkloadEntry/shop/vm", true)
	w.awaitNoProblem()
	c.Revoke(t, account)
	link.DropConnections()
	w.awaitState(model.StateStale)
	w.awaitRow("workload WorkloadEntry/shop/vm", true)
}

// An API server dies and comes back: what it held stays meanwhile, and what changed is seen.
func TestRealServerDies(t *testing.T) {
	c := servers.Take(t, 1)[0]
	c.Apply(t, env.App("shop/web", 80, "n1", "10.1.0.1"), env.App("shop/old", 80, "n1", "10.1.0.2"))
	w := watch(t, kube.New(real(c.Config)))
	w.awaitRow("service Service/shop/old", true)
	w.awaitState(model.StateLive)
	c.Stop(t)
	w.awaitState(model.StateStale)
	w.awaitErr("refuses connections")
	w.awaitRow("service Service/shop/old", true)
	c.Start(t)
	w.awaitState(model.StateLive)
	c.Delete(t, env.App("shop/old", 80, "n1", "10.1.0.2"))
	c.Apply(t, env.App("shop/new", 80, "n1", "10.1.0.3"))
	w.awaitRow("service Service/shop/old", false)
	w.awaitRow("service Service/shop/new", true)
	if w.deletedBut("Service/shop/old", "EndpointSlice/shop/old", "Pod/shop/old") {
		t.Error("other rows were deleted")
	}
}

// deletedBut reports whether a row was deleted whose key begins with none of these.
func (w *watcher) deletedBut(prefixes ...string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, put := range w.puts {
		for _, e := range put {
			if e.Obj == nil && !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(e.Row.Key, p) }) {
				return true
			}
		}
	}
	return false
}

// Custom kinds come and go with their definitions.
func TestDefinitionsOfARealServer(t *testing.T) {
	c := servers.Bare(t, 1)[0]
	o := real(c.Config)
	o.Configuration, o.MCS = true, true
	reg := kube.New(o)
	w := watch(t, reg)
	w.awaitState(model.StateLive)
	w.awaitNoProblem()
	if got := slices.DeleteFunc(reg.Serves(), func(k string) bool { return strings.HasPrefix(k, "ConfigMap/") }); len(got) > 0 {
		t.Errorf("serves %v", got)
	}
	c.InstallCRDs(t)
	c.Apply(t, vm, `
apiVersion: networking.istio.io/v1beta1
kind: ServiceEntry
metadata: {name: ext, namespace: shop}
spec: {hosts: [ext.test], ports: [{name: http, number: 80, protocol: HTTP}], resolution: DNS}`)
	w.awaitRow("workload WorkloadEntry/shop/vm", true)
	w.awaitRow("service ServiceEntry/shop/ext/ext.test", true)
	w.until("all kinds", func() bool { return len(reg.Serves()) == 2+2+16+2 })
	w.awaitNoProblem()
}

// A token that expires is refused when a watch opens anew.
func TestIncident13RealToken(t *testing.T) {
	c := servers.Take(t, 1)[0]
	c.Apply(t, env.App("shop/web", 80, "n1", "10.1.0.1"))
	c.ServiceAccount(t, "hub/reader")
	c.Grant(t, "hub/reader", env.Everything())
	link := c.Link(t)
	token := c.Token(t, "hub/reader", 600)
	logs := &logBook{}
	o := real(link.Config(token))
	o.Log = logs.logger()
	w := watch(t, kube.New(o))
	w.awaitRow("service Service/shop/web", true)
	w.awaitState(model.StateLive)
	link.Refuse(token)
	link.DropConnections()
	w.awaitState(model.StateStale)
	w.awaitErr("refuses the credential (401)")
	w.awaitRow("service Service/shop/web", true)
	link.Accept(token)
	w.awaitState(model.StateLive)
	if strings.Contains(logs.String(), token[len(token)-20:]) || strings.Contains(logs.String(), token[:20]) {
		t.Error("the token is logged")
	}
}
