package fleet

import (
	"context"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
)

const (
	service     = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
	sotwMethod  = service + "StreamAggregatedResources"
	deltaMethod = service + "DeltaAggregatedResources"
)

// outgoing is how many requests may wait to be sent. At most one response per type is unanswered,
// so few ever do.
const outgoing = 64

// proxyStream is one stream's state; it belongs to the goroutine that receives.
type proxyStream struct {
	fleet *Fleet
	proxy int
	out   chan *frame
	ended <-chan struct{} // the sender has given up
	asked map[string]*names
	acked map[string]head // last response of each type
	node  []byte          // until it has been sent
	types int             // how many it has to have
}

func (f *Fleet) stream(ctx context.Context, proxy int, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithCancel(ctx)
	method := sotwMethod
	if f.opts.Delta {
		method = deltaMethod
	}
	st, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		cancel()
		return err
	}
	ended := make(chan struct{})
	s := &proxyStream{fleet: f, proxy: proxy, out: make(chan *frame, outgoing), ended: ended, asked: map[string]*names{}, acked: map[string]head{}, types: 4, node: f.opts.Proxies[proxy].Node}
	go func() {
		defer close(ended)
		f.send(st, s.out)
	}()
	defer func() {
		cancel()
		close(s.out)
		<-ended
	}()
	return s.run(st)
}

// send is apart from receiving, so that neither side waits for the other: the requests of a SotW
// client are larger than a window.
func (f *Fleet) send(st grpc.ClientStream, out <-chan *frame) {
	for m := range out {
		f.traffic.sent.Add(int64(m.data.Len()))
		if st.SendMsg(m) != nil {
			return // RecvMsg has the reason
		}
	}
}

func (s *proxyStream) run(st grpc.ClientStream) error {
	s.ask(ClusterURL, nil)
	for {
		var m frame
		if err := st.RecvMsg(&m); err != nil {
			return err
		}
		err := s.receive(&m, time.Now())
		m.data.Free()
		if err != nil {
			return err
		}
	}
}

func (s *proxyStream) receive(m *frame, at time.Time) error {
	f := s.fleet
	f.traffic.messages.Add(1)
	f.traffic.received.Add(int64(m.data.Len()))
	h, err := readHead(m.data, f.opts.Delta)
	if err != nil {
		return err
	}
	f.sight(s.proxy, h.typeURL, m.data, at)
	_, again := s.acked[h.typeURL]
	s.acked[h.typeURL] = h
	s.request(request{head: h, names: s.list(h.typeURL)})
	if !again {
		f.record(h.typeURL, m)
	}
	s.follow(h, m, again)
	if len(s.acked) == s.types {
		f.markReady(s.proxy, at)
	}
	return nil
}

// follow asks for what a response made known.
func (s *proxyStream) follow(h head, m *frame, again bool) {
	switch h.typeURL {
	case ClusterURL:
		s.depend(EndpointURL, h, m, again)
	case EndpointURL:
		if !again {
			s.ask(ListenerURL, nil)
		}
	case ListenerURL:
		s.depend(RouteURL, h, m, again)
	case RouteURL:
		s.hosts(m)
	}
}

// hosts asks for virtual hosts, once, if a table says that it has them on their own.
func (s *proxyStream) hosts(m *frame) {
	delta := s.fleet.opts.Delta
	if m == nil || !delta || s.types > 4 {
		return
	}
	k := catalogKey{class: s.fleet.opts.Proxies[s.proxy].Class, typeURL: RouteURL}
	if n := s.fleet.catalog.learn(k, func() []string { return dependents(RouteURL, m.data.Materialize(), delta) }); len(n.list) > 0 {
		s.types++
		s.fleet.apart.Store(true)
		s.ask(VirtualHostURL, nil)
	}
}

// depend asks for the names of typeURL that a response of clusters or listeners brought.
func (s *proxyStream) depend(typeURL string, h head, m *frame, again bool) {
	delta := s.fleet.opts.Delta
	read := func() []string { return dependents(h.typeURL, m.data.Materialize(), delta) }
	if delta && again {
		if fresh := newNames(read()); len(fresh.list) > 0 {
			s.ask(typeURL, fresh)
		}
		return
	}
	k := catalogKey{class: s.fleet.opts.Proxies[s.proxy].Class, typeURL: h.typeURL, version: h.version}
	if delta {
		k.version = "" // all first responses are alike
	}
	n := s.fleet.catalog.learn(k, read)
	switch {
	case again && n == s.asked[typeURL]:
	case len(n.list) > 0:
		s.ask(typeURL, n)
	default:
		s.acked[typeURL] = head{} // nothing to wait for
		s.follow(head{typeURL: typeURL}, nil, again)
	}
}

func (s *proxyStream) list(typeURL string) []byte {
	if n := s.asked[typeURL]; n != nil && !s.fleet.opts.Delta {
		return n.encoded
	}
	return nil
}

// ask subscribes: in SotW to exactly these names, in delta to these beside the ones before.
func (s *proxyStream) ask(typeURL string, n *names) {
	q := request{head: head{typeURL: typeURL}}
	if n != nil {
		s.asked[typeURL] = n
		q.names = n.encoded
	}
	if !s.fleet.opts.Delta {
		q.head.version, q.head.nonce = s.acked[typeURL].version, s.acked[typeURL].nonce
	}
	s.request(q)
}

func (s *proxyStream) request(q request) {
	q.node, s.node = s.node, nil
	select {
	case s.out <- q.encode(s.fleet.opts.Delta):
	case <-s.ended:
	}
}

func (f *Fleet) record(typeURL string, m *frame) {
	if !f.opts.Record {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.recorded[typeURL] == nil {
		f.recorded[typeURL] = m.data.Materialize()
	}
}

// Resources gives the resources of a recorded response as they are encoded, one after the other.
func Resources(response []byte) ([]byte, error) {
	var out []byte
	for b := response; len(b) > 0; {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, fmt.Errorf("response: %w", io.ErrUnexpectedEOF)
		}
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 {
			return nil, fmt.Errorf("response: %w", io.ErrUnexpectedEOF)
		}
		if num == responseResources {
			out = append(out, b[:n+m]...)
		}
		b = b[n+m:]
	}
	return out, nil
}
