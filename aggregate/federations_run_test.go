package aggregate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// I7: a change of one source concerns the FederatedService and the source's own host, and is one of endpoints only.
func TestI7FederatedServicesFollowTheirSources(t *testing.T) {
	inBubble(t, aggregate.Options{ConfigCluster: "c1"}, func(h *hub) {
		c1, n := kube("c1"), nacos("n")
		fs := func(name string, sources ...api.FederatedSource) *model.Config {
			return federated(name, name+".global", policy(api.FederateFailover), from(sources...))
		}
		r1 := registry(c1, service(c1, "a"), slice(c1, "a", "a-1", "10.0.0.1"), service(c1, "b"), slice(c1, "b", "b-1", "10.0.0.5"),
			fs("x", hostSource(host("a")), hostSource("a.nacos")), fs("y", hostSource(host("b"))), fs("z", api.FederatedSource{Name: "s", Selector: map[string]string{"app": "a-nacos"}}))
		r2 := registry(n, foreignService(n, "a.nacos", http80, "10.1.0.1")...)
		h.Attach(r1)
		h.Attach(r2)
		h.start()
		h.quiet()
		delta := func(do func()) (endpoints, shape string) {
			before := len(h.deltas)
			do()
			h.quiet()
			for _, d := range h.deltas[before:] {
				endpoints, shape = endpoints+strings.Join(d.Endpoints, ","), shape+strings.Join(d.Shape, ",")
			}
			return endpoints, shape
		}
		put := func(rows ...model.Object) func() {
			return func() {
				for _, o := range rows {
					r := map[model.ShardKey]func(string, model.Object){c1: r1.Put, n: r2.Put}[shardOf(o)]
					r(keyOf(o), o)
				}
			}
		}
		for _, step := range []struct {
			name, endpoints, shape string
			do                     func()
		}{
			{"endpoints of Kubernetes", host("a") + ",x.global", "", put(slice(c1, "a", "a-1", "10.0.0.1", "10.0.0.2"))},
			{"endpoints of Nacos", "a.nacos,x.global", "", put(foreignService(n, "a.nacos", http80, "10.1.0.1", "10.1.0.2")[:2]...)},
			{"a workload that comes", "z.global", "", put(foreignService(n, "a.nacos", http80, "10.1.0.1", "10.1.0.2")[3])},
			{"the same again", "", "", put(slice(c1, "a", "a-1", "10.0.0.1", "10.0.0.2"))},
			{"the definition of a source", "", host("a"), put(service(c1, "a", func(s *model.Service) {
				s.ServiceAccounts = nil
				s.Labels = model.Labels{"x": "y"}
				s.Traffic = model.TrafficPreferSameZone
			}))},
			{"the FederatedService itself", "", "y.global", put(fs("y", hostSource(host("b")), hostSource("a.nacos")))},
			{"what it says again", "", "", put(fs("y", hostSource(host("b")), hostSource("a.nacos")))},
			{"an endpoint of two of them", "a.nacos,x.global,y.global", "", put(foreignService(n, "a.nacos", http80, "10.1.0.1")[:2]...)},
			{"a source that goes", "x.global", host("a"), func() { r1.Delete(rowOf(service(c1, "a"))) }},
			{"a FederatedService that goes", "", "y.global", func() { r1.Delete(rowOf(fs("y"))) }},
		} {
			endpoints, shape := delta(step.do)
			if endpoints != step.endpoints || shape != step.shape {
				t.Errorf("%s: endpoints %q, shape %q, want %q, %q", step.name, endpoints, shape, step.endpoints, step.shape)
			}
		}
	})
}

// A weight means the same of all registries, also while one says fractions: what proxies are sent of the others is told in hundredths
// as long as it does.
func TestFractionsOfAUnionComeAndGo(t *testing.T) {
	inBubble(t, aggregate.Options{ConfigCluster: "c1"}, func(h *hub) {
		c1, n := kube("c1"), nacos("n")
		weighing := func(weights ...float64) []model.Object {
			ips := []string{"10.1.0.1", "10.1.0.2"}
			rows := foreignService(n, "a.nacos", http80, ips[:len(weights)]...)
			for i, w := range weights {
				rows[1].(*model.Endpoints).Endpoints[i].Weight = w
				rows[2+i].(*model.Workload).Weight = w
			}
			return rows
		}
		r1 := registry(c1, service(c1, "a"), slice(c1, "a", "a-1", "10.0.0.1"), federated("x", "x.global", from(hostSource(host("a")), hostSource("a.nacos"))),
			federated("y", "y.global", from(hostSource(host("a")), api.FederatedSource{Name: "s", Selector: map[string]string{"app": "a-nacos"}})))
		r2 := registry(n, weighing(2, 1)...)
		h.Attach(r1)
		h.Attach(r2)
		h.start()
		sent := func(name string) string {
			out := ""
			v := h.quiet().Service(model.ServiceKey{Namespace: "ns", Host: name})
			for _, x := range gen.ExplainEndpoints(v, gen.Class{Cluster: "c1", IPv4: true}, http80) {
				out += fmt.Sprintf(" %s*%d", x.Endpoint.Addr.AddrPort.Addr(), x.Weight)
			}
			return strings.TrimSpace(out)
		}
		for _, step := range []struct {
			weights []float64
			want    string
		}{
			{[]float64{2, 1}, "10.0.0.1*1 10.1.0.1*2 10.1.0.2*1"},
			{[]float64{2, 0.5}, "10.0.0.1*100 10.1.0.1*200 10.1.0.2*50"},
			{[]float64{0.25, 0.5}, "10.0.0.1*100 10.1.0.1*25 10.1.0.2*50"},
			{[]float64{2}, "10.0.0.1*1 10.1.0.1*2"},
		} {
			rows := weighing(step.weights...)
			for _, o := range rows {
				r2.Put(keyOf(o), o)
			}
			if len(step.weights) == 1 {
				r2.Delete(rowOf(weighing(2, 1)[3]))
			}
			equal(t, sent("x.global"), step.want)
			equal(t, sent("y.global"), step.want)
			equal(t, sent(host("a")), "10.0.0.1*1")
		}
	})
}

