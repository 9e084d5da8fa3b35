// Package floor is the least that an ADS server can cost: it copies bytes that were encoded before.
// It knows no mesh, merges nothing, waits for no acknowledgement and skips the names in requests.
// Whatever a hub does comes on top, so its figures are best read as multiples of these.
package floor

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// Material is what the floor serves.
type Material struct {
	Delta  bool
	Bodies map[string][]byte // by type URL: the resources of a response as they are encoded in it
	// Light is how many streams, the first ones, are answered with one resource of each type: they
	// are there to be pushed to. In SotW they get all clusters, for the names in their requests.
	Light int
}

// Server serves one Material to any number of streams.
type Server struct {
	material Material
	grpc     *grpc.Server
	nonce    atomic.Uint64
	opened   atomic.Int64

	mu      sync.Mutex
	streams map[*stream]struct{} // guarded by mu
}

// outbox is how many pushes may wait at a stream. More are made only if it does not read.
const outbox = 1024

type stream struct{ out chan *message }

const window = 1 << 20

// New makes a server of the material.
func New(m Material) *Server {
	s := &Server{material: m, streams: map[*stream]struct{}{}}
	s.grpc = grpc.NewServer(grpc.ForceServerCodecV2(codec{}), grpc.MaxRecvMsgSize(1<<30), grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window))
	name := "StreamAggregatedResources"
	if m.Delta {
		name = "DeltaAggregatedResources"
	}
	s.grpc.RegisterService(&grpc.ServiceDesc{ServiceName: "envoy.service.discovery.v3.AggregatedDiscoveryService", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{
		{StreamName: name, ServerStreams: true, ClientStreams: true, Handler: func(_ any, ss grpc.ServerStream) error { return s.serve(ss) }},
	}}, nil)
	return s
}

// Serve serves until Stop.
func (s *Server) Serve(l net.Listener) error { return s.grpc.Serve(l) }

// Stop ends all streams.
func (s *Server) Stop() { s.grpc.Stop() }

// Push sends the body to every stream as resources of the type. The marker goes along in a field
// that no receiver knows.
func (s *Server) Push(typeURL string, body []byte, marker string) {
	m := s.message(typeURL, body, marker)
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.streams {
		select {
		case st.out <- m:
		default: // it does not read, and will be missed
		}
	}
}

func (s *Server) serve(ss grpc.ServerStream) error {
	st := &stream{out: make(chan *message, outbox)}
	s.mu.Lock()
	s.streams[st] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.streams, st)
		s.mu.Unlock()
	}()
	go s.read(ss, st)
	for {
		select {
		case m := <-st.out:
			if err := ss.SendMsg(m); err != nil {
				return err
			}
		case <-ss.Context().Done():
			return ss.Context().Err()
		}
	}
}

// read answers the first request for each type with all there is.
func (s *Server) read(ss grpc.ServerStream, st *stream) {
	answered, light := map[string]bool{}, s.opened.Add(1) <= int64(s.material.Light)
	for {
		q := request{delta: s.material.Delta}
		if ss.RecvMsg(&q) != nil {
			return
		}
		if q.typeURL == "" || answered[q.typeURL] {
			continue
		}
		answered[q.typeURL] = true
		select {
		case st.out <- s.message(q.typeURL, s.body(q.typeURL, light), ""):
		case <-ss.Context().Done():
			return
		}
	}
}

func (s *Server) body(typeURL string, light bool) []byte {
	b := s.material.Bodies[typeURL]
	if light && (s.material.Delta || typeURL != clusterURL) {
		return First(b, 1)
	}
	return b
}

// First gives the first n resources of a body.
func First(body []byte, n int) []byte {
	size := 0
	for ; n > 0 && size < len(body); n-- {
		_, _, m := protowire.ConsumeField(body[size:])
		if m < 0 {
			break
		}
		size += m
	}
	return body[:size]
}

const clusterURL = "type.googleapis.com/envoy.config.cluster.v3.Cluster"

// Field numbers of discovery.proto.
const (
	responseVersion, responseType, responseNonce = 1, 4, 5
	unknownField                                 = 1000
	sotwType, deltaType                          = 4, 2
)

// message is a response on the wire: a small head, and bytes that all streams share.
type message struct{ parts mem.BufferSlice }

func (s *Server) message(typeURL string, body []byte, marker string) *message {
	n := fmt.Sprint(s.nonce.Add(1))
	var b []byte
	for _, f := range []struct {
		num protowire.Number
		val string
	}{{responseVersion, n}, {responseType, typeURL}, {responseNonce, n}, {unknownField, marker}} {
		if f.val != "" {
			b = protowire.AppendString(protowire.AppendTag(b, f.num, protowire.BytesType), f.val)
		}
	}
	return &message{parts: mem.BufferSlice{mem.SliceBuffer(b), mem.SliceBuffer(body)}}
}

type codec struct{}

func (codec) Name() string { return "proto" }

func (codec) Marshal(v any) (mem.BufferSlice, error) { return v.(*message).parts, nil }

func (codec) Unmarshal(data mem.BufferSlice, v any) error { return v.(*request).read(data) }
