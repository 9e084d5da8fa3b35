package envoy_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
	_ "github.com/isthmus-mesh/isthmus/xds/gen" // registers the types inside resources
)

// state is a proxy's configuration: resources by type and name, and the
// endpoints of its EDS clusters.
type state struct {
	resources map[string]proto.Message // "TYPE NAME"
	endpoints map[string]string        // cluster → sorted "IP:PORT/HEALTH/PRIORITY/REGION*WEIGHT"
	warming   []string
}

// parseState reads an admin config dump of an Envoy, or what the hub makes in
// that form.
func parseState(dump []byte) (*state, error) {
	var all adminv3.ConfigDump
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(dump, &all); err != nil {
		return nil, err
	}
	s := &state{resources: map[string]proto.Message{}, endpoints: map[string]string{}}
	for _, config := range all.Configs {
		m, err := config.UnmarshalNew()
		if err != nil {
			return nil, err
		}
		if err := s.section(m); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *state) section(m proto.Message) error {
	var errs []error
	switch m := m.(type) {
	case *adminv3.ClustersConfigDump:
		for _, c := range m.DynamicActiveClusters {
			errs = append(errs, add(s, "cluster", c.Cluster, (*clusterv3.Cluster).GetName))
		}
		for range m.DynamicWarmingClusters {
			s.warming = append(s.warming, "a cluster")
		}
	case *adminv3.ListenersConfigDump:
		for _, l := range m.DynamicListeners {
			if l.WarmingState != nil {
				s.warming = append(s.warming, l.Name)
			}
			if l.ActiveState != nil {
				errs = append(errs, add(s, "listener", l.ActiveState.Listener, (*listenerv3.Listener).GetName))
			}
		}
	case *adminv3.RoutesConfigDump:
		for _, r := range m.DynamicRouteConfigs {
			errs = append(errs, add(s, "route", r.RouteConfig, (*routev3.RouteConfiguration).GetName))
		}
	case *adminv3.EndpointsConfigDump:
		var all []*anypb.Any
		for _, e := range m.DynamicEndpointConfigs {
			all = append(all, e.EndpointConfig)
		}
		for _, e := range m.StaticEndpointConfigs { // of static clusters; the hub sends those of some
			all = append(all, e.EndpointConfig)
		}
		for _, e := range all {
			var cla endpointv3.ClusterLoadAssignment
			errs = append(errs, e.UnmarshalTo(&cla))
			s.endpoints[cla.ClusterName] = placesOf(&cla)
		}
	}
	return errors.Join(errs...)
}

func add[M interface {
	*T
	proto.Message
}, T any](s *state, kind string, config *anypb.Any, name func(M) string) error {
	var m M = new(T)
	if err := config.UnmarshalTo(m); err != nil {
		return err
	}
	s.resources[kind+" "+name(m)] = m
	return nil
}

// placesOf is an assignment without what Envoy shows in its own form.
func placesOf(cla *endpointv3.ClusterLoadAssignment) string {
	var out []string
	for _, l := range cla.Endpoints {
		for _, e := range l.LbEndpoints {
			a := e.GetEndpoint().GetAddress().GetSocketAddress()
			health := e.HealthStatus
			if health == corev3.HealthStatus_UNKNOWN {
				health = corev3.HealthStatus_HEALTHY // Envoy's words for endpoints of no stated health
			}
			out = append(out, fmt.Sprintf("%s/%s/%d/%s*%d", net.JoinHostPort(a.GetAddress(), strconv.Itoa(int(a.GetPortValue()))),
				health, l.Priority, l.GetLocality().GetRegion(), e.GetLoadBalancingWeight().GetValue()))
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// hidden is what Envoy's dumps leave out.
var hidden = protocmp.IgnoreFields(&tlsv3.TlsCertificate{}, "private_key")

// differences lists what an Envoy has that is not as the hub says.
func (hub *state) differences(envoy *state) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(hub.resources)) {
		got, want := envoy.resources[name], hub.resources[name]
		if got == nil {
			out = append(out, "it lacks "+name)
		} else if diff := cmp.Diff(want, got, protocmp.Transform(), hidden); diff != "" {
			out = append(out, name+" is not as the hub has it (-hub +envoy):\n"+diff)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(envoy.resources)) {
		if hub.resources[name] == nil {
			out = append(out, "it still has "+name)
		}
	}
	for cluster, want := range hub.endpoints {
		if got := envoy.endpoints[cluster]; got != want {
			out = append(out, fmt.Sprintf("%s has endpoints %q, want %q", cluster, got, want))
		}
	}
	for _, what := range envoy.warming {
		out = append(out, what+" is warming")
	}
	return out
}

// inSync is nil if the Envoy has exactly what the hub has for it.
func (p *proxy) inSync(ctx context.Context, hub *envoytest.Hub) error {
	dump, err := hub.Get(ctx, hub.URL+"/debug/config_dump?proxyID="+url.QueryEscape(p.Name+"."+namespace))
	if err != nil {
		return err
	}
	want, err := parseState(dump)
	if err != nil {
		return fmt.Errorf("the hub's dump: %w", err)
	}
	if dump, err = p.Admin(ctx, "GET", "/config_dump?include_eds"); err != nil {
		return err
	}
	got, err := parseState(dump)
	if err != nil {
		return fmt.Errorf("the Envoy's dump: %w", err)
	}
	if len(want.resources) == 0 {
		return errors.New("the hub has nothing for it")
	}
	if diff := want.differences(got); len(diff) > 0 {
		return errors.New(strings.Join(diff, "\n"))
	}
	return nil
}

// settles waits until the Envoy has exactly what the hub has for it.
func (p *proxy) settles(t testing.TB, hub *envoytest.Hub) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var last error // before the time was up
	if err := envoytest.Poll(ctx, func() error {
		err := p.inSync(ctx, hub)
		if ctx.Err() == nil {
			last = err
		}
		return err
	}); err != nil {
		t.Errorf("%s is not as the hub says: %v", p.Name, last)
	}
}
