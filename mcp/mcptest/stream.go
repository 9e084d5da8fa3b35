package mcptest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/isthmus-mesh/isthmus/mcp"
)

// stream is one of a client.
type stream struct {
	server *Server
	number int
	delta  bool
	token  string
	wake   chan struct{}

	// guarded by the server's mu
	subs  map[string]*sub
	order []string
	sent  int

	dropped bool
}

// sub is one type URL of a stream.
type sub struct {
	kind, url string
	nonce     string
	known     map[string]string // versions that the client has, of delta streams
	answered  bool
	dirty     bool
	again     bool // all is sent, whatever is known
}

func (st *stream) poke() {
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

// response is one of either protocol.
type response struct {
	url, nonce, version string
	resources           []*discovery.Resource
	removed             []string
}

// DeltaAggregatedResources implements the service.
func (s *Server) DeltaAggregatedResources(in discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	recv := func() (Request, *core.Node, error) {
		r, err := in.Recv()
		return Request{TypeURL: r.GetTypeUrl(), Nonce: r.GetResponseNonce(), Initial: r.GetInitialResourceVersions(), Refusal: r.GetErrorDetail().GetMessage()}, r.GetNode(), err
	}
	send := func(r response) error {
		return in.Send(&discovery.DeltaDiscoveryResponse{TypeUrl: r.url, Nonce: r.nonce, SystemVersionInfo: r.version, Resources: r.resources, RemovedResources: r.removed})
	}
	return s.stream(in.Context(), true, recv, send)
}

// StreamAggregatedResources implements the service.
func (s *Server) StreamAggregatedResources(in discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	recv := func() (Request, *core.Node, error) {
		r, err := in.Recv()
		return Request{TypeURL: r.GetTypeUrl(), Nonce: r.GetResponseNonce(), Version: r.GetVersionInfo(), Refusal: r.GetErrorDetail().GetMessage()}, r.GetNode(), err
	}
	send := func(r response) error {
		out := &discovery.DiscoveryResponse{TypeUrl: r.url, Nonce: r.nonce, VersionInfo: r.version}
		for _, res := range r.resources {
			out.Resources = append(out.Resources, res.Resource)
		}
		return in.Send(out)
	}
	return s.stream(in.Context(), false, recv, send)
}

// stream serves a stream. The reader ends after it, since only then does Recv.
func (s *Server) stream(ctx context.Context, delta bool, recv func() (Request, *core.Node, error), send func(response) error) error {
	st := &stream{server: s, delta: delta, wake: make(chan struct{}, 1), subs: map[string]*sub{}}
	if md, ok := metadata.FromIncomingContext(ctx); ok && len(md.Get("authorization")) > 0 {
		st.token = md.Get("authorization")[0]
	}
	if err := s.admit(st); err != nil {
		return err
	}
	defer s.leave(st)
	go st.read(recv)
	for {
		r, err := st.next()
		switch {
		case err != nil:
			return err
		case r != nil:
			if err := send(*r); err != nil {
				return err
			}
			continue
		}
		select {
		case <-st.wake:
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *Server) admit(st *stream) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch f := s.faults; {
	case st.delta && f.NoDelta, !st.delta && f.NoFull:
		return status.Error(codes.Unimplemented, "this protocol is not served")
	case f.Deny != nil:
		return f.Deny
	}
	s.opened++
	st.number = s.opened
	s.streams[st] = struct{}{}
	return nil
}

func (s *Server) leave(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, st)
}

func (st *stream) read(recv func() (Request, *core.Node, error)) {
	for {
		r, node, err := recv()
		if err != nil {
			st.poke()
			return
		}
		r.Stream, r.Delta, r.Node, r.Token = st.number, st.delta, node.GetId(), st.token
		st.server.note(st, r)
	}
}

// note takes a request.
func (s *Server) note(st *stream, r Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
	close(s.changed)
	s.changed = make(chan struct{})
	defer st.poke()
	x := st.subs[r.TypeURL]
	if x == nil { // the first of its type, whatever its nonce
		_, _, kind, _ := mcp.ParseTypeURL(r.TypeURL)
		x = &sub{kind: kind, url: r.TypeURL, known: maps.Clone(r.Initial), dirty: true}
		if x.known == nil {
			x.known = map[string]string{}
		}
		st.subs[r.TypeURL] = x
		st.order = append(st.order, r.TypeURL)
		return
	}
	if r.Nonce == x.nonce && r.Refusal != "" && s.faults.Again {
		x.dirty, x.again = true, true
	}
}

// next gives what is to be sent now, nil if nothing is.
func (st *stream) next() (*response, error) {
	s := st.server
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &s.faults
	switch {
	case st.dropped:
		return nil, status.Error(codes.Unavailable, "dropped")
	case f.Close && len(st.subs) > 0:
		return nil, status.Error(codes.Unavailable, "closed")
	case f.DropAfter > 0 && st.sent >= f.DropAfter:
		return nil, status.Error(codes.Unavailable, "broken off")
	case f.Paused:
		return nil, nil
	}
	for _, url := range st.order {
		x := st.subs[url]
		if !x.dirty || f.Mute[url] || !x.answered && f.Withhold[x.kind] {
			continue
		}
		x.dirty = false
		if r := st.respond(x); r != nil {
			s.nonces++
			x.answered, x.nonce, r.nonce = true, strconv.Itoa(s.nonces), strconv.Itoa(s.nonces)
			r.version = strconv.Itoa(s.index)
			st.sent++
			return r, nil
		}
	}
	return nil, nil
}

// respond makes the response for a type, nil if there is nothing to say. It is called with mu held.
func (st *stream) respond(x *sub) *response {
	s := st.server
	r := &response{url: x.url}
	if x.kind == mcp.KindMesh {
		if s.settings != nil {
			r.resources = append(r.resources, &discovery.Resource{Resource: s.settings})
		}
		return r
	}
	all := s.objects[x.kind]
	if s.faults.Empty || s.faults.Unknown[x.url] {
		all = nil
	}
	now := make(map[string]string, len(all))
	for _, name := range sortedNames(all) {
		o := all[name]
		now[name] = o.version
		if !st.delta || x.again || x.known[name] == "" || x.known[name] != o.version {
			r.resources = append(r.resources, &discovery.Resource{Name: name, Version: o.version, Resource: o.body})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(x.known)) {
		if _, there := now[name]; !there && st.delta {
			r.removed = append(r.removed, name)
		}
	}
	if !s.faults.Empty {
		for _, raw := range s.faults.Raw[x.kind] {
			r.resources = append(r.resources, &discovery.Resource{Name: raw.Name, Version: raw.Version, Resource: raw.Body})
		}
	}
	x.known, x.again = now, false
	if st.delta && x.answered && len(r.resources)+len(r.removed) == 0 {
		return nil
	}
	return r
}

func sortedNames(of map[string]object) []string { return slices.Sorted(maps.Keys(of)) }

func hash(a *anypb.Any) string {
	sum := sha256.Sum256(a.Value)
	return hex.EncodeToString(sum[:8]) + "-h"
}
