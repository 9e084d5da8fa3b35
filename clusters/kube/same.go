package kube

import (
	"reflect"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// sameRow reports whether two rows differ in nothing but the revision and time of their sources.
func sameRow(a, b model.Object) bool {
	switch a := a.(type) {
	case *model.Service:
		b, ok := b.(*model.Service)
		if !ok {
			return false
		}
		x, y := *a, *b
		x.Source, y.Source = timeless(x.Source), timeless(y.Source)
		return reflect.DeepEqual(x, y)
	case *model.Workload:
		b, ok := b.(*model.Workload)
		if !ok {
			return false
		}
		x, y := *a, *b
		x.Source, y.Source = timeless(x.Source), timeless(y.Source)
		return reflect.DeepEqual(x, y)
	case *model.Endpoints:
		b, ok := b.(*model.Endpoints)
		return ok && sameEndpoints(a, b)
	case *model.Config:
		b, ok := b.(*model.Config)
		return ok && sameConfig(a, b)
	}
	return false
}

func sameConfig(a, b *model.Config) bool {
	return a.Kind == b.Kind && a.Namespace == b.Namespace && a.Name == b.Name && a.NotServed == b.NotServed &&
		slices.Equal(a.NotServedFields, b.NotServedFields) && slices.Equal(a.Findings, b.Findings) && a.Refused == b.Refused &&
		a.Generation == b.Generation && a.Labels.Equal(b.Labels) && a.Created.Equal(b.Created) && timeless(a.Source) == timeless(b.Source) &&
		sameSpec(a.Spec, b.Spec)
}

func sameSpec(a, b any) bool {
	x, ok := a.(proto.Message)
	y, both := b.(proto.Message)
	if ok && both {
		return proto.Equal(x, y)
	}
	return reflect.DeepEqual(a, b)
}

func timeless(s model.Source) model.Source {
	return model.Source{Shard: s.Shard, Object: s.Object}
}

func sameEndpoints(a, b *model.Endpoints) bool {
	return a.Host == b.Host && a.Namespace == b.Namespace && timeless(a.Source) == timeless(b.Source) &&
		slices.EqualFunc(a.Endpoints, b.Endpoints, sameEndpoint) &&
		slices.EqualFunc(a.LeftOut, b.LeftOut, func(x, y model.LeftOut) bool {
			x.Source, y.Source = model.Source{}, model.Source{}
			return x == y
		})
}

// identity is the comparable part of an endpoint.
type identity struct {
	addr                        model.Addr
	port, network, tls, account string
	node, hostname              string
	health                      model.Health
	mtls, otherMTLS             model.MTLS
	weight                      uint32
	locality                    model.Locality
	workload                    model.ObjectKey
}

func identify(e *model.Endpoint) identity {
	return identity{
		addr: e.Addr, port: e.PortName, network: e.Network, tls: e.TLSMode, account: e.ServiceAccount, node: e.Node,
		hostname: e.Hostname, health: e.Health, mtls: e.MTLS, otherMTLS: e.OtherMTLS, weight: e.Weight, locality: e.Locality, workload: e.Workload,
	}
}

func sameStatement(a, b *model.Source) bool {
	return a == b || a != nil && b != nil && timeless(*a) == timeless(*b)
}

func sameEndpoint(a, b model.Endpoint) bool {
	return identify(&a) == identify(&b) && a.Labels.Equal(b.Labels) && sameStatement(a.MTLSSource, b.MTLSSource)
}
