package aggregate_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	security "istio.io/api/security/v1beta1"
	selectors "istio.io/api/type/v1beta1"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// demand is a PeerAuthentication: "STRICT" and so on, "" for none; with a selector if app is given, and
// with a mode of its own for port 8080 if that is.
func demand(namespace, name, mode, app, port string, created int64) *model.Config {
	tls := func(m string) *security.PeerAuthentication_MutualTLS {
		return &security.PeerAuthentication_MutualTLS{Mode: security.PeerAuthentication_MutualTLS_Mode(security.PeerAuthentication_MutualTLS_Mode_value[m])}
	}
	spec := &security.PeerAuthentication{}
	if mode != "" {
		spec.Mtls = tls(mode)
	}
	if app != "" {
		spec.Selector = &selectors.WorkloadSelector{MatchLabels: map[string]string{"app": app}}
	}
	if port != "" {
		spec.PortLevelMtls = map[uint32]*security.PeerAuthentication_MutualTLS{8080: tls(port)}
	}
	c := config(kube("c1"), model.ConfigPeerAuthentication, namespace, name, spec)
	c.Created = time.Unix(created, 0)
	return c
}

func labelled(e *model.Endpoints, l model.Labels) *model.Endpoints {
	for i := range e.Endpoints {
		e.Endpoints[i].Labels = l
	}
	return e
}

