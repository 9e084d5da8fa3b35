package client_test

import (
	"maps"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/conformance"
	"github.com/isthmus-mesh/isthmus/mcp"
	"github.com/isthmus-mesh/isthmus/mcp/client"
	"github.com/isthmus-mesh/isthmus/mcp/mcptest"
)

// quick are times for tests that do not look at them.
var quick = client.Timing{Retry: time.Millisecond, RetryMax: 20 * time.Millisecond}

// source is a server with a ServiceEntry for each service.
type source struct {
	server  *mcptest.Server
	cluster model.ClusterID
	world   conformance.World
}

func (s *source) Registry() model.Registry {
	return client.New(client.Options{Name: s.cluster, Addresses: []string{"server:15010"}, Timing: quick, Dial: s.server.Dial})
}

func (s *source) Set(w conformance.World) {
	for name := range s.world {
		if _, stays := w[name]; !stays {
			s.server.Delete("ServiceEntry", conformance.Namespace+"/"+name)
		}
	}
	for name, svc := range w {
		s.server.Set("ServiceEntry", entry(conformance.Namespace, name, svc.Port, svc.Addresses...))
	}
	s.world = maps.Clone(w)
}

func (s *source) Cut()     { s.server.Down() }
func (s *source) Restore() { s.server.Up() }

// entry is a ServiceEntry for the host that is called as it is.
func entry(namespace, name string, port uint16, addresses ...string) mcp.Resource {
	se := &networking.ServiceEntry{
		Hosts: []string{name}, Location: networking.ServiceEntry_MESH_INTERNAL, Resolution: networking.ServiceEntry_STATIC,
		Ports: []*networking.ServicePort{{Number: uint32(port), Name: "http", Protocol: "HTTP"}},
	}
	for _, a := range addresses {
		se.Endpoints = append(se.Endpoints, &networking.WorkloadEntry{Address: a})
	}
	return resource(namespace, name, se)
}

func resource(namespace, name string, spec proto.Message) mcp.Resource {
	body, err := anypb.New(spec)
	if err != nil {
		panic(err)
	}
	return mcp.Resource{Namespace: namespace, Name: name, Body: body}
}

func TestConformance(t *testing.T) {
	for name, fault := range map[string]func(*mcptest.Faults){
		"delta":              func(f *mcptest.Faults) {},
		"state of the world": func(f *mcptest.Faults) { f.NoDelta = true },
	} {
		t.Run(name, func(t *testing.T) {
			conformance.Run(t, conformance.Harness{New: func(t *testing.T, cluster model.ClusterID) conformance.Source {
				s := mcptest.Start(t)
				s.Misbehave(fault)
				return &source{server: s, cluster: cluster}
			}})
		})
	}
}
