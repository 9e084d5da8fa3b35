package aggregate_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

func rootNamespace(name string) *model.Config {
	return meshRow(&meshconfig.MeshConfig{RootNamespace: name}, model.ConfigMesh)
}

// asking is a ServiceEntry that asks for addresses, and had some.
func asking(name string, created int64, had ...string) *model.Service {
	return entry(kube("c1"), name, func(s *model.Service) {
		s.AutoAddress, s.Created = true, time.Unix(created, 0)
		for _, a := range had {
			s.Automatic = append(s.Automatic, netip.MustParseAddr(a))
		}
	})
}

// addressesOf gives the addresses of services, by short name.
func addressesOf(views []*pushcontext.ServiceView) map[string][]netip.Addr {
	out := map[string][]netip.Addr{}
	for _, v := range views {
		for _, list := range v.Shape.Addresses {
			for _, p := range list {
				out[v.Shape.Name] = append(out[v.Shape.Name], p.Addr())
			}
		}
	}
	return out
}

// Every service that asks gets an address of its own in each family, the same on all replicas, whatever the order of rows.
func TestAutomaticAddresses(t *testing.T) {
	t.Parallel()
	var rows []model.Object
	for i := range 2000 { // so many that some names fall on one place
		rows = append(rows, asking(fmt.Sprint("e", i), int64(i%7)))
	}
	got := addressesOf(rebuild(rows...).Services)
	seen := map[netip.Addr]string{}
	four, six := netip.MustParsePrefix("240.240.0.0/16"), netip.MustParsePrefix("2001:2::/48")
	for name, list := range got {
		if len(list) != 2 || !four.Contains(list[0]) || !six.Contains(list[1]) {
			t.Fatalf("%s has %v", name, list)
		}
		if last := list[0].As4()[3]; last == 0 || last == 255 {
			t.Errorf("%s has %s", name, list[0])
		}
		for _, a := range list {
			if other := seen[a]; other != "" {
				t.Fatalf("%s and %s have %s", name, other, a)
			}
			seen[a] = name
		}
	}
	if len(got) != 2000 {
		t.Fatalf("%d services have addresses", len(got))
	}
	rand.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	if d := cmp.Diff(got, addressesOf(rebuild(rows...).Services), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
		t.Errorf("another order of rows gives others: %s", d)
	}
	rows = append(rows, asking("newcomer", 100))
	next := addressesOf(rebuild(rows...).Services)
	for name, list := range got {
		if !slices.Equal(list, next[name]) {
			t.Errorf("a newcomer moves %s from %v to %v", name, list, next[name])
		}
	}
}

// Who gets addresses, and which.
func TestWhoGetsAutomaticAddresses(t *testing.T) {
	t.Parallel()
	with := func(s *model.Service, addrs ...string) *model.Service {
		for _, a := range addrs {
			s.Addresses = append(s.Addresses, netip.MustParsePrefix(a))
		}
		return s
	}
	got := addressesOf(rebuild(
		asking("remembers", 5, "240.240.1.1", "2001:2::1"), asking("claims-too", 6, "240.240.1.1"), asking("other-range", 7, "10.9.9.9", "fd00::1"),
		with(entry(kube("c1"), "explicit"), "240.240.2.2/32", "240.240.3.0/24"), asking("taken", 1, "240.240.2.2", "240.240.3.7"),
		asking("both", 1), with(entry(kube("c2"), "both"), "10.0.0.1/32"),
		asking("native", 1), service(kube("c2"), "native"),
		entry(kube("c1"), "silent"), with(asking("stated", 1), "10.0.0.7/32"),
	).Services)
	text := map[string]string{}
	for name, list := range got {
		text[name] = fmt.Sprint(list)
	}
	for name, want := range map[string]string{
		"remembers": "[240.240.1.1 2001:2::1]", "other-range": "[10.9.9.9 fd00::1]", "explicit": "[240.240.2.2 240.240.3.0]", "both": "[10.0.0.1]", "native": "", "silent": "",
	} {
		if text[name] != want {
			t.Errorf("%s has %s, want %s", name, text[name], want)
		}
	}
	for _, name := range []string{"claims-too", "taken", "stated"} {
		if list := got[name]; len(list) != 2 || list[0].As4()[2] <= 3 && list[0].As4()[2] > 0 || list[0] == netip.MustParseAddr("10.0.0.7") {
			t.Errorf("%s has %v", name, list)
		}
	}
}

// Incident 90: two names fall on one place, so that the younger has another. The older one goes: the younger keeps what its
// source remembers, and nobody else is touched.
func TestIncident90AutomaticAddressesStay(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		old, young := colliding(t)
		k := kube("c1")
		r := registry(k, asking(old, 1), asking(young, 2), asking("bystander", 3))
		h.Attach(r)
		h.start()
		h.quiet()
		had := addressesOf(slices.Collect(h.Current().Services()))
		s := asking(young, 2, had[young][0].String(), had[young][1].String())
		r.Put(keyOf(s), s)
		h.quiet()
		h.deltas = nil
		r.Delete(rowOf(asking(old, 1)))
		h.quiet()
		now := addressesOf(slices.Collect(h.Current().Services()))
		if !slices.Equal(now[young], had[young]) || !slices.Equal(now["bystander"], had["bystander"]) {
			t.Errorf("%v becomes %v", had, now)
		}
		if len(h.deltas) != 1 || !slices.Equal(h.deltas[0].Shape, []string{host(old)}) {
			t.Errorf("%+v", h.deltas)
		}
	})
}

