package aggregate_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/memory"
)

func selecting(l model.Labels) func(*model.Service) {
	return func(s *model.Service) { s.Selector.Labels = l }
}

var appX = model.Labels{"app": "x"}

// Incidents 53 and contract 2.1 #1: a ServiceEntry selects pods and WorkloadEntries of every member,
// told apart although they share a name, also of members that come later; they go with their member.
func TestSelectorReachIncident53(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1, c2 := kube("c1"), kube("c2")
		h.Attach(registry(c1, entry(c1, "se", selecting(appX)), service(c1, "svc", selecting(appX)),
			workload(c1, model.KindPod, "db-0", "10.0.0.1", appX), workload(c1, model.KindWorkloadEntry, "db-0", "10.0.0.2", appX)))
		h.start()
		h.quiet()
		wantAddrs(t, h, "se", "c1/10.0.0.1:80", "c1/10.0.0.2:80")
		h.Attach(registry(c2, workload(c2, model.KindPod, "db-0", "10.0.0.1", appX), workload(c2, model.KindWorkloadEntry, "db-0", "10.0.0.3", appX)))
		h.quiet()
		wantAddrs(t, h, "se", "c1/10.0.0.1:80", "c2/10.0.0.1:80", "c1/10.0.0.2:80", "c2/10.0.0.3:80")
		wantAddrs(t, h, "svc", "c1/10.0.0.2:80") // a Service: WorkloadEntries of its own member
		h.Detach(c2)
		h.quiet()
		wantAddrs(t, h, "se", "c1/10.0.0.1:80", "c1/10.0.0.2:80")
	})
}

// Incident 55: labels and selectors change.
func TestSelectorFollowsLabelsIncident55(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1 := kube("c1")
		r := registry(c1, entry(c1, "on", selecting(model.Labels{"app": "x", "ready": "true"})), entry(c1, "off", selecting(model.Labels{"ready": "false"})),
			workload(c1, model.KindPod, "p", "10.0.0.1", model.Labels{"app": "x", "ready": "true"}))
		h.Attach(r)
		h.start()
		h.quiet()
		wantAddrs(t, h, "on", "c1/10.0.0.1:80")
		wantAddrs(t, h, "off")
		w := workload(c1, model.KindPod, "p", "10.0.0.1", model.Labels{"app": "x", "ready": "false"})
		r.Put(keyOf(w), w)
		h.quiet()
		wantAddrs(t, h, "on")
		wantAddrs(t, h, "off", "c1/10.0.0.1:80")
		s := entry(c1, "on", selecting(appX))
		r.Put(keyOf(s), s)
		h.quiet()
		wantAddrs(t, h, "on", "c1/10.0.0.1:80")
		r.Delete(rowOf(w))
		h.quiet()
		wantAddrs(t, h, "on")
		wantAddrs(t, h, "off")
	})
}

// Incident 56: nil and empty selectors select nothing.
func TestSelectorEmptyIncident56(t *testing.T) {
	t.Parallel()
	c1 := kube("c1")
	for _, sel := range []model.Labels{nil, {}} {
		v := rebuilt(t, "a", service(c1, "a", selecting(sel)), workload(c1, model.KindWorkloadEntry, "w", "10.0.0.1", appX), workload(c1, model.KindWorkloadEntry, "bare", "10.0.0.2", nil))
		if got := addrs(v, "http"); len(got) != 0 {
			t.Errorf("selector %#v selects %v", sel, got)
		}
	}
}

func TestSelectorKeepsToItsNamespace(t *testing.T) {
	t.Parallel()
	c1 := kube("c1")
	w := workload(c1, model.KindPod, "w", "10.0.0.1", appX)
	w.Namespace = "other"
	if got := addrs(rebuilt(t, "a", entry(c1, "a", selecting(appX)), w), "http"); len(got) != 0 {
		t.Errorf("selected from another namespace: %v", got)
	}
}

