package xds_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/xds"
	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
	"github.com/isthmus-mesh/isthmus/xds/xdstest"
)

// on gives a service on a port.
func on(port uint16, host string) xdstest.Service {
	s := svc(host, 0)
	s.Ports = []uint16{port}
	return s
}

// tables subscribes to route tables and says what comes of it.
func (s *script) tables(subscribe, unsubscribe []string) {
	s.Helper()
	s.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: gen.RouteURL, ResourceNamesSubscribe: subscribe, ResourceNamesUnsubscribe: unsubscribe})
	if len(subscribe) > 0 {
		s.expect(gen.RouteURL, subscribe, nil)
	}
}

// hosts is a script of a proxy with a table of hosts.
func (r *rig) hosts(versions map[string]string, tables ...string) *script {
	r.Helper()
	s := r.script()
	s.send(&discoveryv3.DeltaDiscoveryRequest{Node: node(1), TypeUrl: gen.RouteURL, ResourceNamesSubscribe: tables})
	s.expect(gen.RouteURL, tables, nil)
	s.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: gen.VirtualHostURL, InitialResourceVersions: versions})
	return s
}

// A change of a host is that host alone, in one response for all that a commit brings, and a table without
// hosts is told so, for its listener waits for that.
func TestHostsOneByOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.mesh.Set(on(80, "a.x"), on(80, "b.x"), on(81, "c.x"))
		r.faults.Fail("vhds/81/c.x", false) // so there is nothing to send for 81
		s := r.hosts(nil, "80", "81")
		defer s.p.Close()
		s.expect(gen.VirtualHostURL, []string{"80/a.x", "80/b.x"}, []string{"81/none"})
		s.quiet()
		r.mesh.Set(on(80, "d.x"), on(81, "e.x"))
		s.expect(gen.VirtualHostURL, []string{"80/d.x", "81/e.x"}, nil)
		r.mesh.Delete(on(80, "a.x"))
		s.expect(gen.VirtualHostURL, nil, []string{"80/a.x"})
		r.mesh.Set(svc("b.x", 1)) // the same host
		s.quiet()
	})
}

// Hosts are for tables that the proxy has: behind each, again when it comes back, and taken back when it
// goes, or the proxy would say for ever that it has them.
func TestHostsFollowTheirTable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.mesh.Set(on(80, "a.x"), on(81, "b.x"))
		s := r.hosts(nil, "80")
		defer s.p.Close()
		s.expect(gen.VirtualHostURL, []string{"80/a.x"}, nil)
		s.quiet()
		for range 2 {
			s.tables([]string{"81"}, nil)
			s.expect(gen.VirtualHostURL, []string{"81/b.x"}, nil)
			s.tables(nil, []string{"81"})
			s.expect(gen.VirtualHostURL, nil, []string{"81/b.x"})
			s.quiet()
		}
		r.mesh.Set(on(81, "c.x"))
		s.quiet() // of a table that it does not have
		s.tables([]string{"81"}, nil)
		s.expect(gen.VirtualHostURL, []string{"81/b.x", "81/c.x"}, nil)
	})
}

// A host that an Envoy asks for on demand, because a request waits for it, is answered though there is none: with
// a resource that says so. A removal would not end the wait.
func TestHostsOnDemand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.mesh.Set(on(80, "a.x"))
		s := r.hosts(nil, "80")
		defer s.p.Close()
		s.expect(gen.VirtualHostURL, []string{"80/a.x"}, nil)
		s.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: gen.VirtualHostURL, ResourceNamesSubscribe: []string{"80/zzz.x"}})
		m := s.expect(gen.VirtualHostURL, []string{"80/zzz.x"}, nil)
		if x := m.Resources[0]; x.Resource != nil || !slices.Equal(x.Aliases, []string{"80/zzz.x"}) {
			t.Errorf("the answer is %v", x)
		}
		s.quiet()
		s.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: gen.VirtualHostURL, ResourceNamesSubscribe: []string{"80/a.x"}})
		s.expect(gen.VirtualHostURL, []string{"80/a.x"}, nil)
		r.mesh.Set(on(80, "zzz.x"))
		if m := s.expect(gen.VirtualHostURL, []string{"80/zzz.x"}, nil); m.Resources[0].Resource == nil {
			t.Errorf("a host that is there is answered with %v", m)
		}
		s.quiet()
	})
}

