package xdstest

import (
	"context"
	"errors"
	"net"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/xds"
	"github.com/isthmus-mesh/isthmus/xds/wire"
)

// linkBuffer is the room of one in-memory connection, like a socket's buffer.
const linkBuffer = 256 << 10

// Link is a gRPC server for an xDS server, reached over in-memory connections.
type Link struct {
	grpc *grpc.Server
	lis  *bufconn.Listener
	done chan struct{}
}

// NewLink serves s, and whatever else is registered, until Close.
func NewLink(s *xds.Server, register ...func(*grpc.Server)) *Link {
	l := &Link{grpc: grpc.NewServer(s.GRPCServerOptions()...), lis: bufconn.Listen(linkBuffer), done: make(chan struct{})}
	s.Register(l.grpc)
	for _, f := range register {
		f(l.grpc)
	}
	go func() {
		defer close(l.done)
		_ = l.grpc.Serve(l.lis) // ends with Close
	}()
	return l
}

// Dial opens a connection of its own.
func (l *Link) Dial(opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	opts = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.lis.DialContext(ctx) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1 << 30)),
	}, opts...)
	return grpc.NewClient("passthrough:///link", opts...)
}

// Stream opens an ADS stream on a connection of its own.
func (l *Link) Stream(ctx context.Context, p wire.Protocol) (Stream, error) {
	conn, err := l.Dial()
	if err != nil {
		return nil, err
	}
	return Open(ctx, conn, p)
}

// Open opens an ADS stream on a connection, which is closed with the stream, or if there is none.
func Open(ctx context.Context, conn *grpc.ClientConn, p wire.Protocol) (Stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &linkStream{conn: conn, cancel: cancel}
	client := discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
	var err error
	if p == wire.Delta {
		s.ClientStream, err = client.DeltaAggregatedResources(ctx)
	} else {
		s.ClientStream, err = client.StreamAggregatedResources(ctx)
	}
	if err != nil {
		cancel()
		return nil, errors.Join(err, conn.Close())
	}
	return s, nil
}

// Close ends all connections and waits for the server.
func (l *Link) Close() {
	l.grpc.Stop()
	<-l.done
}

type linkStream struct {
	grpc.ClientStream
	conn   *grpc.ClientConn
	cancel context.CancelFunc
}

func (s *linkStream) Send(m proto.Message) error { return s.SendMsg(m) }
func (s *linkStream) Recv(m proto.Message) error { return s.RecvMsg(m) }

func (s *linkStream) Close() {
	s.cancel()
	_ = s.conn.Close()
}
