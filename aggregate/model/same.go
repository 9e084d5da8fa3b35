package model

import (
	"reflect"
	"slices"

	"google.golang.org/protobuf/proto"
)

// SameRow reports whether two rows differ in nothing but the revision and time of their sources.
func SameRow(a, b Object) bool {
	switch a := a.(type) {
	case *Service:
		b, ok := b.(*Service)
		if !ok {
			return false
		}
		x, y := *a, *b
		x.Source, y.Source = timeless(x.Source), timeless(y.Source)
		return reflect.DeepEqual(x, y)
	case *Workload:
		b, ok := b.(*Workload)
		if !ok {
			return false
		}
		x, y := *a, *b
		x.Source, y.Source = timeless(x.Source), timeless(y.Source)
		return reflect.DeepEqual(x, y)
	case *Endpoints:
		b, ok := b.(*Endpoints)
		return ok && sameEndpoints(a, b)
	case *Config:
		b, ok := b.(*Config)
		return ok && sameConfig(a, b)
	}
	return false
}

func sameConfig(a, b *Config) bool {
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

func timeless(s Source) Source {
	return Source{Shard: s.Shard, Object: s.Object}
}

func sameEndpoints(a, b *Endpoints) bool {
	return a.Host == b.Host && a.Namespace == b.Namespace && timeless(a.Source) == timeless(b.Source) &&
		slices.EqualFunc(a.Endpoints, b.Endpoints, sameEndpoint) &&
		slices.EqualFunc(a.LeftOut, b.LeftOut, func(x, y LeftOut) bool {
			x.Source, y.Source = Source{}, Source{}
			return x == y
		})
}

// identity is the comparable part of an endpoint.
type identity struct {
	addr                        Addr
	port, network, tls, account string
	node, hostname              string
	health                      Health
	mtls, otherMTLS             MTLS
	weight                      float64
	part                        uint16
	locality                    Locality
	workload                    ObjectKey
}

func identify(e *Endpoint) identity {
	return identity{
		addr: e.Addr, port: e.PortName, network: e.Network, tls: e.TLSMode, account: e.ServiceAccount, node: e.Node,
		hostname: e.Hostname, health: e.Health, mtls: e.MTLS, otherMTLS: e.OtherMTLS, weight: e.Weight, part: e.Part, locality: e.Locality, workload: e.Workload,
	}
}

func sameStatement(a, b *Source) bool {
	return a == b || a != nil && b != nil && timeless(*a) == timeless(*b)
}

func sameEndpoint(a, b Endpoint) bool {
	return identify(&a) == identify(&b) && a.Labels.Equal(b.Labels) && a.Alternatives.Equal(b.Alternatives) && sameStatement(a.MTLSSource, b.MTLSSource)
}
