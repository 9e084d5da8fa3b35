package xds

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
)

// ProxyStatus is one connected proxy as the hub sees it.
type ProxyStatus struct {
	ID         string // node id
	Cluster    model.ClusterID
	Namespace  string
	Version    string // what the proxy says it is, "" if nothing
	Peer       string // remote address
	Connected  time.Time
	Protocol   wire.Protocol
	Class      gen.Class
	Instances  []model.InstanceKey
	Configured bool         // its node carried PROXY_CONFIG
	Types      []TypeStatus // in serving order; only those asked for
}

// TypeStatus is what one proxy was sent of one type.
type TypeStatus struct {
	TypeURL    string
	Short      string // "cds" …
	Wildcard   bool
	Subscribed int // names, beside the wildcard
	Resources  int // that the proxy holds
	Sent       Mark
	Acked      Mark
	Nack       *Nack // the last refusal; nil once nothing refused is left
	Rejected   []string
}

// Mark is one response: its nonce and the version of the snapshot that it was made from.
type Mark struct {
	Nonce   string
	Version uint64
	Time    time.Time // sent marks only
}

// Nack is a refused response.
type Nack struct {
	Nonce   string
	Version uint64
	Code    int32
	Message string // its first 2 KiB
	Time    time.Time
}

// streamStatus is the part of a stream that others may read.
type streamStatus struct {
	mu sync.Mutex
	p  ProxyStatus // guarded by mu
}

func newStreamStatus(p wire.Protocol, ctx context.Context, now time.Time) *streamStatus {
	return &streamStatus{p: ProxyStatus{Protocol: p, Connected: now, Peer: remote(ctx)}}
}

// remote is the address that a stream comes from, "" if unknown.
func remote(ctx context.Context) string {
	if from, ok := peer.FromContext(ctx); ok && from.Addr != nil {
		return from.Addr.String()
	}
	return ""
}

func (s *streamStatus) introduced(id *identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.p.ID, s.p.Cluster, s.p.Namespace, s.p.Version = id.id, id.class.Cluster, id.class.Namespace, id.version
	s.p.Class, s.p.Instances, s.p.Configured = id.class, id.instances, id.configured
}

func (s *streamStatus) class(c gen.Class) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.p.Class = c
}

// of gives the entry of a type; the caller holds mu.
func (s *streamStatus) of(w *watch) *TypeStatus {
	for i := range s.p.Types {
		if s.p.Types[i].TypeURL == w.rule.url {
			return &s.p.Types[i]
		}
	}
	s.p.Types = append(s.p.Types, TypeStatus{TypeURL: w.rule.url, Short: w.rule.short})
	return &s.p.Types[len(s.p.Types)-1]
}

func (s *streamStatus) sent(w *watch, h wire.Head, version uint64, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.of(w)
	t.Wildcard, t.Subscribed, t.Resources = w.wildcard, int(w.sub.GetCardinality()), int(w.sent.GetCardinality())
	t.Sent = Mark{Nonce: h.Nonce, Version: version, Time: now}
}

func (s *streamStatus) acked(w *watch, nonce string, version uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.of(w)
	t.Acked = Mark{Nonce: nonce, Version: version}
	if len(w.rejected) == 0 && w.suspect.IsEmpty() {
		t.Nack = nil
	}
}

func (s *streamStatus) nacked(w *watch, n Nack) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(w).Nack = &n
}

// rejected publishes the names whose current version the proxy refused.
func (s *streamStatus) rejected(w *watch, names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(w).Rejected = names
}

func (s *streamStatus) id() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.p.ID
}

func (s *streamStatus) clone() ProxyStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.p
	p.Types = slices.Clone(p.Types)
	return p
}

// Proxies gives every proxy that has introduced itself, by id and then by age.
func (s *Server) Proxies() []ProxyStatus {
	var out []ProxyStatus
	order := map[string]int{}
	for i := range s.rules {
		order[s.rules[i].url] = i
	}
	for _, st := range s.all() {
		p := st.status.clone()
		if p.ID == "" {
			continue
		}
		slices.SortFunc(p.Types, func(a, b TypeStatus) int { return order[a.TypeURL] - order[b.TypeURL] })
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b ProxyStatus) int { return cmp.Or(cmp.Compare(a.ID, b.ID), a.Connected.Compare(b.Connected)) })
	return out
}

// ResourceStatus is one resource that a proxy is to have.
type ResourceStatus struct {
	Name    string
	Version string
	Body    []byte // encoded message of the type; nil when it could not be built
	Sent    bool   // the proxy has been sent a resource of the name
	// Rejected: the proxy refused this version, so it is not sent.
	Rejected bool
}

// Resources gives what a connected proxy is to have of a type, by the path that also sends it: for a
// type that it watches, what it subscribes; else everything that a wildcard would give. The proxy is
// named by its node id.
func (s *Server) Resources(ctx context.Context, proxyID, typeURL string) ([]ResourceStatus, error) {
	typ, ok := s.byURL[typeURL]
	if !ok {
		return nil, ErrUnknownType
	}
	for _, st := range s.all() {
		if st.status.id() == proxyID {
			return st.inspect(ctx, typ)
		}
	}
	return nil, ErrUnknownProxy
}

// inspect asks the stream's goroutine.
func (st *stream) inspect(ctx context.Context, typ int) (out []ResourceStatus, err error) {
	done := make(chan struct{})
	ask := func() {
		defer close(done)
		if pc := st.s.hub.Current(); pc != nil && st.aud != nil {
			out = st.resources(pc, typ)
		}
	}
	select {
	case st.asks <- ask:
	case <-st.ctx.Done():
		return nil, ErrUnknownProxy
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	<-done
	return out, nil
}

func (st *stream) resources(pc *pushcontext.PushContext, typ int) (out []ResourceStatus) {
	w := st.watches[typ]
	if w == nil {
		w = newWatch(typ, &st.s.rules[typ], st.s.opt.Generators[typ])
		w.wildcard = true
	}
	each(st.s.factory, st.t, pc, st.aud, w, func(r *resource, id uint32) {
		x := ResourceStatus{Name: r.name, Sent: w.sent.Contains(id)}
		if !r.failed() {
			x.Version, x.Body = r.Version, r.Body()
			x.Rejected = w.refused(r, id)
		}
		out = append(out, x)
	})
	slices.SortFunc(out, func(a, b ResourceStatus) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