// What is demanded of a workload port: by port, workload, namespace, mesh; the first that says something.
func TestPeerAuthentication(t *testing.T) {
	t.Parallel()
	c2 := kube("c2")
	for name, tc := range map[string]struct {
		policies []model.Object
		want     model.MTLS
	}{
		"nothing":                      {nil, model.MTLSPermissive},
		"mesh":                         {[]model.Object{demand("istio-system", "default", "STRICT", "", "", 1)}, model.MTLSStrict},
		"mesh unset":                   {[]model.Object{demand("istio-system", "default", "UNSET", "", "", 1)}, model.MTLSPermissive},
		"oldest of the mesh":           {[]model.Object{demand("istio-system", "b", "STRICT", "", "", 2), demand("istio-system", "c", "DISABLE", "", "", 1)}, model.MTLSDisabled},
		"oldest counts if unset":       {[]model.Object{demand("istio-system", "b", "STRICT", "", "", 2), demand("istio-system", "c", "", "", "", 1)}, model.MTLSPermissive},
		"namespace over mesh":          {[]model.Object{demand("istio-system", "default", "STRICT", "", "", 1), demand("ns", "default", "DISABLE", "", "", 2)}, model.MTLSDisabled},
		"namespace unset":              {[]model.Object{demand("istio-system", "default", "STRICT", "", "", 1), demand("ns", "default", "UNSET", "", "", 2)}, model.MTLSStrict},
		"another namespace":            {[]model.Object{demand("other", "default", "STRICT", "", "", 1)}, model.MTLSPermissive},
		"workload over namespace":      {[]model.Object{demand("ns", "default", "STRICT", "", "", 1), demand("ns", "w", "PERMISSIVE", "x", "", 2)}, model.MTLSPermissive},
		"other workloads":              {[]model.Object{demand("ns", "default", "STRICT", "", "", 1), demand("ns", "w", "PERMISSIVE", "y", "", 2)}, model.MTLSStrict},
		"workload unset":               {[]model.Object{demand("ns", "default", "STRICT", "", "", 1), demand("ns", "w", "", "x", "", 2)}, model.MTLSStrict},
		"port over workload":           {[]model.Object{demand("ns", "w", "STRICT", "x", "DISABLE", 1)}, model.MTLSDisabled},
		"port unset":                   {[]model.Object{demand("ns", "w", "STRICT", "x", "UNSET", 1)}, model.MTLSStrict},
		"oldest workload policy alone": {[]model.Object{demand("ns", "w1", "STRICT", "x", "", 1), demand("ns", "w2", "PERMISSIVE", "x", "DISABLE", 2)}, model.MTLSStrict},
		"port without selector":        {[]model.Object{demand("ns", "default", "STRICT", "", "DISABLE", 1)}, model.MTLSStrict},
		"selector of the root":         {[]model.Object{demand("istio-system", "w", "STRICT", "x", "", 1)}, model.MTLSPermissive},
		"of another kind":              {[]model.Object{config(kube("c1"), model.ConfigPeerAuthentication, "ns", "odd", &security.AuthorizationPolicy{})}, model.MTLSPermissive},
	} {
		rows := append(tc.policies, service(c2, "a"), labelled(slice(c2, "a", "a-1", "10.0.0.1"), model.Labels{"app": "x"}))
		if got := rebuilt(t, "a", rows...).Port("http")[0].Endpoints[0].MTLS; got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// TestPeerAuthenticationIsNamed: an endpoint tells which object demands what of it; a new revision of that is no change.
func TestPeerAuthenticationIsNamed(t *testing.T) {
	t.Parallel()
	for want, policies := range map[string][]model.Object{
		"":                     {demand("ns", "w", "", "x", "", 1)},
		"istio-system/default": {demand("istio-system", "default", "STRICT", "", "", 1), demand("ns", "w", "", "x", "", 2)},
		"ns/all":               {demand("istio-system", "default", "STRICT", "", "", 1), demand("ns", "all", "STRICT", "", "", 2)},
		"ns/w":                 {demand("ns", "all", "STRICT", "", "", 1), demand("ns", "w", "DISABLE", "x", "", 2)},
		"ns/port":              {demand("ns", "all", "STRICT", "", "", 1), demand("ns", "port", "", "x", "DISABLE", 2)},
	} {
		rows := append(policies, service(kube("c2"), "a"), labelled(slice(kube("c2"), "a", "a-1", "10.0.0.1"), model.Labels{"app": "x"}))
		e, got := rebuilt(t, "a", rows...).Port("http")[0].Endpoints[0], ""
		if e.MTLSSource != nil {
			got = e.MTLSSource.Object.Namespace + "/" + e.MTLSSource.Object.Name
		}
		if got != want || got == "" && e.MTLS != model.MTLSPermissive {
			t.Errorf("%q demands %s, want %q", got, e.MTLS, want)
		}
	}
}

// What is demanded of one port is not what is demanded of the workload's others.
func TestPeerAuthenticationOfOtherPorts(t *testing.T) {
	t.Parallel()
	for port, want := range map[string]model.MTLS{"DISABLE": model.MTLSDisabled, "": model.MTLSStrict} {
		rows := []model.Object{demand("ns", "w", "STRICT", "x", port, 1), service(kube("c2"), "a"),
			labelled(slice(kube("c2"), "a", "a-1", "10.0.0.1"), model.Labels{"app": "x"})}
		if e := rebuilt(t, "a", rows...).Port("http")[0].Endpoints[0]; e.MTLS != want || e.OtherMTLS != model.MTLSStrict {
			t.Errorf("%q: %s, at other ports %s", port, e.MTLS, e.OtherMTLS)
		}
	}
}

// A changed demand changes the endpoints of the namespace's services, and what their workloads are told of
// themselves.
func TestPeerAuthenticationChange(t *testing.T) {
	inBubble(t, aggregate.Options{ConfigCluster: "c1"}, func(h *hub) {
		c1 := kube("c1")
		far := service(c1, "far", func(s *model.Service) { s.Host, s.Namespace = "far.x.svc.cluster.local", "x" })
		r := registry(c1, service(c1, "a"), labelled(slice(c1, "a", "a-1", "10.0.0.1"), model.Labels{"app": "x"}), far)
		h.Attach(r)
		h.start()
		h.quiet()
		me := model.InstanceKey{Cluster: "c1", IP: slice(c1, "a", "", "10.0.0.1").Endpoints[0].Addr.AddrPort.Addr()}
		check := func(when string, c *model.Config, want model.MTLS, moved bool) {
			t.Helper()
			h.deltas = nil
			r.Put(keyOf(c), c)
			pc := h.quiet()
			var hosts []string
			var moves bool
			for _, d := range h.deltas {
				hosts = append(hosts, slices.Concat(d.Endpoints, d.Shape)...)
				moves = moves || d.Moves([]model.InstanceKey{me})
			}
			if moves != moved || slices.Contains(hosts, far.Host) || slices.Contains(hosts, host("a")) != moved {
				t.Errorf("%s: changes %q, moves %v", when, hosts, moves)
			}
			if got := pc.Instance(me).Targets.Targets[0].MTLS; got != want {
				t.Errorf("%s: the workload demands %s, want %s", when, got, want)
			}
		}
		check("strict", demand("ns", "default", "STRICT", "", "", 1), model.MTLSStrict, true)
		check("the same", demand("ns", "default", "STRICT", "", "", 1), model.MTLSStrict, false)
		check("in another namespace", demand("y", "default", "STRICT", "", "", 1), model.MTLSStrict, false)
		check("for the port", demand("ns", "w", "", "x", "DISABLE", 1), model.MTLSDisabled, true)
		check("for others", demand("ns", "w2", "", "z", "STRICT", 0), model.MTLSDisabled, false)
		if v := h.service("a"); v.Shape.Revision() != 1 {
			t.Errorf("the shape changed in version %d", v.Shape.Revision())
		}
	})
}

// exports makes a service one of clusterset.local.
func exports(created int64) func(*model.Service) {
	return func(s *model.Service) {
		s.Host, s.ClusterSet, s.Created = s.Name+".ns.svc.clusterset.local", true, time.Unix(created, 0)
	}
}

// With the Multi-Cluster Services API a member that does not export a service keeps its own; a member
// without one has the union of those that do.
func TestClusterSetReach(t *testing.T) {
	inBubble(t, aggregate.Options{ConfigCluster: "c1"}, func(h *hub) {
		local := func(s *model.Service) { s.ClusterLocal = true }
		h.Attach(registry(kube("c1"), service(kube("c1"), "a", local), slice(kube("c1"), "a", "a-1", "10.0.0.1")))
		h.Attach(registry(kube("c2"), service(kube("c2"), "a"), slice(kube("c2"), "a", "a-1", "10.0.0.2")))
		h.Attach(registry(kube("c3"), service(kube("c3"), "a"), slice(kube("c3"), "a", "a-1", "10.0.0.3")))
		h.Attach(registry(kube("c4"), service(kube("c4"), "b")))
		h.start()
		pc := h.quiet()
		both := []string{"c2/10.0.0.2:8080", "c3/10.0.0.3:8080"}
		for cluster, want := range map[model.ClusterID][]string{"c1": {"c1/10.0.0.1:8080"}, "c2": both, "c3": both, "c4": both} {
			if d := cmp.Diff(want, addrs(pc.Host(host("a")).Resolve(&pushcontext.Reader{Cluster: cluster, Namespace: "ns"}), "http")); d != "" {
				t.Errorf("%s: %s", cluster, d)
			}
		}
	})
}

// Of exports that differ the oldest decides, wherever it is; each difference is a conflict. Imports bring
// addresses only, and alone they are no service.
func TestClusterSetConflicts(t *testing.T) {
	t.Parallel()
	headless := func(s *model.Service) { s.Resolution = model.Passthrough }
	imported := func(k model.ShardKey, addr string) *model.Service {
		s := service(k, "a", exports(0), vip(addr+"/32"), withPorts(port("other", 99)))
		s.Source.Object.Kind = "ServiceImport"
		return s
	}
	if n := len(rebuiltAll(imported(kube("c1"), "10.1.1.1"))); n != 0 {
		t.Errorf("%d services are only imported", n)
	}
	b := rebuiltAll(service(kube("c1"), "a", exports(5), headless, withPorts(port("web", 80))), service(kube("c2"), "a", exports(3)),
		service(kube("c3"), "a", exports(4), withPorts(port("http", 80), port("extra", 90))), imported(kube("c4"), "10.4.4.4"))
	s := b[0].Shape
	if len(b) != 1 || s.Resolution != model.ClientSideLB || !s.Created.Equal(time.Unix(3, 0)) || len(s.Ports) != 2 || s.Ports[0].Name != "http" {
		t.Errorf("merged into %+v", s)
	}
	if len(s.Addresses["c4"]) != 1 || len(s.Contributions) != 4 {
		t.Errorf("addresses %v, contributions %v", s.Addresses, s.Contributions)
	}
	var fields []string
	for _, c := range s.Conflicts {
		fields = append(fields, string(c.Winner.Shard.Cluster)+" over "+string(c.Loser.Shard.Cluster)+": "+c.Field)
	}
	if d := cmp.Diff([]string{"c2 over c3: ports", "c2 over c1: ports", "c2 over c1: resolution"}, fields); d != "" {
		t.Error(d)
	}
}
