package lastgood_test

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/conformance"
	"github.com/isthmus-mesh/isthmus/clusters/lastgood"
	"github.com/isthmus-mesh/isthmus/clusters/memory"
)

// source is a truth that several registries report, all of them kept.
type source struct {
	*testing.T
	key   model.ShardKey
	store *lastgood.Store
	regs  []*memory.Registry
	now   *model.ShardState
}

// TestConformance: a registry that is kept is a registry.
func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Harness{New: func(t *testing.T, cluster model.ClusterID) conformance.Source {
		store, err := lastgood.Open(lastgood.Options{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		return &source{T: t, key: model.ShardKey{Provider: model.ProviderMemory, Cluster: cluster}, store: store, now: model.NewShardBuilder().Build()}
	}})
}

func (s *source) Registry() model.Registry {
	r := memory.New(s.key)
	r.Replace(s.now)
	s.regs = append(s.regs, r)
	return s.store.Wrap(r, lastgood.Terms{Restore: true})
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
		for k := range s.now.Rows() {
			if _, ok := next.Row(k); !ok {
				r.Delete(k)
			}
		}
		for k, o := range next.Rows() {
			if was, ok := s.now.Row(k); !ok || !reflect.DeepEqual(was, o) {
				r.Put(k.Key, o)
			}
		}
	}
	s.now = next
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
