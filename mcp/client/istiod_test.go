package client_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/conformance"
	"github.com/isthmus-mesh/isthmus/mcp/client"
	"github.com/isthmus-mesh/isthmus/mcp/mcptest"
	"github.com/isthmus-mesh/isthmus/test/env"
)

var servers env.Pool

func upstream(name string, port int, addresses string) string {
	return `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: ` + name + `, namespace: shop, labels: {team: pay}}
spec:
  hosts: [` + name + `.example.com]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{name: http, number: ` + itoa(port) + `, protocol: HTTP}]
  endpoints: [` + addresses + `]
`
}

const routes = `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: pay, namespace: shop}
spec:
  hosts: [pay.example.com]
  http: [{route: [{destination: {host: pay.example.com}}], timeout: 3s}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: pay, namespace: shop}
spec: {host: pay.example.com, trafficPolicy: {tls: {mode: DISABLE}}}
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: odd, namespace: shop}
spec: {configPatches: []}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: shop}
spec: {mtls: {mode: STRICT}}
`

// What an istiod reads from its API server arrives as rows; while it is away nothing goes, and what was deleted
// meanwhile goes when it is back. Incident 76, with a real config server.
func TestIncident76RealIstiodRestarts(t *testing.T) {
	if testing.Short() {
		t.Skip("runs an API server and an istiod")
	}
	c := servers.Take(t, 1)[0]
	c.Apply(t, upstream("pay", 80, "{address: 10.1.0.1}"), upstream("mail", 25, "{address: 10.1.0.2}"), routes, env.App("shop/cart", 80, "", "10.1.0.9"))
	i := c.Istiod(t)
	for name, plain := range map[string]bool{"delta": false, "state of the world": true} {
		t.Run(name, func(t *testing.T) {
			c.Apply(t, upstream("mail", 25, "{address: 10.1.0.2}"))
			r := run(t, client.Options{Name: "upstream", Addresses: []string{i.Address}, NoDelta: plain, Log: slog.Default()})
			r.host("pay.example.com", "10.1.0.1")
			r.host("mail.example.com", "10.1.0.2")
			r.state(model.StateLive)
			r.config("VirtualService", "shop/pay")
			r.config("DestinationRule", "shop/pay")
			r.config("EnvoyFilter", "shop/odd")
			r.config("PeerAuthentication", "shop/default")
			r.config("MeshConfig", "/mesh")
			r.noHost("cart.shop.svc.cluster.local") // a Service there: clusters are read from their API servers
			c.Apply(t, upstream("pay", 80, "{address: 10.1.0.1}, {address: 10.1.0.3}"))
			r.host("pay.example.com", "10.1.0.1", "10.1.0.3")
			i.Stop()
			r.state(model.StateStale)
			r.host("mail.example.com", "10.1.0.2")
			c.Delete(t, upstream("mail", 25, ""))
			c.Apply(t, upstream("pay", 80, "{address: 10.1.0.1}"))
			i.Start(t)
			r.state(model.StateLive)
			r.noHost("mail.example.com")
			r.host("pay.example.com", "10.1.0.1")
			r.config("VirtualService", "shop/pay")
			r.stop()
		})
	}
}

// realSource is an istiod with a ServiceEntry for each service in its API server. Its contact is lost on the way there.
type realSource struct {
	t       *testing.T
	cluster *env.Cluster
	istiod  *env.Istiod
	name    model.ClusterID
	world   conformance.World

	mu    sync.Mutex
	cut   bool       // guarded by mu
	conns []net.Conn // guarded by mu
}

func (s *realSource) Registry() model.Registry {
	return unrevised{client.New(client.Options{Name: s.name, Addresses: []string{s.istiod.Address}, Timing: quick, Dial: s.dial})}
}

// unrevised tells rows without the revisions of their objects: a row keeps the one that made it (see kube.Store), so the service
// of an entry whose endpoints have changed has an older one than where the entry is read for the first time.
type unrevised struct{ model.Registry }

func (u unrevised) Run(ctx context.Context, out model.Sink) error {
	return u.Registry.Run(ctx, unrevisedSink{out})
}

type unrevisedSink struct{ model.Sink }

func (u unrevisedSink) Replace(full *model.ShardState) {
	b := model.NewShardBuilder()
	for k, o := range full.Rows() {
		b.Add(k.Key, unrevise(o))
	}
	u.Sink.Replace(b.Build())
}

func (u unrevisedSink) Put(evs ...model.Event) {
	out := slices.Clone(evs)
	for i := range out {
		out[i].Obj = unrevise(out[i].Obj)
	}
	u.Sink.Put(out...)
}

func unrevise(o model.Object) model.Object {
	switch o := o.(type) {
	case *model.Service:
		c := *o
		c.Source.Revision = ""
		return &c
	case *model.Endpoints:
		c := *o
		c.Source.Revision = ""
		return &c
	case *model.Config:
		c := *o
		c.Source.Revision = ""
		return &c
	}
	return o
}

func (s *realSource) dial(ctx context.Context, address string) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut {
		return nil, mcptest.ErrDown
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err == nil {
		s.conns = append(s.conns, c)
	}
	return c, err
}

func (s *realSource) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = true
	for _, c := range s.conns {
		_ = c.Close() // it may be closed already
	}
	s.conns = nil
}

func (s *realSource) Restore() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = false
}

func (s *realSource) Set(w conformance.World) {
	s.t.Helper()
	for name := range s.world {
		if _, stays := w[name]; !stays {
			s.cluster.Delete(s.t, serviceEntry(name, conformance.Service{Port: 1}))
		}
	}
	for name, svc := range w {
		if old, known := s.world[name]; !known || old.Port != svc.Port || !slices.Equal(old.Addresses, svc.Addresses) {
			s.cluster.Apply(s.t, serviceEntry(name, svc))
		}
	}
	s.world = maps.Clone(w)
}

// serviceEntry is one for the host that is called as it is.
func serviceEntry(name string, svc conformance.Service) string {
	return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  hosts: [%[1]s]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{name: http, number: %[3]d, protocol: HTTP}]
  endpoints: [%[4]s]
`, name, conformance.Namespace, svc.Port, endpoints(svc.Addresses))
}

func endpoints(addresses []string) string {
	out := make([]string, len(addresses))
	for i, a := range addresses {
		out[i] = "{address: " + a + "}"
	}
	return strings.Join(out, ", ")
}

func TestConformanceOfARealIstiod(t *testing.T) {
	if testing.Short() {
		t.Skip("runs API servers and istiods")
	}
	sources := map[model.ClusterID]*realSource{} // they outlive the cases, which look for goroutines that they leave
	for i, c := range servers.Take(t, 2) {
		name := model.ClusterID(fmt.Sprint("c", i+1))
		sources[name] = &realSource{cluster: c, istiod: c.Istiod(t), name: name, world: conformance.World{"warm": {}}}
	}
	conformance.Run(t, conformance.Harness{New: func(t *testing.T, name model.ClusterID) conformance.Source {
		s := sources[name]
		s.t = t
		s.Restore()
		s.Set(conformance.World{})
		return s
	}})
}
