package consul_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/conformance"
	"github.com/isthmus-mesh/isthmus/clusters/consul"
	"github.com/isthmus-mesh/isthmus/test/env"
)

// source is a Consul server, behind a front, as a source of the suite. A service without addresses is one with an instance that is in
// maintenance.
type source struct {
	*env.Front
	t      *testing.T
	id     model.ClusterID
	server *env.Consul
	spec   api.RegistrySpec
	world  conformance.World
}

func specOf(address string, more ...func(*api.RegistrySpec)) api.RegistrySpec {
	s := api.RegistrySpec{Provider: api.Consul, Addresses: []string{address}, Limits: &api.Limits{RequestsPerSecond: 1000}}
	for _, m := range more {
		m(&s)
	}
	return s.Effective(conformance.Namespace)
}

func (s *source) Registry() model.Registry {
	r, err := consul.New(consul.Options{Name: s.id, Spec: s.spec})
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// Set implements conformance.Source.
func (s *source) Set(w conformance.World) {
	s.t.Helper()
	for name, sv := range w {
		old := s.world[name]
		for _, a := range idsOf(old) {
			if !slices.Contains(idsOf(sv), a) {
				s.remove(name, a)
			}
		}
		for _, a := range idsOf(sv) {
			if _, had := s.world[name]; !had || old.Port != sv.Port || !slices.Contains(idsOf(old), a) {
				s.register(name, a, sv.Port)
			}
		}
	}
	for name, sv := range s.world {
		if _, stays := w[name]; !stays {
			for _, a := range idsOf(sv) {
				s.remove(name, a)
			}
		}
	}
	s.world = maps.Clone(w)
}

// none is the instance that is in maintenance.
const none = "192.0.2.1"

func idsOf(s conformance.Service) []string {
	if s.Port != 0 && len(s.Addresses) == 0 {
		return []string{none}
	}
	return s.Addresses
}

func (s *source) register(name, address string, port uint16) {
	checks := []any{map[string]any{"Node": "n-" + address, "CheckID": name, "Status": "passing", "ServiceID": name, "ServiceName": name}}
	if address == none {
		checks = append(checks, map[string]any{"Node": "n-" + address, "CheckID": "_service_maintenance:" + name, "Status": "critical", "ServiceID": name})
	}
	s.server.Put(s.t, "/v1/catalog/register", map[string]any{
		"Node": "n-" + address, "Address": address, "Service": map[string]any{"ID": name, "Service": name, "Port": port}, "Checks": checks,
	}, nil)
}

func (s *source) remove(name, address string) {
	s.server.Put(s.t, "/v1/catalog/deregister", map[string]any{"Node": "n-" + address, "ServiceID": name}, nil)
}

func conform(t *testing.T, more ...func(*api.RegistrySpec)) {
	servers := map[model.ClusterID]*env.Consul{"c1": env.StartConsul(t, env.ConsulOptions{}), "c2": env.StartConsul(t, env.ConsulOptions{})}
	conformance.Run(t, conformance.Harness{New: func(t *testing.T, id model.ClusterID) conformance.Source {
		s := &source{Front: env.NewFront(t, servers[id].URL), t: t, id: id, server: servers[id]}
		s.spec = specOf(s.URL, more...)
		var nodes []struct{ Node string }
		if err := s.server.Get(t.Context(), "/v1/catalog/nodes", &nodes); err != nil {
			t.Fatal(err)
		}
		for _, n := range nodes {
			if n.Node != "server-dc1" {
				s.server.Put(t, "/v1/catalog/deregister", map[string]any{"Node": n.Node}, nil)
			}
		}
		return s
	}})
}

func TestConformance(t *testing.T) { conform(t) }

// Every service is read on demand: what no check shows is known after the refresh interval.
func TestConformanceBeyondTheLimitOfWatches(t *testing.T) {
	conform(t, func(s *api.RegistrySpec) {
		s.Limits.Concurrency = 1
		s.Consul = &api.ConsulSpec{RefreshInterval: &metav1.Duration{Duration: 2 * time.Second}}
	})
}
