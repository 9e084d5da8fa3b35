package envoytest

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// EchoMethod is the unary method of GRPC backends. It takes a
// google.protobuf.Empty and returns a google.protobuf.StringValue that holds an
// Answer in JSON, so no generated code is needed.
const EchoMethod = "/" + echoService + "/Echo"

const echoService = "isthmus.test.Echo"

// grpcServer serves the echo and health services.
func (b *Backend) grpcServer() (serve func(net.Listener) error, shutdown func(context.Context) error) {
	server := grpc.NewServer()
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: echoService,
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Echo", Handler: b.echoHandler}},
	}, b)
	healthpb.RegisterHealthServer(server, health.NewServer())
	return server.Serve, func(ctx context.Context) error {
		cut := context.AfterFunc(ctx, server.Stop)
		defer cut()
		server.GracefulStop()
		return ctx.Err()
	}
}

func (b *Backend) echoHandler(_ any, ctx context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	if err := dec(new(emptypb.Empty)); err != nil {
		return nil, err
	}
	b.count.Add(1)
	text, err := json.Marshal(b.answerGRPC(ctx))
	if err != nil {
		return nil, err
	}
	return wrapperspb.String(string(text)), nil
}

func (b *Backend) answerGRPC(ctx context.Context) Answer {
	a := Answer{
		Name: b.Name, Cluster: b.Cluster,
		Proto: "HTTP/2.0", Method: http.MethodPost, Path: EchoMethod, Headers: http.Header{},
	}
	if p, ok := peer.FromContext(ctx); ok {
		a.From = p.Addr.String()
	}
	md, _ := metadata.FromIncomingContext(ctx)
	for name, values := range md {
		if name == ":authority" {
			a.Host = values[0]
			continue
		}
		a.Headers[http.CanonicalHeaderKey(name)] = values
	}
	return a
}

// EchoGRPC calls EchoMethod at addr ("IP:PORT", dialled in ns) with the given
// authority, on a connection of its own.
func EchoGRPC(ctx context.Context, ns *Namespace, addr, authority string) (Answer, error) {
	conn, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority(authority),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return ns.Dial(ctx, addr)
		}))
	if err != nil {
		return Answer{}, fmt.Errorf("dial %s: %w", addr, err)
	}
	defer conn.Close()
	var (
		out    wrapperspb.StringValue
		answer Answer
	)
	if err := conn.Invoke(ctx, EchoMethod, &emptypb.Empty{}, &out); err != nil {
		return Answer{}, fmt.Errorf("call %s at %s: %w", authority, addr, err)
	}
	if err := json.Unmarshal([]byte(out.Value), &answer); err != nil {
		return Answer{}, fmt.Errorf("call %s at %s: %w", authority, addr, err)
	}
	return answer, nil
}