// What is worked out for proxies with all tables is not for one with some.
func TestHostsOfSomeTables(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.mesh.Set(on(80, "a.x"), on(81, "b.x"))
		for range 2 {
			s := r.hosts(nil, "80", "81")
			defer s.p.Close()
			s.expect(gen.VirtualHostURL, []string{"80/a.x", "81/b.x"}, nil)
			some := r.hosts(nil, "81")
			defer some.p.Close()
			some.expect(gen.VirtualHostURL, []string{"81/b.x"}, nil)
			some.quiet()
		}
	})
}

// A table that is given up and asked for again before the proxy has answered for its hosts is a new one.
func TestHostsOfATableThatCameBackMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.mesh.Set(on(80, "a.x"))
		s := r.hosts(nil, "80")
		defer s.p.Close()
		m, _ := s.next(false)
		s.tables(nil, []string{"80"})
		s.tables([]string{"80"}, nil)
		s.quiet()
		s.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: gen.VirtualHostURL, ResponseNonce: m.Nonce})
		s.expect(gen.VirtualHostURL, []string{"80/a.x"}, nil)
	})
}

// A proxy that comes back is sent the hosts that changed, told of those that are gone, of tables that it does
// not have too, and believed nothing of a table that is new to it.
func TestHostsAtAReconnect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.mesh.Set(on(80, "a.x"), on(80, "gone.x"), on(81, "b.x"))
		s := r.hosts(nil, "80", "81")
		m := s.expect(gen.VirtualHostURL, []string{"80/a.x", "80/gone.x", "81/b.x"}, nil)
		s.p.Close()
		versions := map[string]string{"82/old.x": "1"}
		for _, x := range m.Resources {
			versions[x.Name] = x.Version
		}
		r.mesh.Delete(on(80, "gone.x"))

		s = r.script()
		defer s.p.Close()
		s.send(&discoveryv3.DeltaDiscoveryRequest{Node: node(1), TypeUrl: gen.RouteURL, ResourceNamesSubscribe: []string{"80"}, InitialResourceVersions: map[string]string{"80": "stale"}})
		s.expect(gen.RouteURL, []string{"80"}, nil)
		s.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: gen.VirtualHostURL, InitialResourceVersions: versions})
		s.expect(gen.VirtualHostURL, nil, []string{"80/gone.x", "81/b.x", "82/old.x"})
		s.tables([]string{"81"}, nil)
		s.expect(gen.VirtualHostURL, []string{"81/b.x"}, nil)
	})
}

// A proxy that says that it has the hosts of a table that it has just got has lost them.
func TestHostsOfANewTableAreNotBelieved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.mesh.Set(on(80, "a.x"))
		s := r.hosts(nil, "80")
		m := s.expect(gen.VirtualHostURL, []string{"80/a.x"}, nil)
		s.p.Close()
		s = r.hosts(map[string]string{"80/a.x": m.Resources[0].Version}, "80") // the table is not among its versions
		defer s.p.Close()
		s.expect(gen.VirtualHostURL, []string{"80/a.x"}, nil)
	})
}

func refusal(message string) *statuspb.Status { return &statuspb.Status{Code: 13, Message: message} }

// A refused response was not applied at all, so whatever waits for it still does: tables without hosts are
// told so again, and so is what is gone. A refused table has none of its hosts.
func TestRefusedHosts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.mesh.Set(on(80, "a.x"), on(80, "b.x"), on(81, "c.x"))
		r.faults.Fail("vhds/81/c.x", false)
		s := r.hosts(nil, "80", "81")
		defer s.p.Close()
		m, _ := s.next(false)
		s.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: gen.VirtualHostURL, ResponseNonce: m.Nonce, ErrorDetail: refusal("Duplicate entry of domain")})
		m, names := s.next(false) // the first half
		if !slices.Equal(names, []string{"80/a.x"}) || !slices.Equal(m.RemovedResources, []string{"81/none"}) {
			t.Fatalf("after a refusal: %v", m)
		}
		s.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: gen.VirtualHostURL, ResponseNonce: m.Nonce, ErrorDetail: refusal("Duplicate entry of domain")})
		s.expect(gen.VirtualHostURL, []string{"80/b.x"}, []string{"81/none"})
		s.expect(gen.VirtualHostURL, []string{"80/a.x"}, nil) // something was accepted since
		s.quiet()
	})
}

