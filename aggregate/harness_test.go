package aggregate_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/memory"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// settle is longer than any debounce window.
const settle = 3 * time.Second

func kube(c model.ClusterID) model.ShardKey {
	return model.ShardKey{Provider: model.ProviderKubernetes, Cluster: c}
}

// hub is a controller under test in a synctest bubble.
type hub struct {
	*aggregate.Controller
	*pushcontext.Hub
	t      *testing.T
	stop   context.CancelFunc
	done   chan error
	deltas []*pushcontext.Delta // read after synctest.Wait only
}

// inBubble runs f with fake time.
func inBubble(t *testing.T, o aggregate.Options, f func(*hub)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, o)
		f(h)
		h.finish()
	})
}

func newHub(t *testing.T, o aggregate.Options) *hub {
	h := &hub{t: t, done: make(chan error, 1)}
	h.Hub = pushcontext.NewHub(func(_ *pushcontext.PushContext, d *pushcontext.Delta) { h.deltas = append(h.deltas, d) })
	o.Hub = h.Hub
	h.Controller = aggregate.New(o)
	return h
}

// finish stops the controller and waits for it.
func (h *hub) finish() {
	h.t.Helper()
	h.stop()
	if err := <-h.done; err != nil {
		h.t.Errorf("Run: %v", err)
	}
}

func (h *hub) start() {
	ctx, cancel := context.WithCancel(h.t.Context())
	h.stop = cancel
	go func() { h.done <- h.Controller.Run(ctx) }()
	h.t.Cleanup(cancel)
}

// quiet waits until everything that was reported is published.
func (h *hub) quiet() *pushcontext.PushContext {
	time.Sleep(settle)
	synctest.Wait()
	return h.Current()
}

func host(name string) string { return name + ".ns.svc.cluster.local" }

func port(name string, n uint16) model.Port {
	return model.Port{Name: name, Number: n, Protocol: model.ProtocolHTTP}
}

func service(k model.ShardKey, name string, opts ...func(*model.Service)) *model.Service {
	s := &model.Service{
		Host: host(name), Namespace: "ns", Name: name, Ports: []model.Port{port("http", 80)},
		Source: model.Source{Shard: k, Object: model.ObjectKey{Kind: "Service", Namespace: "ns", Name: name}},
	}
	for _, o := range opts {
		o(s)
	}
	return s
}

func entry(k model.ShardKey, name string, opts ...func(*model.Service)) *model.Service {
	return service(k, name, append([]func(*model.Service){func(s *model.Service) {
		s.Source.Object.Kind = "ServiceEntry"
		s.Selector.Reach, s.Selector.Pods = model.AnyCluster, true
	}}, opts...)...)
}

func slice(k model.ShardKey, svc, name string, ips ...string) *model.Endpoints {
	e := &model.Endpoints{
		Host: host(svc), Namespace: "ns",
		Source: model.Source{Shard: k, Object: model.ObjectKey{Kind: "EndpointSlice", Namespace: "ns", Name: name}},
	}
	for _, ip := range ips {
		e.Endpoints = append(e.Endpoints, model.Endpoint{
			Addr:     model.Addr{Cluster: k.Cluster, AddrPort: netip.AddrPortFrom(netip.MustParseAddr(ip), 8080)},
			PortName: "http", Health: model.Healthy, Source: &e.Source,
		})
	}
	return e
}

func workload(k model.ShardKey, kind model.WorkloadKind, name, ip string, labels model.Labels) *model.Workload {
	w := &model.Workload{
		Kind: kind, Namespace: "ns", Name: name, Labels: labels, Health: model.Healthy,
		Source: model.Source{Shard: k, Object: model.ObjectKey{Kind: string(kind), Namespace: "ns", Name: name}},
	}
	w.Address.Cluster = k.Cluster
	if ip != "" {
		w.Address.AddrPort = netip.AddrPortFrom(netip.MustParseAddr(ip), 0)
	}
	return w
}

// keyOf is the row key that registries use by default.
func keyOf(o model.Object) string {
	switch o := o.(type) {
	case *model.Service:
		return o.Source.Object.String()
	case *model.Endpoints:
		return o.Source.Object.String()
	case *model.Workload:
		return o.Source.Object.String()
	case *model.Config:
		return o.Source.Object.String()
	}
	panic("unknown object")
}

func rowOf(o model.Object) model.RowKey { return model.RowKey{Kind: o.RowKind(), Key: keyOf(o)} }

// registry makes a synced registry with the rows.
func registry(k model.ShardKey, rows ...model.Object) *memory.Registry {
	r := memory.New(k)
	r.Replace(state(rows...))
	return r
}

func state(rows ...model.Object) *model.ShardState {
	b := model.NewShardBuilder()
	for _, o := range rows {
		b.Add(keyOf(o), o)
	}
	return b.Build()
}

func (h *hub) service(name string) *pushcontext.ServiceView {
	pc := h.Current()
	if pc == nil {
		return nil
	}
	return pc.Service(model.ServiceKey{Namespace: "ns", Host: host(name)})
}

// addrs lists a service's endpoints as "cluster/ip:port" behind a port name.
func addrs(v *pushcontext.ServiceView, portName string) []string {
	out := []string{}
	if v == nil {
		return out
	}
	for _, l := range v.Port(portName) {
		for _, e := range l.Endpoints {
			out = append(out, fmt.Sprintf("%s/%s", e.Addr.Cluster, e.Addr))
		}
	}
	return out
}