// Automatic addresses come and go with those that registries give the host, also in another namespace that is a source.
func TestFederatedAddressesFollowTheHost(t *testing.T) {
	inBubble(t, aggregate.Options{ConfigCluster: "c1"}, func(h *hub) {
		c1 := kube("c1")
		fs := federated("a", host("a"), from(hostSource(host("a"))))
		fs.Namespace, fs.Source.Object.Namespace = "far", "far"
		r := registry(c1, fs, service(c1, "a"))
		h.Attach(r)
		h.start()
		addresses := func() string {
			return fmt.Sprint(h.quiet().Service(model.ServiceKey{Namespace: "far", Host: host("a")}).Shape.Addresses["c1"])
		}
		automatic := addresses()
		if !strings.Contains(automatic, "240.240.") {
			t.Fatalf("addresses %s", automatic)
		}
		with := service(c1, "a", vip("10.96.0.1/32"))
		r.Put(keyOf(with), with)
		equal(t, addresses(), "[10.96.0.1/32]")
		r.Put(keyOf(with), service(c1, "a"))
		equal(t, addresses(), automatic)
	})
}

// The scrub knows FederatedServices, whichever hosts a pass is about.
func TestScrubChecksFederatedServices(t *testing.T) {
	reg := prometheus.NewRegistry()
	inBubble(t, aggregate.Options{ConfigCluster: "c1", Registerer: reg, ScrubEvery: time.Second}, func(h *hub) {
		c1 := kube("c1")
		var rows []model.Object
		for i := range 150 { // more than one pass has
			name := fmt.Sprint("s", i)
			rows = append(rows, service(c1, name), slice(c1, name, name, fmt.Sprintf("10.0.0.%d", i)), workload(c1, model.KindPod, name, fmt.Sprintf("10.1.0.%d", i), model.Labels{"app": name}),
				federated(name, name+".global", from(hostSource(host(name)), api.FederatedSource{Name: "pods", Selector: map[string]string{"app": name}})))
		}
		h.Attach(registry(c1, rows...))
		h.start()
		h.quiet()
		time.Sleep(time.Minute)
		got := gather(t, reg)
		if got["isthmus_scrub_services_total"] < 300 || got["isthmus_scrub_drift_total"] != 0 {
			t.Errorf("%v services checked, %v differ", got["isthmus_scrub_services_total"], got["isthmus_scrub_drift_total"])
		}
	})
}

// An object that is given another host goes on selecting its workloads.
func TestFederatedServiceIsGivenAnotherHost(t *testing.T) {
	inBubble(t, aggregate.Options{ConfigCluster: "c1"}, func(h *hub) {
		c1 := kube("c1")
		selecting := func(host string) *model.Config {
			return federated("x", host, from(api.FederatedSource{Name: "pods", Selector: map[string]string{"app": "a"}}))
		}
		r := registry(c1, selecting("0.global"))
		h.Attach(r)
		h.start()
		h.quiet()
		for i := range 20 { // the order in which hosts come and go is that of a map
			name := fmt.Sprintf("%d.global", i+1)
			fs, pod := selecting(name), workload(c1, model.KindPod, "p", fmt.Sprintf("10.0.0.%d", i), model.Labels{"app": "a"})
			r.Put(keyOf(fs), fs)
			h.quiet()
			r.Put(keyOf(pod), pod)
			pc := h.quiet()
			equal(t, parts(pc.Service(model.ServiceKey{Namespace: "ns", Host: name}), "http"), []string{fmt.Sprintf("pods c1/10.0.0.%d:80", i)})
			if pc.Host(fmt.Sprintf("%d.global", i)) != nil {
				t.Error("the former host is still there")
			}
		}
	})
}

// A PeerAuthentication that comes to the namespace of selected workloads holds for them, wherever the FederatedService is.
func TestFederatedWorkloadsFollowTheirNamespacesDemands(t *testing.T) {
	inBubble(t, aggregate.Options{ConfigCluster: "c1"}, func(h *hub) {
		c1 := kube("c1")
		fs := federated("x", "x.global", from(api.FederatedSource{Name: "s", Namespace: "ns", Selector: map[string]string{"app": "p"}}))
		fs.Namespace, fs.Source.Object.Namespace = "far", "far"
		r := registry(c1, fs, workload(c1, model.KindPod, "p", "10.0.0.2", model.Labels{"app": "p"}))
		h.Attach(r)
		h.start()
		mode := func() model.MTLS {
			return h.quiet().Service(model.ServiceKey{Namespace: "far", Host: "x.global"}).Port("http")[0].Endpoints[0].MTLS
		}
		equal(t, mode(), model.MTLSPermissive)
		d := demand("ns", "d", "STRICT", "", "", 0)
		r.Put(keyOf(d), d)
		equal(t, mode(), model.MTLSStrict)
	})
}