// Nothing of a table is left to send: that it was refused does not keep its listener from starting.
func TestTableWhoseHostsAreAllRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.mesh.Set(on(80, "a.x"))
		s := r.hosts(nil, "80")
		defer s.p.Close()
		m, _ := s.next(false)
		s.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: gen.VirtualHostURL, ResponseNonce: m.Nonce, ErrorDetail: refusal("bad")})
		s.expect(gen.VirtualHostURL, nil, []string{"80/none"})
	})
}

// What is gone may be in the way of what is new: it is told with each attempt.
func TestRefusedHostsAndWhatIsGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.mesh.Set(on(80, "a.x"))
		s := r.hosts(nil, "80")
		defer s.p.Close()
		s.expect(gen.VirtualHostURL, []string{"80/a.x"}, nil)
		r.mesh.Delete(on(80, "a.x"))
		r.mesh.Set(on(80, "b.x"), on(80, "c.x"))
		for { // one commit or two
			m, names := s.next(false)
			if len(names) < 2 {
				s.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: gen.VirtualHostURL, ResponseNonce: m.Nonce, ErrorDetail: refusal("bad")})
				continue
			}
			s.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: gen.VirtualHostURL, ResponseNonce: m.Nonce, ErrorDetail: refusal("bad")})
			break
		}
		if m, _ := s.next(true); !slices.Contains(m.RemovedResources, "80/a.x") {
			t.Errorf("what is gone is not told again: %v", m)
		}
	})
}

// Only Envoys that take virtual hosts over ADS are sent them so, and nobody where that is turned off.
func TestWhoTakesHosts(t *testing.T) {
	t.Parallel()
	version := func(minor uint32) func(*corev3.Node) {
		return func(n *corev3.Node) {
			n.UserAgentName = "envoy"
			n.UserAgentVersionType = &corev3.Node_UserAgentBuildVersion{
				UserAgentBuildVersion: &corev3.BuildVersion{Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: minor}}}
		}
	}
	for name, c := range map[string]struct {
		protocol wire.Protocol
		edit     func(*corev3.Node)
		inline   bool
		takes    bool
	}{
		"new":        {wire.Delta, version(40), false, true},
		"unsaid":     {wire.Delta, func(*corev3.Node) {}, false, true},
		"old":        {wire.Delta, version(39), false, false},
		"sotw":       {wire.SotW, version(40), false, false},
		"turned off": {wire.Delta, version(40), true, false},
		"no Envoy":   {wire.Delta, func(n *corev3.Node) { n.UserAgentName = "gRPC Go" }, false, false},
		"router":     {wire.Delta, func(n *corev3.Node) { n.Id = strings.Replace(n.Id, "sidecar", "router", 1) }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, func(o *xds.Options) { o.InlineHosts = c.inline })
				r.mesh.Set(on(80, "a.x"))
				n := node(1)
				c.edit(n)
				e := r.envoy(c.protocol, n)
				defer e.Disconnect()
				synctest.Wait()
				var table routev3.RouteConfiguration
				if err := proto.Unmarshal([]byte(e.State()[gen.RouteURL]["80"]), &table); err != nil {
					t.Fatal(err)
				}
				if own := len(e.State()[gen.VirtualHostURL]); (table.Vhds != nil) != c.takes || (len(table.VirtualHosts) == 0) != c.takes || (own == 1) != c.takes {
					t.Errorf("the table is %v, with %d hosts on their own", &table, own)
				}
			})
		})
	}
}

// TestI7OneHost: of a thousand hosts, a change of one builds, sends and wakes for one, whoever has the rest.
func TestI7OneHost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		var all []xdstest.Service
		for i := range 1000 {
			all = append(all, on(80, "s"+strings.Repeat("0", i%7)+string(rune('a'+i%26))+"-"+time.Duration(i).String()+".x"))
		}
		r.mesh.Set(all...)
		const streams = 10
		for i := range streams {
			e := r.envoy(wire.Delta, node(i))
			defer e.Disconnect()
		}
		synctest.Wait()
		before := r.server.Counters()
		r.mesh.Set(on(80, "new.x"))
		synctest.Wait()
		after := r.server.Counters()
		for short, want := range map[string]uint64{"cds": 1, "eds": 1, "lds": 0, "rds": 0, "vhds": 1} {
			b, a := before.Types[short], after.Types[short]
			if a.Built-b.Built != want || a.Sent-b.Sent != streams*want {
				t.Errorf("%s: built %d, sent %d; want %d and %d", short, a.Built-b.Built, a.Sent-b.Sent, want, streams*want)
			}
		}
	})
}
