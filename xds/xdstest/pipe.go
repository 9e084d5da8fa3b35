package xdstest

import (
	"context"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/xds/wire"
)

// Stream is the client's end of an ADS stream. One goroutine may send while another receives.
type Stream interface {
	Send(proto.Message) error
	Recv(proto.Message) error
	// Close ends the stream from the client's side.
	Close()
}

// requestRoom is how many requests a Pipe holds: like a transport's window, enough that a client
// never blocks on a server that is sending.
const requestRoom = 4096

// Pipe is a stream in memory, without gRPC. The server's sending blocks until the client takes the
// message, so a client that does not receive stalls the server.
type Pipe struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	up     chan []byte
	down   chan *wire.Response
	served chan struct{}
	err    error // valid once served is closed
}

// NewPipe makes a pipe and serves its far end.
func NewPipe(ctx context.Context, p wire.Protocol, serve func(wire.Protocol, *PipeEnd) error) *Pipe {
	x := &Pipe{up: make(chan []byte, requestRoom), down: make(chan *wire.Response), served: make(chan struct{})}
	x.ctx, x.cancel = context.WithCancelCause(ctx)
	go func() {
		defer close(x.served)
		x.err = serve(p, &PipeEnd{x})
		x.cancel(fmt.Errorf("stream ended by the server: %w", x.err))
	}()
	return x
}

// Send encodes and passes a request.
func (x *Pipe) Send(m proto.Message) error {
	b, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	select {
	case x.up <- b:
		return nil
	case <-x.ctx.Done():
		return context.Cause(x.ctx)
	}
}

// Recv waits for a response.
func (x *Pipe) Recv(m proto.Message) error {
	select {
	case r := <-x.down:
		return proto.Unmarshal(r.Bytes(), m)
	case <-x.ctx.Done():
		return context.Cause(x.ctx)
	}
}

// TryRecv takes a response that the server is sending right now; it reports false if there is none.
func (x *Pipe) TryRecv(m proto.Message) bool {
	select {
	case r := <-x.down:
		return proto.Unmarshal(r.Bytes(), m) == nil
	default:
		return false
	}
}

// Close breaks the stream off and waits until the server has returned.
func (x *Pipe) Close() {
	x.cancel(io.EOF)
	<-x.served
}

// Err waits for the server to return and gives what it returned.
func (x *Pipe) Err() error {
	<-x.served
	return x.err
}

// PipeEnd is the server's end of a Pipe.
type PipeEnd struct{ x *Pipe }

// Context ends with the stream.
func (e *PipeEnd) Context() context.Context { return e.x.ctx }

// SendMsg takes a *wire.Response.
func (e *PipeEnd) SendMsg(m any) error {
	select {
	case e.x.down <- m.(*wire.Response):
		return nil
	case <-e.x.ctx.Done():
		return context.Cause(e.x.ctx)
	}
}

// RecvMsg fills a *wire.Request.
func (e *PipeEnd) RecvMsg(m any) error {
	select {
	case b := <-e.x.up:
		return m.(*wire.Request).Unmarshal(b)
	case <-e.x.ctx.Done():
		return context.Cause(e.x.ctx)
	}
}
