package memory_test

import (
	"net/netip"
	"reflect"
	"testing"

	"go.uber.org/goleak"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/conformance"
	"github.com/isthmus-mesh/isthmus/clusters/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// source is a truth that several memory registries report.
type source struct {
	t    *testing.T
	key  model.ShardKey
	regs []*memory.Registry
	now  *model.ShardState
}

func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Harness{New: func(t *testing.T, cluster model.ClusterID) conformance.Source {
		return &source{t: t, key: model.ShardKey{Provider: model.ProviderMemory, Cluster: cluster}, now: model.NewShardBuilder().Build()}
	}})
}

func (s *source) Registry() model.Registry {
	r := memory.New(s.key)
	r.Replace(s.now)
	s.regs = append(s.regs, r)
	return r
}

func (s *source) Set(w conformance.World) {
	b := model.NewShardBuilder()
	for name, svc := range w {
		src := model.Source{Shard: s.key, Object: model.ObjectKey{Kind: "Service", Namespace: conformance.Namespace, Name: name}}
		b.Add(src.Object.String(), &model.Service{
			Host: name + ".test", Namespace: conformance.Namespace, Name: name, Source: src, Ports: []model.Port{{Name: "p", Number: svc.Port}},
		})
		e := &model.Endpoints{Host: name + ".test", Namespace: conformance.Namespace, Source: src}
		for _, a := range svc.Addresses {
			e.Endpoints = append(e.Endpoints, model.Endpoint{
				Addr: model.Addr{Cluster: s.key.Cluster, AddrPort: netip.AddrPortFrom(netip.MustParseAddr(a), svc.Port)}, PortName: "p", Health: model.Healthy,
			})
		}
		b.Add(src.Object.String(), e)
	}
	next := b.Build()
	for _, r := range s.regs {
		change(r, s.now, next)
	}
	s.now = next
}

// change reports the difference, row by row.
func change(r *memory.Registry, old, next *model.ShardState) {
	for k := range old.Rows() {
		if _, ok := next.Row(k); !ok {
			r.Delete(k)
		}
	}
	for k, o := range next.Rows() {
		if was, ok := old.Row(k); !ok || !reflect.DeepEqual(was, o) {
			r.Put(k.Key, o)
		}
	}
}

func (s *source) Fail(err error) {
	for _, r := range s.regs {
		r.Fail(err)
	}
}

func (s *source) Cut() {
	for _, r := range s.regs {
		r.Status(model.Status{State: model.StateStale, Err: "cut"})
	}
}

func (s *source) Restore() {
	for _, r := range s.regs {
		r.Status(model.Status{State: model.StateLive})
	}
}
