package xds_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds"
	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
	"github.com/isthmus-mesh/isthmus/xds/xdstest"
)

func (r *rig) link(register ...func(*grpc.Server)) *xdstest.Link {
	l := xdstest.NewLink(r.server, register...)
	r.Cleanup(l.Close)
	return l
}

func TestOverGRPC(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.mesh.Set(xdstest.Service{Host: "a.x", Namespace: "x", Ports: []uint16{80}, Endpoints: []string{"10.9.9.9"}})
	l := r.link()
	for i, p := range []wire.Protocol{wire.SotW, wire.Delta} {
		e := xdstest.NewEnvoy(p, node(i), func() (xdstest.Stream, error) { return l.Stream(t.Context(), p) })
		arrived := make(chan struct{}, 100)
		e.Trace = func(string) {
			select {
			case arrived <- struct{}{}:
			default:
			}
		}
		if err := e.Connect(); err != nil {
			t.Fatal(err)
		}
		for len(e.State()[gen.RouteURL]) == 0 {
			<-arrived
		}
		if v := e.Violations(); len(v) > 0 {
			t.Error(v)
		}
		e.Disconnect()
	}
}

// TestOtherServices: health and reflection use ordinary messages through the same codec.
func TestOtherServices(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	l := r.link(func(g *grpc.Server) {
		healthpb.RegisterHealthServer(g, health.NewServer())
		reflection.Register(g)
	})
	conn, err := l.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	h, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || h.Status != healthpb.HealthCheckResponse_SERVING {
		t.Fatal(h, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	got, err := s.Recv()
	if err != nil || !strings.Contains(got.String(), "AggregatedDiscoveryService") {
		t.Fatal(got, err)
	}
}

func metadata(t *testing.T, kv map[string]any) *structpb.Struct {
	t.Helper()
	m, err := structpb.NewStruct(kv)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	good := node(1)
	tests := map[string]struct {
		node *corev3.Node
		url  string
		sub  []string
		code codes.Code
		says string
	}{
		"no node":        {nil, gen.ClusterURL, nil, codes.InvalidArgument, "must have a node"},
		"empty id":       {&corev3.Node{}, gen.ClusterURL, nil, codes.InvalidArgument, "node id is empty"},
		"short id":       {&corev3.Node{Id: "sidecar~1.1.1.1"}, gen.ClusterURL, nil, codes.InvalidArgument, "2 parts"},
		"type":           {&corev3.Node{Id: "ztunnel~1.1.1.1~a.b~c"}, gen.ClusterURL, nil, codes.InvalidArgument, `type "ztunnel" is not served`},
		"ip":             {&corev3.Node{Id: "sidecar~nope~a.b~c"}, gen.ClusterURL, nil, codes.InvalidArgument, `"nope" is not an IP address`},
		"instance ips":   {&corev3.Node{Id: good.Id, Metadata: metadata(t, map[string]any{"CLUSTER_ID": "c1", "INSTANCE_IPS": "1.1.1.1,x"})}, gen.ClusterURL, nil, codes.InvalidArgument, `INSTANCE_IPS: "x"`},
		"cluster":        {&corev3.Node{Id: good.Id, Metadata: metadata(t, map[string]any{"CLUSTER_ID": "mars"})}, gen.ClusterURL, nil, codes.InvalidArgument, `cluster "mars", which this hub does not know; it knows c0, c1: check`},
		"type url":       {good, "type.googleapis.com/no.such.Thing", nil, codes.InvalidArgument, `"type.googleapis.com/no.such.Thing" is not known`},
		"too many names": {good, gen.EndpointURL, []string{"a", "b", "c", "d"}, codes.ResourceExhausted, "limit is 3"},
		"too large":      {good, gen.EndpointURL, []string{strings.Repeat("x", 5<<20)}, codes.ResourceExhausted, "larger than max"},
	}
	r := newRig(t, func(o *xds.Options) {
		o.MaxNames = 3
		o.KnownClusters = func() []model.ClusterID { return []model.ClusterID{"c0", "c1"} }
	})
	l := r.link()
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, p := range []wire.Protocol{wire.SotW, wire.Delta} {
				s, err := l.Stream(t.Context(), p)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				if p == wire.SotW {
					err = s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: tt.url, Node: tt.node, ResourceNames: tt.sub})
				} else {
					err = s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: tt.url, Node: tt.node, ResourceNamesSubscribe: tt.sub})
				}
				if err == nil {
					err = s.Recv(&discoveryv3.DeltaDiscoveryResponse{})
				}
				if status.Code(err) != tt.code || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("%s: got %v", p, err)
				}
			}
		})
	}
}

func TestNotReady(t *testing.T) {
	t.Parallel()
	s := xds.NewServer(xds.Options{Generators: xdstest.Generators(nil), Hub: pushcontext.NewHub(nil)})
	p := xdstest.NewPipe(t.Context(), wire.Delta, func(p wire.Protocol, e *xdstest.PipeEnd) error { return s.Serve(p, e) })
	if err := p.Err(); status.Code(err) != codes.Unavailable {
		t.Fatal(err)
	}
}

// TestManyNamesReconnect: a proxy that holds as many names as it may subscribe can also reconnect,
// which takes a request that names each twice.
func TestManyNamesReconnect(t *testing.T) {
	t.Parallel()
	const names = 100_000 // in 15 MB
	r := newRig(t)
	s, err := r.link().Stream(t.Context(), wire.Delta)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ask := &discoveryv3.DeltaDiscoveryRequest{Node: node(1), TypeUrl: gen.EndpointURL, InitialResourceVersions: map[string]string{}}
	for i := range names {
		n := fmt.Sprintf("outbound|8080||service-%d.a-namespace-%d.svc.cluster.local", i, i%50)
		ask.ResourceNamesSubscribe = append(ask.ResourceNamesSubscribe, n)
		ask.InitialResourceVersions[n] = "AAAAAAAAAAA"
	}
	if err := s.Send(ask); err != nil {
		t.Fatal(err)
	}
	m := &discoveryv3.DeltaDiscoveryResponse{}
	if err := s.Recv(m); err != nil || len(m.Resources) != names {
		t.Fatal(len(m.Resources), err)
	}
}

func TestNamespaceOfNodeID(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"sidecar~10.0.0.1~db-0.shop~shop.svc.cluster.local":    "shop",
		"sidecar~10.0.0.1~db.0.shop~shop.svc.cluster.local":    "shop", // a pod's name may have dots
		"sidecar~10.0.0.1~vm~billing.svc.cluster.local":        "billing",
		"router~10.0.0.1~gateway.edge~other.svc.cluster.local": "edge",
	} {
		r := newRig(t)
		s, err := r.link().Stream(t.Context(), wire.Delta)
		r.check(err)
		r.check(s.Send(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: id}, TypeUrl: gen.ClusterURL}))
		r.check(s.Recv(&discoveryv3.DeltaDiscoveryResponse{}))
		if got := r.server.Proxies()[0].Namespace; got != want {
			t.Errorf("%s is of namespace %q, want %q", id, got, want)
		}
		s.Close()
	}
}
