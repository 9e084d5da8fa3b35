package main

import (
	"net"
	"time"

	"github.com/isthmus-mesh/isthmus/test/bench/fleet"
	"github.com/isthmus-mesh/isthmus/test/bench/floor"
)

// floorServer is the process that only copies bytes.
type floorServer struct {
	profiler
	server   *floor.Server
	material floor.Material
}

// Load starts to serve.
func (f *floorServer) Load(s Setup, out *Loaded) error {
	begin := time.Now()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	f.material, f.server = s.Material, floor.New(s.Material)
	go func() { _ = f.server.Serve(l) }() // ends with the process
	*out = Loaded{Addr: l.Addr().String(), Took: time.Since(begin)}
	return nil
}

// Change sends one assignment, or several in one response: coalesced as well as can be.
func (f *floorServer) Change(c Change, at *int64) error {
	body := f.material.Bodies[fleet.EndpointURL]
	time.Sleep(time.Duration(max(0, c.Count-1)) * c.Every)
	*at = time.Now().UnixNano()
	f.server.Push(fleet.EndpointURL, floor.First(body, max(1, c.Count)), c.Marker)
	return nil
}

// Churn does nothing: the floor is measured at rest.
func (f *floorServer) Churn(int, *int) error { return nil }

// Create sends what a service adds: in delta a cluster and its assignment, in SotW all clusters; and
// the largest route table, since a table is sent whole, or the largest virtual host where these are sent on their own.
func (f *floorServer) Create(c Create, at *int64) error {
	clusters, endpoints := f.material.Bodies[fleet.ClusterURL], f.material.Bodies[fleet.EndpointURL]
	if f.material.Delta {
		clusters = floor.First(clusters, 1)
	}
	*at = time.Now().UnixNano()
	f.server.Push(fleet.ClusterURL, clusters, c.Marker)
	f.server.Push(fleet.EndpointURL, floor.First(endpoints, 1), c.Marker)
	routes := fleet.RouteURL
	if len(f.material.Bodies[fleet.VirtualHostURL]) > 0 {
		routes = fleet.VirtualHostURL
	}
	f.server.Push(routes, largest(f.material.Bodies[routes]), c.Marker)
	return nil
}

// Usage reads what the process has used.
func (f *floorServer) Usage(collect bool, out *Usage) (err error) {
	*out, err = usage(collect)
	return err
}

func largest(b []byte) (best []byte) {
	for len(b) > 0 {
		one := floor.First(b, 1)
		if len(one) == 0 {
			break
		}
		if len(one) > len(best) {
			best = one
		}
		b = b[len(one):]
	}
	return best
}
