package aggregate_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Incident 48: all ports exist, and the winner's definition of a number is kept.
func TestMergePortsIncident48(t *testing.T) {
	t.Parallel()
	c1, c2 := kube("c1"), kube("c2")
	tcp := model.Port{Name: "raw", Number: 8080, Protocol: model.ProtocolTCP}
	v := rebuilt(t, "a",
		service(c1, "a", withPorts(port("http", 8080))), slice(c1, "a", "s1", "10.0.0.1"),
		service(c2, "a", withPorts(port("http", 8090), tcp)), slice(c2, "a", "s2", "10.0.0.2"))
	if want := fmt.Sprint([]model.Port{port("http", 8080), port("http-8090", 8090)}); portsOf(v) != want {
		t.Errorf("ports %s, want %s", portsOf(v), want)
	}
	if d := cmp.Diff([]string{"ports"}, conflictFields(v)); d != "" {
		t.Errorf("conflicts: %s: %+v", d, v.Shape.Conflicts)
	}
	if d := cmp.Diff([]string{"c1/10.0.0.1:8080"}, addrs(v, "http")); d != "" {
		t.Error("port of c1: " + d)
	}
	if d := cmp.Diff([]string{"c2/10.0.0.2:8080"}, addrs(v, "http-8090")); d != "" {
		t.Error("port of c2, renamed: " + d)
	}
}

// Kubernetes allows one number twice, for UDP and for TCP (its own DNS service does), and UDP never
// hides TCP, whichever of several definitions has which.
func TestMergeKeepsUDPApart(t *testing.T) {
	t.Parallel()
	c1, c2 := kube("c1"), kube("c2")
	udp := model.Port{Name: "dns", Number: 53, Protocol: model.ProtocolUDP}
	tcp := model.Port{Name: "dns-tcp", Number: 53, Protocol: model.ProtocolTCP}
	tcpToo := model.Port{Name: "dns", Number: 53, Protocol: model.ProtocolTCP}
	endpoints := func(k model.ShardKey, ip string, ports ...string) *model.Endpoints {
		e := slice(k, "a", "s"+ip, slices.Repeat([]string{ip}, len(ports))...)
		for i, p := range ports {
			e.Endpoints[i].PortName = p
		}
		return e
	}
	for _, tc := range []struct {
		name  string
		rows  []model.Object
		ports []model.Port
		tcp   []string
	}{
		{"one definition", []model.Object{service(c1, "a", withPorts(udp, tcp)), endpoints(c1, "10.0.0.1", "dns", "dns-tcp")},
			[]model.Port{tcp, udp}, []string{"c1/10.0.0.1:8080"}},
		{"the winner has UDP alone", []model.Object{service(c1, "a", withPorts(udp)), endpoints(c1, "10.0.0.1", "dns"),
			service(c2, "a", withPorts(tcp)), endpoints(c2, "10.0.0.2", "dns-tcp")},
			[]model.Port{tcp, udp}, []string{"c2/10.0.0.2:8080"}},
		{"under one name", []model.Object{service(c1, "a", withPorts(udp)), endpoints(c1, "10.0.0.1", "dns"),
			service(c2, "a", withPorts(tcpToo)), endpoints(c2, "10.0.0.2", "dns")},
			[]model.Port{{Name: "dns-53", Number: 53, Protocol: model.ProtocolTCP}, udp}, []string{"c2/10.0.0.2:8080"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			v := rebuilt(t, "a", tc.rows...)
			if want := fmt.Sprint(tc.ports); portsOf(v) != want {
				t.Errorf("ports %s, want %s", portsOf(v), want)
			}
			if d := cmp.Diff(tc.tcp, addrs(v, tc.ports[0].Name)); d != "" {
				t.Error("behind TCP: " + d)
			}
			if d := cmp.Diff([]string{"c1/10.0.0.1:8080"}, addrs(v, "dns")); d != "" {
				t.Error("behind UDP: " + d)
			}
		})
	}
}

// Several definitions in one member: endpoints belong to the ports of their own.
func TestMergeTranslatesByDefinition(t *testing.T) {
	t.Parallel()
	c1 := kube("c1")
	inline := func(e *model.Service, ip string) *model.Endpoints {
		s := slice(c1, "a", e.Source.Object.Name, ip)
		s.Source = e.Source // the inline endpoints of a ServiceEntry have its row key
		return s
	}
	named := func(name string) func(*model.Service) {
		return func(s *model.Service) { s.Source.Object.Name = name }
	}
	selecting := func(s *model.Service) { s.Selector.Labels = model.Labels{"app": "vm"} }
	x, y := entry(c1, "a", named("x")), entry(c1, "a", named("y"), withPorts(port("http", 8080)), selecting)
	vm := workload(c1, model.KindWorkloadEntry, "vm", "10.0.0.9", model.Labels{"app": "vm"})
	for _, tc := range []struct {
		name  string
		first []model.Object
	}{
		{"two ServiceEntries", []model.Object{x, inline(x, "10.0.0.1")}},
		{"a Service and a ServiceEntry", []model.Object{service(c1, "a"), slice(c1, "a", "s1", "10.0.0.1")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			v := rebuilt(t, "a", append(tc.first, y, inline(y, "10.0.0.2"), vm)...)
			got := [][]string{addrs(v, "http"), addrs(v, "http-8080")}
			if d := cmp.Diff([][]string{{"c1/10.0.0.1:8080"}, {"c1/10.0.0.2:8080", "c1/10.0.0.9:8080"}}, got); d != "" {
				t.Errorf("behind %s (-want +got):\n%s", portsOf(v), d)
			}
		})
	}
}

// A name made for a second port is not that of a third.
func TestMergeNamesStayUnique(t *testing.T) {
	t.Parallel()
	c1 := kube("c1")
	v := rebuilt(t, "a", service(c1, "a", withPorts(port("http", 80), port("http-8080", 9090))), entry(c1, "a", withPorts(port("http", 8080))))
	if want := fmt.Sprint([]model.Port{port("http", 80), port("http-8080-2", 8080), port("http-8080", 9090)}); portsOf(v) != want {
		t.Errorf("ports %s, want %s", portsOf(v), want)
	}
}

// One number under two names: endpoints of both are behind the winner's name.
func TestMergeTranslatesPortNames(t *testing.T) {
	t.Parallel()
	c1, c2 := kube("c1"), kube("c2")
	web := slice(c2, "a", "s2", "10.0.0.2")
	web.Endpoints[0].PortName = "web"
	v := rebuilt(t, "a", service(c1, "a"), slice(c1, "a", "s1", "10.0.0.1"), service(c2, "a", withPorts(port("web", 80))), web)
	if d := cmp.Diff([]string{"c1/10.0.0.1:8080", "c2/10.0.0.2:8080"}, addrs(v, "http")); d != "" {
		t.Error(d)
	}
	if web.Endpoints[0].PortName != "web" {
		t.Error("a row was changed")
	}
}
