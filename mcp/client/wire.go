package client

import (
	"context"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
)

// message is a response of either protocol.
type message struct {
	url, nonce, version string
	resources           []resource
	removed             []string
	full                bool // resources are all that there are
	bytes               int
}

type resource struct {
	name, version string // "" over streams of the state of the world
	body          *anypb.Any
}

// request is one of either protocol: the first of a type, an ACK, or a NACK with a reason.
type request struct {
	url, nonce string
	version    string            // accepted last, for streams of the state of the world
	initial    map[string]string // of a first request: what is held, by name; for delta streams
	refusal    string            // "" unless it is a NACK
}

// wire is a stream of either protocol.
type wire interface {
	send(request) error
	recv() (*message, error)
}

func detail(refusal string) *status.Status {
	if refusal == "" {
		return nil
	}
	return &status.Status{Code: int32(codes.InvalidArgument), Message: refusal}
}

// node is how istiod's own client presents itself, which servers know.
func (o *Options) node() *core.Node {
	text := structpb.NewStringValue
	return &core.Node{
		Id: "sidecar~" + o.Node.IP + "~" + o.Node.Pod + "." + o.Node.Namespace + "~" + o.Node.Namespace + ".svc." + o.DomainSuffix,
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			"GENERATOR": text("api"), "ISTIO_REVISION": text(o.Revision), "ISTIO_VERSION": text("65536.65536.65536"),
			"NAMESPACE": text(o.Node.Namespace),
		}},
		UserAgentName: "isthmus",
	}
}

// open opens a stream.
func (o *Options) open(ctx context.Context, conn *grpc.ClientConn, delta bool) (wire, error) {
	c := discovery.NewAggregatedDiscoveryServiceClient(conn)
	if delta {
		s, err := c.DeltaAggregatedResources(ctx)
		return &deltaWire{s, o.node()}, err
	}
	s, err := c.StreamAggregatedResources(ctx)
	return &fullWire{s, o.node()}, err
}

// deltaWire is a delta stream.
type deltaWire struct {
	discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	node *core.Node
}

func (w *deltaWire) send(r request) error {
	return w.Send(&discovery.DeltaDiscoveryRequest{
		Node: w.node, TypeUrl: r.url, ResponseNonce: r.nonce, InitialResourceVersions: r.initial, ErrorDetail: detail(r.refusal),
	})
}

func (w *deltaWire) recv() (*message, error) {
	in, err := w.Recv()
	if err != nil {
		return nil, err
	}
	m := &message{url: in.TypeUrl, nonce: in.Nonce, version: in.SystemVersionInfo, removed: in.RemovedResources, bytes: proto.Size(in)}
	for _, r := range in.Resources {
		m.resources = append(m.resources, resource{r.GetName(), r.GetVersion(), r.GetResource()})
	}
	return m, nil
}

// fullWire is a stream of the state of the world.
type fullWire struct {
	discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	node *core.Node
}

func (w *fullWire) send(r request) error {
	return w.Send(&discovery.DiscoveryRequest{
		Node: w.node, TypeUrl: r.url, ResponseNonce: r.nonce, VersionInfo: r.version, ErrorDetail: detail(r.refusal),
	})
}

func (w *fullWire) recv() (*message, error) {
	in, err := w.Recv()
	if err != nil {
		return nil, err
	}
	m := &message{url: in.TypeUrl, nonce: in.Nonce, version: in.VersionInfo, full: true, bytes: proto.Size(in)}
	for _, r := range in.Resources {
		m.resources = append(m.resources, resource{body: r})
	}
	return m, nil
}