// Incident 57: which port of a workload backs a service port.
func TestSelectorPortIncident57(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		port  model.Port
		ports map[string]uint16
		want  []string
	}{
		{"target port name first", model.Port{Name: "grpc", Number: 80, TargetName: "http"}, map[string]uint16{"http": 8080, "grpc": 17070}, []string{"c1/10.0.0.1:8080"}},
		{"then service port name", model.Port{Name: "grpc", Number: 80, TargetName: "http"}, map[string]uint16{"grpc": 17070}, []string{"c1/10.0.0.1:17070"}},
		{"service port name before number", model.Port{Name: "grpc", Number: 80, TargetPort: 9090}, map[string]uint16{"grpc": 17070}, []string{"c1/10.0.0.1:17070"}},
		{"then numeric target port", model.Port{Name: "grpc", Number: 80, TargetPort: 9090}, nil, []string{"c1/10.0.0.1:9090"}},
		{"then service port", model.Port{Name: "grpc", Number: 80}, map[string]uint16{"x": 1}, []string{"c1/10.0.0.1:80"}},
		{"a missing named target port is no port", model.Port{Name: "grpc", Number: 80, TargetName: "http"}, map[string]uint16{"x": 1}, []string{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c1 := kube("c1")
			w := workload(c1, model.KindWorkloadEntry, "w", "10.0.0.1", appX)
			w.Ports = tc.ports
			v := rebuilt(t, "a", service(c1, "a", selecting(appX), withPorts(tc.port)), w)
			if d := cmp.Diff(tc.want, addrs(v, "grpc")); d != "" {
				t.Error(d)
			}
			if none := len(tc.want) == 0; none != (len(v.LeftOut) == 1 && v.LeftOut[0].Reason == model.ReasonNoPort) {
				t.Errorf("left out: %v", v.LeftOut)
			}
		})
	}
}

func TestSelectedEndpointContent(t *testing.T) {
	t.Parallel()
	c1 := kube("c1")
	w := workload(c1, model.KindWorkloadEntry, "w", "10.0.0.1", appX)
	w.ServiceAccount, w.Network, w.Weight, w.Health, w.Locality = "spiffe://td/ns/ns/sa/w", "n2", 7, 0, model.Locality{Region: "r"}
	e := rebuilt(t, "a", entry(c1, "a", selecting(appX)), w).Port("http")[0].Endpoints[0]
	if e.TLSMode != model.TLSIstio || e.Network != "n2" || e.Weight != 7 || e.Health != model.Healthy || e.Locality.Region != "r" ||
		e.Workload != (model.ObjectKey{Kind: "WorkloadEntry", Namespace: "ns", Name: "w"}) || !e.Labels.Equal(appX) || e.Source.Object.Name != "w" {
		t.Errorf("endpoint %+v", e)
	}
	w.TLSMode = model.TLSDisabled
	if e = rebuilt(t, "a", entry(c1, "a", selecting(appX)), w).Port("http")[0].Endpoints[0]; e.TLSMode != model.TLSDisabled {
		t.Errorf("TLS mode %q, want the stated one", e.TLSMode)
	}
}

// A registry's own statement beats a selected workload, so that nothing is counted twice; incident 64:
// address-less workloads are endpoints, each of its own.
func TestSelectedDuplicatesAndAddressless(t *testing.T) {
	t.Parallel()
	c1 := kube("c1")
	v := rebuilt(t, "a", service(c1, "a"), slice(c1, "a", "s", "10.0.0.1"),
		entry(c1, "a", selecting(appX), withPorts(model.Port{Name: "http", Number: 80, TargetPort: 8080})),
		workload(c1, model.KindPod, "p", "10.0.0.1", appX), workload(c1, model.KindWorkloadEntry, "n1", "", appX), workload(c1, model.KindWorkloadEntry, "n2", "", appX))
	if d := cmp.Diff([]string{"c1/:8080", "c1/:8080", "c1/10.0.0.1:8080"}, addrs(v, "http")); d != "" {
		t.Error(d)
	}
	if len(v.LeftOut) != 1 || v.LeftOut[0].Reason != model.ReasonDuplicate || v.LeftOut[0].Source.Object.Kind != "Pod" {
		t.Errorf("left out: %v", v.LeftOut)
	}
}

