package xds_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isthmus-mesh/isthmus/xds"
	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
	"github.com/isthmus-mesh/isthmus/xds/xdstest"
)

func service(host string, generation int, ips ...string) xdstest.Service {
	return xdstest.Service{Host: host, Namespace: "x", Ports: []uint16{80}, Generation: generation, Endpoints: ips, Member: "c1"}
}

// only is the one connection of a server.
func only(t *testing.T, s *xds.Server) xds.Connection {
	t.Helper()
	cs := s.Connections()
	if len(cs) != 1 {
		t.Fatalf("%d connections, want 1", len(cs))
	}
	return cs[0]
}

func TestConfigDumpIsWhatTheProxyHolds(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p wire.Protocol) {
		r := newRig(t)
		r.mesh.Set(service("a.x", 1, "10.1.0.1"), service("b.x", 1))
		e := r.envoy(p, node(1))
		defer e.Disconnect()
		r.converged(1, e)
		d, err := r.server.ConfigDump(t.Context(), only(t, r.server).Connection)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(readable(joined(e.State())), readable(dumped(t, d))); diff != "" {
			t.Errorf("the dump differs from what the proxy holds (-proxy +dump):\n%s", diff)
		}
	})
}

// joined gives a proxy's state with virtual hosts in their tables.
func joined(state map[string]map[string]string) map[string]map[string]string {
	for name, body := range state[gen.RouteURL] {
		for _, host := range slices.Sorted(maps.Keys(state[gen.VirtualHostURL])) {
			if !strings.HasPrefix(host, name+"/") {
				continue
			}
			b := protowire.AppendTag([]byte(body), 2, protowire.BytesType)
			body = string(protowire.AppendString(b, state[gen.VirtualHostURL][host]))
		}
		state[gen.RouteURL][name] = body
	}
	delete(state, gen.VirtualHostURL)
	return state
}

// dumped gives the bodies in a dump by type and name.
func dumped(t *testing.T, d *adminv3.ConfigDump) map[string]map[string]string {
	t.Helper()
	out := map[string]map[string]string{}
	add := func(url string, body []byte, status adminv3.ClientResourceStatus) {
		if out[url] == nil {
			out[url] = map[string]string{}
		}
		name := xdstest.NameOf(url, body)
		if status != adminv3.ClientResourceStatus_ACKED {
			t.Errorf("%s is %s", name, status)
		}
		out[url][name] = string(body)
	}
	for _, any := range d.Configs {
		m, err := any.UnmarshalNew()
		if err != nil {
			t.Fatal(err)
		}
		switch m := m.(type) {
		case *adminv3.ClustersConfigDump:
			for _, x := range m.DynamicActiveClusters {
				add(x.Cluster.TypeUrl, x.Cluster.Value, x.ClientStatus)
			}
		case *adminv3.EndpointsConfigDump:
			for _, x := range m.DynamicEndpointConfigs {
				add(x.EndpointConfig.TypeUrl, x.EndpointConfig.Value, x.ClientStatus)
			}
		case *adminv3.ListenersConfigDump:
			for _, x := range m.DynamicListeners {
				add(x.ActiveState.Listener.TypeUrl, x.ActiveState.Listener.Value, x.ClientStatus)
			}
		case *adminv3.RoutesConfigDump:
			for _, x := range m.DynamicRouteConfigs {
				add(x.RouteConfig.TypeUrl, x.RouteConfig.Value, x.ClientStatus)
			}
		}
	}
	return out
}

func TestConfigDumpOfSomeTypes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.mesh.Set(service("a.x", 1, "10.1.0.1"))
		e := r.envoy(wire.Delta, node(1))
		defer e.Disconnect()
		r.converged(1, e)
		d, err := r.server.ConfigDump(t.Context(), only(t, r.server).Connection, "eds", "rds")
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Configs) != 2 || !d.Configs[0].MessageIs(&adminv3.EndpointsConfigDump{}) || !d.Configs[1].MessageIs(&adminv3.RoutesConfigDump{}) {
			t.Errorf("dump: %v", d)
		}
	})
}

func TestConfigDumpShowsRejections(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p wire.Protocol) {
		r := newRig(t)
		r.mesh.Set(service("a.x", 1, "10.1.0.1"), service("b.x", badGeneration+1, "10.1.0.2"))
		e := r.envoy(p, node(1), func(e *xdstest.Envoy) { e.Fault = picky })
		defer e.Disconnect()
		synctest.Wait()
		c := only(t, r.server)
		d, err := r.server.ConfigDump(t.Context(), c.Connection, "cds")
		if err != nil {
			t.Fatal(err)
		}
		clusters := &adminv3.ClustersConfigDump{}
		if err := d.Configs[0].UnmarshalTo(clusters); err != nil {
			t.Fatal(err)
		}
		for _, x := range clusters.DynamicActiveClusters {
			name := xdstest.NameOf(gen.ClusterURL, x.Cluster.Value)
			if bad := name == "outbound|80||b.x"; bad != (x.ErrorState != nil) || bad != (x.ClientStatus == adminv3.ClientResourceStatus_NACKED) {
				t.Errorf("%s: %s %v", name, x.ClientStatus, x.ErrorState)
			}
		}
		for _, ty := range c.Types {
			if bad := ty.Short == "cds"; bad != (ty.State() == xds.SyncError) {
				t.Errorf("%s is %s", ty.Short, ty.State())
			}
		}
	})
}

func TestConfigDumpOfAProxyThatLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		e := r.envoy(wire.Delta, node(1))
		synctest.Wait()
		c := only(t, r.server)
		e.Disconnect()
		synctest.Wait()
		if _, err := r.server.ConfigDump(t.Context(), c.Connection); !errors.Is(err, xds.ErrUnknownProxy) {
			t.Errorf("err = %v, want %v", err, xds.ErrUnknownProxy)
		}
	})
}

func TestConnectionsOfOneNodeAreToldApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a, b := r.envoy(wire.Delta, node(1)), r.envoy(wire.SotW, node(1))
		defer a.Disconnect()
		defer b.Disconnect()
		synctest.Wait()
		cs := r.server.Connections()
		if len(cs) != 2 || cs[0].ID != cs[1].ID || cs[0].Connection == cs[1].Connection {
			t.Fatalf("connections: %+v", cs)
		}
		if got := cs[0].Reader(); got.Cluster != "c1" || got.Namespace != "x" || len(got.Instances) != 1 {
			t.Errorf("reader: %+v", got)
		}
	})
}

func TestSyncStates(t *testing.T) {
	t.Parallel()
	for want, ty := range map[xds.SyncState]xds.TypeStatus{
		xds.SyncNotSent: {},
		xds.SyncStale:   {Sent: xds.Mark{Nonce: "2"}, Acked: xds.Mark{Nonce: "1"}},
		xds.SyncSynced:  {Sent: xds.Mark{Nonce: "2"}, Acked: xds.Mark{Nonce: "2"}},
		xds.SyncError:   {Sent: xds.Mark{Nonce: "2"}, Acked: xds.Mark{Nonce: "2"}, Rejected: []string{"x"}},
	} {
		if got := ty.State(); got != want {
			t.Errorf("%+v is %s, want %s", ty, got, want)
		}
	}
}
