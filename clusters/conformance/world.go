package conformance

import (
	"maps"
	"slices"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Namespace is where all services of a World are, for sources that have namespaces.
const Namespace = "ns"

// World is what a source holds, in no provider's terms: services by name.
type World map[string]Service

// Service is one service with one port.
type Service struct {
	Port      uint16   // of the service and of its endpoints
	Addresses []string // IPs of the endpoints, all healthy
}

// Source is a source of facts that a test controls. All methods are called by one goroutine and
// report faults on the test they were made for.
type Source interface {
	// Registry makes a new instance that reads the source. Every instance has the same key.
	Registry() model.Registry
	// Set makes the source hold exactly the world, by the smallest change it can make.
	Set(World)
}

// Cutter is a source whose contact can be lost.
type Cutter interface {
	Cut()     // from now on the source can't be reached
	Restore() // undoes Cut
}

// Failer is a source whose registries give up on demand: each run that there is now ends with the error.
type Failer interface{ Fail(error) }

// Harness describes a provider to the suite.
type Harness struct {
	// New makes an empty source of a cluster; each is a source of its own. What it needs to clean up it
	// registers with t.Cleanup.
	New func(t *testing.T, cluster model.ClusterID) Source
}

func (w World) clone() World {
	out := maps.Clone(w)
	for n, s := range out {
		s.Addresses = slices.Clone(s.Addresses)
		out[n] = s
	}
	return out
}

// equal compares services and sets of addresses.
func (w World) equal(o World) bool {
	return maps.EqualFunc(w, o, func(a, b Service) bool {
		x, y := slices.Sorted(slices.Values(a.Addresses)), slices.Sorted(slices.Values(b.Addresses))
		return a.Port == b.Port && slices.Equal(x, y)
	})
}

// worldOf reads rows back. Endpoints without a service row are not part of the world.
func worldOf(rows map[model.RowKey]model.Object) World {
	w := World{}
	hosts := map[string]string{}
	for _, o := range rows {
		if s, ok := o.(*model.Service); ok {
			sv := Service{}
			if len(s.Ports) > 0 {
				sv.Port = s.Ports[0].Number
			}
			w[s.Name], hosts[s.Namespace+"/"+s.Host] = sv, s.Name
		}
	}
	for _, o := range rows {
		e, ok := o.(*model.Endpoints)
		if !ok {
			continue
		}
		name, known := hosts[e.Namespace+"/"+e.Host]
		if !known {
			continue
		}
		s := w[name]
		for i := range e.Endpoints {
			s.Addresses = append(s.Addresses, e.Endpoints[i].Addr.AddrPort.Addr().String())
		}
		slices.Sort(s.Addresses)
		s.Addresses = slices.Compact(s.Addresses)
		w[name] = s
	}
	return w
}
