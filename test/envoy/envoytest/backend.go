package envoytest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Kind is a protocol that a Backend speaks.
type Kind int

// The protocols of a Backend. None is encrypted.
const (
	HTTP1 Kind = iota // HTTP/1.1, answering every path with an Answer in JSON
	HTTP2             // the same over HTTP/2 with prior knowledge
	GRPC              // the method EchoMethod and the standard health service
	TCP               // a line "NAME CLUSTER", then every byte back
)

func (k Kind) String() string {
	return [...]string{"HTTP1", "HTTP2", "GRPC", "TCP"}[k]
}

// closeLimit bounds how long Close waits for requests in flight.
const closeLimit = 5 * time.Second

// BackendOptions describe a Backend.
type BackendOptions struct {
	Kind Kind
	// Addr is "IP:PORT" or "unix://PATH" to listen on; default "127.0.0.1:0".
	Addr string
	// Name and Cluster are what it says of itself.
	Name, Cluster string
	// Namespace to listen in; nil is the caller's own.
	Namespace *Namespace
	// Handler answers instead of the default one (HTTP1 and HTTP2).
	Handler http.Handler
}

// Answer is what an HTTP or gRPC backend says about a request.
type Answer struct {
	Name    string      `json:"name"`    // of the backend
	Cluster string      `json:"cluster"` // of the backend
	Proto   string      `json:"proto"`   // as the backend saw it: "HTTP/1.1", "HTTP/2.0"
	Method  string      `json:"method"`
	Host    string      `json:"host"` // authority asked for
	Path    string      `json:"path"`
	From    string      `json:"from"` // peer address, "IP:PORT"
	Headers http.Header `json:"headers"`
}

// Backend is a running server.
type Backend struct {
	// Read-only after Serve.
	Name, Cluster string
	Addr          string // "IP:PORT", the port as chosen
	shutdown      func(context.Context) error

	served  sync.WaitGroup // the accept loop
	count   atomic.Int64
	closing sync.Once
	err     error // of closing
}

// StartBackend serves for the length of a test.
func StartBackend(t testing.TB, opts BackendOptions) *Backend {
	t.Helper()
	b, err := Serve(opts)
	if err != nil {
		t.Fatalf("start backend: %v", err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close backend %s: %v", b.Name, err)
		}
	})
	return b
}

// Serve runs a backend until Close. It listens when it returns.
func Serve(opts BackendOptions) (*Backend, error) {
	if opts.Addr == "" {
		opts.Addr = "127.0.0.1:0"
	}
	l, err := listenAt(opts)
	if err != nil {
		return nil, fmt.Errorf("backend %s: %w", opts.Name, err)
	}
	b := &Backend{Name: opts.Name, Cluster: opts.Cluster, Addr: l.Addr().String()}
	var serve func(net.Listener) error
	switch opts.Kind {
	case GRPC:
		serve, b.shutdown = b.grpcServer()
	case TCP:
		serve, b.shutdown = b.tcpServer()
	default:
		serve, b.shutdown = b.httpServer(opts)
	}
	b.served.Go(func() {
		// The accept loop ends with an error when, and only when, it is closed.
		_ = serve(l)
	})
	return b, nil
}

// listenAt opens an address, or "unix://PATH"; a path "@NAME" is a name that no file stands for.
func listenAt(opts BackendOptions) (net.Listener, error) {
	if path, ok := strings.CutPrefix(opts.Addr, "unix://"); ok {
		return net.Listen("unix", path)
	}
	return opts.Namespace.Listen(opts.Addr)
}

// Requests counts what was asked so far: HTTP requests, gRPC calls other than
// health checks, or TCP connections.
func (b *Backend) Requests() int { return int(b.count.Load()) }

// Close stops accepting, gives requests in flight a few seconds to end, cuts
// the rest, and returns when every goroutine is gone. TCP connections are cut
// at once, since they have no end of their own.
func (b *Backend) Close() error {
	b.closing.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
		defer cancel()
		b.err = b.shutdown(ctx)
		b.served.Wait()
	})
	return b.err
}

func (b *Backend) httpServer(opts BackendOptions) (serve func(net.Listener) error, shutdown func(context.Context) error) {
	answer := opts.Handler
	if answer == nil {
		answer = http.HandlerFunc(b.answerHTTP)
	}
	var protocols http.Protocols
	protocols.SetHTTP1(opts.Kind == HTTP1)
	protocols.SetUnencryptedHTTP2(opts.Kind == HTTP2)
	server := &http.Server{
		Protocols:         &protocols,
		ReadHeaderTimeout: closeLimit,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b.count.Add(1)
			answer.ServeHTTP(w, r)
		}),
	}
	return server.Serve, func(ctx context.Context) error {
		if err := server.Shutdown(ctx); err != nil {
			return errors.Join(err, server.Close())
		}
		return nil
	}
}

func (b *Backend) answerHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	// A peer that went away is no news to a backend.
	_ = json.NewEncoder(w).Encode(Answer{
		Name: b.Name, Cluster: b.Cluster,
		Proto: r.Proto, Method: r.Method, Host: r.Host, Path: r.URL.Path,
		From: r.RemoteAddr, Headers: r.Header,
	})
}

func (b *Backend) tcpServer() (serve func(net.Listener) error, shutdown func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	var conns sync.WaitGroup
	serve = func(l net.Listener) error {
		stop := context.AfterFunc(ctx, func() { l.Close() })
		defer stop()
		for {
			conn, err := l.Accept()
			if err != nil {
				conns.Wait()
				return err
			}
			b.count.Add(1)
			conns.Go(func() { b.echo(ctx, conn) })
		}
	}
	return serve, func(context.Context) error { cancel(); return nil }
}

func (b *Backend) echo(ctx context.Context, conn net.Conn) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "%s %s\n", b.Name, b.Cluster); err != nil {
		return
	}
	// Either side may hang up at any time; that ends the echo.
	_, _ = io.Copy(conn, conn)
}