// TestDefect7EqualAddressesOfNetworks: networks may use the same addresses, also in one object; in one network, what is
// stated twice counts once, and that is told.
func TestDefect7EqualAddressesOfNetworks(t *testing.T) {
	t.Parallel()
	c1 := kube("c1")
	row := slice(c1, "a", "s", "10.0.0.5", "10.0.0.5", "10.0.0.5", "10.0.0.5")
	for i, n := range []string{"n3", "n2", "n2", ""} {
		row.Endpoints[i].Network = n
	}
	v := rebuilt(t, "a", service(c1, "a"), row)
	var got []string
	for _, e := range v.Port("http")[0].Endpoints {
		got = append(got, e.Network)
	}
	if d := cmp.Diff([]string{"", "n2", "n3"}, got); d != "" {
		t.Errorf("networks: %s", d)
	}
	if len(v.LeftOut) != 1 || v.LeftOut[0].Reason != model.ReasonDuplicate {
		t.Errorf("left out: %v", v.LeftOut)
	}
}

// Host names and sockets are for DNS services; only one name fits a round-robin DNS service.
func TestSelectedKinds(t *testing.T) {
	t.Parallel()
	c1 := kube("c1")
	named := workload(c1, model.KindWorkloadEntry, "w", "", appX)
	named.Address.Host = "db.example"
	other := workload(c1, model.KindWorkloadEntry, "w2", "", appX)
	other.Address.Host = "db2.example"
	for _, tc := range []struct {
		r    model.Resolution
		want []string
		why  model.Reason
	}{
		{model.ClientSideLB, []string{}, model.ReasonWrongKind},
		{model.DNSLB, []string{"c1/db.example:80", "c1/db2.example:80"}, ""},
		{model.DNSRoundRobin, []string{"c1/db.example:80"}, model.ReasonConflictLost},
	} {
		v := rebuilt(t, "a", entry(c1, "a", selecting(appX), withResolution(tc.r)), named, other)
		if d := cmp.Diff(tc.want, addrs(v, "http")); d != "" {
			t.Errorf("%v: %s", tc.r, d)
		}
		if tc.why != "" && (len(v.LeftOut) == 0 || v.LeftOut[0].Reason != tc.why) {
			t.Errorf("%v: left out %v", tc.r, v.LeftOut)
		}
	}
}

// Incidents 72 and 60: the result does not depend on the order of service, slice, pod and entry, and
// what waits for its service goes without a trace.
func TestOrderDoesNotMatterIncident72(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1 := kube("c1")
		rows := []model.Object{service(c1, "a", selecting(appX)), slice(c1, "a", "s", "10.0.0.1"), workload(c1, model.KindWorkloadEntry, "w", "10.0.0.2", appX)}
		r := memory.New(c1)
		r.Replace(state())
		h.Attach(r)
		h.start()
		for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
			for _, i := range order {
				r.Put(keyOf(rows[i]), rows[i])
				h.quiet()
			}
			if d := cmp.Diff([]string{"c1/10.0.0.1:8080", "c1/10.0.0.2:80"}, sorted(addrs(h.service("a"), "http"))); d != "" {
				t.Errorf("order %v: %s", order, d)
			}
			for _, i := range order {
				r.Delete(rowOf(rows[i]))
				h.quiet()
			}
			if pc := h.Current(); h.service("a") != nil || pc.Shards[0].Rows != [model.RowKinds]int{} {
				t.Errorf("order %v: left over %+v", order, pc.Shards[0])
			}
			if n := h.Indexed(); n != 0 {
				t.Errorf("order %v: %d index entries left over", order, n)
			}
		}
	})
}
