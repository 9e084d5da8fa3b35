package multicluster_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/xdstest"
)

// past is what a proxy was sent.
type past struct {
	mu       sync.Mutex
	sent     map[string][]string // assignments in text and removals, by cluster name; guarded by mu, as are all below
	clusters map[string]bool     // of the last answer that lists all of them
	breaks   []string            // ends of streams that were not the proxy's wish
}

// removed stands for an assignment or a cluster that the proxy was told is no more.
const removed = "(removed)"

func newPast() *past { return &past{sent: map[string][]string{}} }

// forget empties the memory of what was sent.
func (h *past) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.sent)
	h.breaks = nil
}

// of lists what was sent of a cluster since forget, in order.
func (h *past) of(cluster string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.sent[cluster])
}

// broken lists the ends of streams since forget.
func (h *past) broken() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.breaks)
}

func (h *past) note(m proto.Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch r := m.(type) {
	case *discoveryv3.DeltaDiscoveryResponse:
		if r.TypeUrl == gen.ClusterURL || r.TypeUrl == gen.EndpointURL {
			for _, name := range r.RemovedResources {
				h.sent[name] = append(h.sent[name], removed)
			}
		}
		for _, res := range r.Resources {
			h.assignment(r.TypeUrl, res.Resource.GetValue())
		}
	case *discoveryv3.DiscoveryResponse:
		for _, res := range r.Resources {
			h.assignment(r.TypeUrl, res.Value)
		}
		if r.TypeUrl == gen.ClusterURL {
			h.all(r)
		}
	}
}

// assignment is called under mu.
func (h *past) assignment(typeURL string, body []byte) {
	if typeURL != gen.EndpointURL {
		return
	}
	name, text := xdstest.NameOf(typeURL, body), "undecodable"
	if a, err := decodeAssignment(body); err == nil {
		text = strings.Join(a.addresses(), " ")
	}
	h.sent[name] = append(h.sent[name], text)
}

// all notes the clusters that are missing in an answer that lists all of them. It is called under mu.
func (h *past) all(r *discoveryv3.DiscoveryResponse) {
	now := map[string]bool{}
	for _, res := range r.Resources {
		now[xdstest.NameOf(r.TypeUrl, res.Value)] = true
	}
	for name := range h.clusters {
		if !now[name] {
			h.sent[name] = append(h.sent[name], removed)
		}
	}
	h.clusters = now
}

// listening is a stream whose answers are noted.
type listening struct {
	xdstest.Stream
	past   *past
	closed bool // guarded by past.mu
}

// Recv implements xdstest.Stream.
func (l *listening) Recv(to proto.Message) error {
	err := l.Stream.Recv(to)
	if err == nil {
		l.past.note(to)
		return nil
	}
	l.past.mu.Lock()
	defer l.past.mu.Unlock()
	if !l.closed {
		l.past.breaks = append(l.past.breaks, err.Error())
	}
	return err
}

// Close implements xdstest.Stream.
func (l *listening) Close() {
	l.past.mu.Lock()
	l.closed = true
	l.past.mu.Unlock()
	l.Stream.Close()
}

// forget empties the memory of what was sent.
func (p *proxy) forget() { p.past.forget() }

// always checks that since forget no stream has ended, and that the proxy never had
// a service without the addresses: no assignment without one of them, and no word of
// the service's end.
func (p *proxy) always(service string, addresses ...string) {
	p.m.Helper()
	for _, why := range p.past.broken() {
		p.m.Errorf("%s: the stream ended: %s", p.ID(), why)
	}
	for _, text := range p.past.of(outbound(service)) {
		for _, a := range addresses {
			if !strings.Contains(" "+text, " "+a+":") {
				p.m.Errorf("%s: %s was sent without %s: %q", p.ID(), service, a, text)
			}
		}
	}
}

// never checks that since forget no assignment of a service had an address.
func (p *proxy) never(service, address string) {
	p.m.Helper()
	for _, text := range p.past.of(outbound(service)) {
		if strings.Contains(" "+text, " "+address+":") {
			p.m.Errorf("%s: %s was sent with %s: %q", p.ID(), service, address, text)
		}
	}
}

// kept checks that the proxy has, and since forget always had, the endpoints of foo in
// the clusters, and the service that each of them alone has.
func (p *proxy) kept(ids ...string) {
	p.m.Helper()
	for _, id := range ids {
		p.always("foo.shop", fooIP(id))
		p.has(fmt.Sprintf("only-%s.shop", id), onlyIP(id))
		p.always(fmt.Sprintf("only-%s.shop", id), onlyIP(id))
	}
}
