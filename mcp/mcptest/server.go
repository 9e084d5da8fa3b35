// Package mcptest is a server of MCP, the Mesh Configuration Protocol, for tests: it runs in the process, speaks delta and state
// of the world, and misbehaves on demand ([Faults]).
package mcptest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/isthmus-mesh/isthmus/mcp"
)

// Faults are what the server does wrong. They count from the next response on.
type Faults struct {
	NoDelta, NoFull bool            // the protocol is not implemented
	Close           bool            // a stream is closed at its first request
	DropAfter       int             // a stream breaks after so many responses; 0: never
	Withhold        map[string]bool // kinds whose first answer does not come
	Mute            map[string]bool // type URLs that are never answered
	Unknown         map[string]bool // type URLs that are answered as if there were nothing
	Raw             map[string][]Raw
	Again           bool  // what was refused is sent again at once
	Empty           bool  // every kind is empty
	Paused          bool  // nothing is sent
	Deny            error // why streams are refused
}

// Raw is a resource that is sent as it is, with those of a kind.
type Raw struct {
	Name, Version string
	Body          *anypb.Any
}

// Request is one that the server has got.
type Request struct {
	Stream  int // from 1
	Delta   bool
	TypeURL string
	Nonce   string
	Version string
	Initial map[string]string
	Refusal string // the reason of a NACK
	Node    string
	Token   string // the header authorization
}

// Server is a server with the resources that a test gives it. All methods are safe for use by several goroutines.
type Server struct {
	creds []grpc.ServerOption

	mu       sync.Mutex
	faults   Faults
	objects  map[string]map[string]object // by kind and "namespace/name"
	settings *anypb.Any
	index    int // version of the newest change
	hashed   bool
	nonces   int
	streams  map[*stream]struct{}
	opened   int
	requests []Request
	changed  chan struct{} // closed and renewed when a request comes
	listener net.Listener
	dialable *bufconn.Listener
	grpc     *grpc.Server
	running  sync.WaitGroup
}

type object struct {
	resource mcp.Resource
	version  string
	body     *anypb.Any
}

// New gives a server that is not running.
func New(opts ...grpc.ServerOption) *Server {
	return &Server{creds: opts, objects: map[string]map[string]object{}, streams: map[*stream]struct{}{}, changed: make(chan struct{})}
}

// Start runs a server in memory until the test ends; clients reach it with Dial.
func Start(t testing.TB) *Server {
	s := New()
	s.Up()
	t.Cleanup(s.Down)
	return s
}

// Listen runs a server at a port of this machine until the test ends, and gives its address.
func Listen(t testing.TB, opts ...grpc.ServerOption) (*Server, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return Serve(t, l, opts...), l.Addr().String()
}

// Serve runs a server at a listener until the test ends.
func Serve(t testing.TB, l net.Listener, opts ...grpc.ServerOption) *Server {
	s := New(opts...)
	s.serve(l, nil)
	t.Cleanup(s.Down)
	return s
}

// Up runs it again after Down, with all that it knows.
func (s *Server) Up() {
	b := bufconn.Listen(1 << 20)
	s.serve(b, b)
}

func (s *Server) serve(l net.Listener, b *bufconn.Listener) {
	g := grpc.NewServer(append(slices.Clone(s.creds), grpc.MaxRecvMsgSize(64<<20))...)
	discovery.RegisterAggregatedDiscoveryServiceServer(g, s)
	s.mu.Lock()
	s.listener, s.dialable, s.grpc = l, b, g
	s.mu.Unlock()
	s.running.Go(func() { _ = g.Serve(l) }) // ends with Stop
}

// Down ends all streams; nothing can be dialled any more.
func (s *Server) Down() {
	s.mu.Lock()
	g := s.grpc
	s.grpc, s.dialable = nil, nil
	s.mu.Unlock()
	if g != nil {
		g.Stop()
	}
	s.running.Wait()
}

// ErrDown is why a server can't be dialled.
var ErrDown = errors.New("the server is down")

// Dial connects to a server in memory, whatever the address.
func (s *Server) Dial(ctx context.Context, _ string) (net.Conn, error) {
	s.mu.Lock()
	b := s.dialable
	s.mu.Unlock()
	if b == nil {
		return nil, ErrDown
	}
	return b.DialContext(ctx)
}

// Set gives objects of a kind, new or changed.
func (s *Server) Set(kind string, rs ...mcp.Resource) {
	s.change(kind, func(of map[string]object) {
		for _, r := range rs {
			s.index++
			body, err := mcp.Encode(r)
			if err != nil {
				panic(fmt.Sprintf("mcptest: %v", err)) // a fault of the test
			}
			o := object{resource: r, version: strconv.Itoa(s.index), body: body}
			if s.hashed {
				o.version = hash(body)
			}
			of[r.Namespace+"/"+r.Name] = o
		}
	})
}

// Delete takes objects away, by "namespace/name".
func (s *Server) Delete(kind string, names ...string) {
	s.change(kind, func(of map[string]object) {
		for _, n := range names {
			delete(of, n)
		}
	})
}

// SetSettings gives the mesh-wide settings.
func (s *Server) SetSettings(m proto.Message) {
	a, err := anypb.New(m)
	if err != nil {
		panic(fmt.Sprintf("mcptest: %v", err))
	}
	s.change(mcp.KindMesh, func(map[string]object) { s.settings = a })
}

func (s *Server) change(kind string, do func(map[string]object)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects[kind] == nil {
		s.objects[kind] = map[string]object{}
	}
	do(s.objects[kind])
	s.touch(kind)
}

// touch has every stream look at a kind again, or at all if it is "". It is called with mu held.
func (s *Server) touch(kind string) {
	for st := range s.streams {
		for _, sub := range st.subs {
			sub.dirty = sub.dirty || kind != "" && sub.kind == kind
		}
		st.poke()
	}
}

// Push has every stream be told the kind again, though nothing has changed.
func (s *Server) Push(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.streams {
		for _, sub := range st.subs {
			if sub.kind == kind {
				sub.dirty, sub.again = true, true
			}
		}
		st.poke()
	}
}

// Misbehave changes the faults.
func (s *Server) Misbehave(do func(*Faults)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do(&s.faults)
	s.touch("")
}

// RestartIndex has versions begin at 1 again, in the order of names, as those of a server that counts since its start.
func (s *Server) RestartIndex() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index = 0
	for _, of := range s.objects {
		for _, name := range sortedNames(of) {
			s.index++
			o := of[name]
			o.version = strconv.Itoa(s.index)
			of[name] = o
		}
	}
}

// HashVersions makes the versions of what is set from now on hashes of the content.
func (s *Server) HashVersions() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hashed = true
}

// Drop ends the streams that there are; new ones are served.
func (s *Server) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.streams {
		st.dropped = true
		st.poke()
	}
}

// Requests are all that came so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Streams is how many there are now.
func (s *Server) Streams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// Await waits until the requests are as wanted.
func (s *Server) Await(t testing.TB, what string, ok func([]Request) bool) {
	t.Helper()
	for {
		s.mu.Lock()
		done, next := ok(slices.Clone(s.requests)), s.changed
		s.mu.Unlock()
		if done {
			return
		}
		select {
		case <-next:
		case <-t.Context().Done():
			t.Fatalf("%s: the test ended", what)
		}
	}
}