// colliding finds two names of which each alone has the IPv4 address that the other has alone.
func colliding(t *testing.T) (a, b string) {
	t.Helper()
	at := map[netip.Addr]string{}
	for i := range 5000 {
		name := fmt.Sprint("n", i)
		addr := aggregate.AutomaticAddress("ns", host(name))
		if at[addr] != "" {
			return at[addr], name
		}
		at[addr] = name
	}
	t.Fatal("no names fall on one place")
	return "", ""
}

// An ExternalName Service stands for the service of the name, through others like it; not for what is outside the mesh,
// nor in a circle.
func TestAliases(t *testing.T) {
	t.Parallel()
	c1 := kube("c1")
	alias := func(name, of string) *model.Service {
		return service(c1, name, func(s *model.Service) { s.AliasOf, s.Resolution, s.External = of, model.DNSLB, true })
	}
	b := rebuild(service(c1, "a"), alias("x", host("a")), alias("y", host("x")), alias("out", "example.com"), alias("p", host("q")), alias("q", host("p")), alias("self", host("self")),
		virtual("ns", "v", 0, &networking.VirtualService{Hosts: []string{"v"}, Http: []*networking.HTTPRoute{to("y", 0), to("a", 0), to("out", 0)}}))
	got := map[string]string{}
	for _, v := range b.Services {
		got[v.Shape.Name] = v.Shape.Alias
		for _, x := range v.Shape.Aliases {
			got[v.Shape.Name] += fmt.Sprint(" ", x.Namespace, "/", x.Host, x.Export.Public)
		}
	}
	want := map[string]string{"a": " ns/" + host("x") + "true ns/" + host("y") + "true", "x": host("a"), "y": host("a"), "out": "", "p": "", "q": "", "self": ""}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{host("a"), host("out")}, destinationHosts(b.VirtualServices[0])); d != "" {
		t.Error(d)
	}
}

// Other names follow what they stand for: it and they are what changes.
func TestAliasesChange(t *testing.T) {
	inBubble(t, aggregate.Options{}, func(h *hub) {
		c1 := kube("c1")
		alias := service(c1, "x", func(s *model.Service) { s.AliasOf, s.Resolution = host("a"), model.DNSLB })
		r := registry(c1, alias, service(c1, "b"), virtual("ns", "v", 0, &networking.VirtualService{Hosts: []string{"b"}, Http: []*networking.HTTPRoute{to("x", 0)}}))
		h.Attach(r)
		h.start()
		h.quiet()
		a := service(c1, "a")
		for i, do := range []func(){func() { r.Put(keyOf(a), a) }, func() { r.Delete(rowOf(a)) }} {
			h.deltas = nil
			do()
			h.quiet()
			if len(h.deltas) != 1 || !slices.Equal(h.deltas[0].Shape, []string{host("a"), host("b"), host("x")}) {
				t.Errorf("%d: %+v", i, h.deltas)
			}
			want := []string{host("a"), ""}[i]
			if got := h.service("x").Shape.Alias; got != want {
				t.Errorf("%d: x stands for %q, want %q", i, got, want)
			}
		}
	})
}

// Several ServiceEntries of one host are one service: the oldest decides what only one can, ports and
// endpoints are those of all, and round-robin DNS has the oldest's first name.
func TestEntriesOfOneHost(t *testing.T) {
	t.Parallel()
	c1 := kube("c1")
	entryOf := func(name string, created int64, resolution model.Resolution, ports []model.Port, names ...string) []model.Object {
		s := entry(c1, "a", func(s *model.Service) {
			s.Resolution, s.Ports, s.Created, s.Source.Object.Name = resolution, ports, time.Unix(created, 0), name
		})
		e := &model.Endpoints{Host: s.Host, Namespace: "ns", Source: s.Source}
		for _, n := range names {
			e.Endpoints = append(e.Endpoints, model.Endpoint{
				Addr: model.Addr{Cluster: "c1", Host: n, AddrPort: netip.AddrPortFrom(netip.Addr{}, 80)}, PortName: ports[0].Name, Health: model.Healthy, Source: &e.Source,
			})
		}
		return []model.Object{s, e}
	}
	hostsBehind := func(v *pushcontext.ServiceView, portName string) (out []string) {
		for _, l := range v.Port(portName) {
			for _, e := range l.Endpoints {
				out = append(out, e.Addr.Host)
			}
		}
		return out
	}
	for name, tc := range map[string]struct {
		resolution model.Resolution
		want       []string
	}{
		"all answers": {model.DNSLB, []string{"a.example", "b.example", "z.example"}}, "round robin": {model.DNSRoundRobin, []string{"z.example"}},
	} {
		rows := slices.Concat(entryOf("young", 2, tc.resolution, []model.Port{port("web", 80), port("other", 81)}, "a.example"),
			entryOf("old", 1, tc.resolution, []model.Port{port("http", 80)}, "z.example", "b.example"))
		v := rebuilt(t, "a", rows...)
		if d := cmp.Diff(tc.want, hostsBehind(v, "http")); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		if got := fmt.Sprint(v.Shape.Ports); got != fmt.Sprint([]model.Port{port("http", 80), port("other", 81)}) {
			t.Errorf("%s: ports %s", name, got)
		}
	}
}
