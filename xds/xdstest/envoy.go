package xdstest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/xds/gen"
	"github.com/isthmus-mesh/isthmus/xds/wire"
)

// Envoy is an ADS client that keeps state as Envoy 1.40 was seen to: a new or changed EDS cluster
// warms until its endpoints are sent and asks for them only if it is new, ACKs of clusters are
// withheld while any cluster warms, listeners are asked for once clusters are warm, removed
// assignments keep their endpoints, and virtual hosts on their own are those of tables that it has (see
// hosts.go). It finds the protocol's own faults in what it is sent.
type Envoy struct {
	protocol wire.Protocol
	node     *corev3.Node
	dial     func() (Stream, error)

	// Fault, which may be nil, says why a resource is refused; "" accepts it. Set before Connect.
	Fault func(typeURL, name string, body []byte) string
	// Trace, which may be nil, is told of every message. Set before Connect.
	Trace func(line string)

	mu          sync.Mutex
	stream      Stream // guarded by mu, as are all below
	types       map[string]*typeState
	warming     map[string]bool
	unready     map[string]bool // tables that wait for an update of their hosts
	withheld    []proto.Message // ACKs of clusters
	hold        map[string]bool // types whose ACKs the test delays
	delayed     []proto.Message
	deferred    bool // the request for clusters waits for the end of warming
	introduced  bool
	violations  []string
	refused     map[string]string                   // last refused body that the server knows of, by type and name
	telling     map[proto.Message]map[string]string // refused bodies by the request that says so
	told        map[string]string                   // refused bodies that the server may not have heard of
	received    map[string]int
	lastRefusal time.Time // of a listener
	refusals    int
	done        chan struct{}
	err         error
}

// typeState is what the client holds of one type.
type typeState struct {
	asked    bool
	sub      map[string]bool
	have     map[string]string // body by name
	recorded map[string]string // delta: versions of what was ACKed
	unlisted map[string]bool   // delta: applied from refused responses
	nonce    string            // SotW: last answered
	version  string            // SotW: last accepted
}

// NewEnvoy makes a client that is not connected. dial opens a stream of the protocol.
func NewEnvoy(p wire.Protocol, node *corev3.Node, dial func() (Stream, error)) *Envoy {
	e := &Envoy{
		protocol: p, node: node, dial: dial, types: map[string]*typeState{}, warming: map[string]bool{}, unready: map[string]bool{},
		hold: map[string]bool{}, refused: map[string]string{}, told: map[string]string{},
		telling: map[proto.Message]map[string]string{}, received: map[string]int{},
	}
	for _, u := range []string{gen.ClusterURL, gen.EndpointURL, gen.ListenerURL, gen.RouteURL, gen.VirtualHostURL} {
		e.types[u] = &typeState{sub: map[string]bool{}, have: map[string]string{}, recorded: map[string]string{}, unlisted: map[string]bool{}}
	}
	if node.GetMetadata().GetFields()["ENABLE_SELF_DISCOVERY"].GetStringValue() == "true" {
		eds := e.types[gen.EndpointURL]
		eds.asked, eds.sub[localCluster] = true, true
	}
	return e
}

// localCluster is the static cluster of an Envoy with self-discovery, whose endpoints it asks for first of all.
const localCluster = "local_cluster"

// ID is the id of the node that it says it is.
func (e *Envoy) ID() string { return e.node.Id }

// Connect opens a stream and asks for what the client wants, as a first time or again.
func (e *Envoy) Connect() error {
	s, err := e.dial()
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stream, e.done, e.err = s, make(chan struct{}), nil
	e.withheld, e.delayed, e.introduced = nil, nil, false
	clear(e.refused)
	clear(e.told)
	clear(e.telling)
	for _, t := range e.types {
		t.nonce = ""
	}
	e.resume()
	go e.receive(s, e.done)
	return nil
}

// resume sends the first requests of a stream. While a cluster warms there is none for clusters.
func (e *Envoy) resume() {
	local := e.types[gen.EndpointURL].sub[localCluster]
	if local {
		e.first(gen.EndpointURL)
	}
	if e.deferred = len(e.warming) > 0; !e.deferred {
		e.first(gen.ClusterURL)
	}
	for _, u := range []string{gen.EndpointURL, gen.ListenerURL, gen.RouteURL, gen.VirtualHostURL} {
		if t := e.types[u]; t.asked && (u != gen.EndpointURL || !local) && (wildcard(u) || len(t.sub) > 0) {
			e.first(u)
		}
	}
}

// wildcard reports whether everything of a type is asked for.
func wildcard(url string) bool {
	return url == gen.ClusterURL || url == gen.ListenerURL || url == gen.VirtualHostURL
}

// first asks for a type for the first time on a stream.
func (e *Envoy) first(url string) {
	t := e.types[url]
	t.asked = true
	names := slices.Sorted(maps.Keys(t.sub))
	if e.protocol == wire.SotW {
		e.send(&discoveryv3.DiscoveryRequest{TypeUrl: url, VersionInfo: t.version, ResourceNames: names})
		return
	}
	e.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: url, ResourceNamesSubscribe: names, InitialResourceVersions: maps.Clone(t.recorded)})
}

func (e *Envoy) trace(format string, a ...any) {
	if e.Trace != nil {
		e.Trace(fmt.Sprintf(format, a...))
	}
}

func (e *Envoy) send(m proto.Message) {
	e.trace("-> %v", m)
	if r, ok := m.(interface{ GetErrorDetail() *statuspb.Status }); ok && r.GetErrorDetail() != nil {
		e.refusals++
	}
	if !e.introduced {
		e.introduced = true
		switch r := m.(type) {
		case *discoveryv3.DiscoveryRequest:
			r.Node = e.node
		case *discoveryv3.DeltaDiscoveryRequest:
			r.Node = e.node
		}
	}
	if r, ok := m.(*discoveryv3.DiscoveryRequest); ok {
		e.types[r.TypeUrl].nonce = r.ResponseNonce
	}
	maps.Copy(e.told, e.telling[m])
	delete(e.telling, m)
	_ = e.stream.Send(m) // a broken stream shows when receiving
}

// Disconnect breaks the stream off and waits until nothing more is received.
func (e *Envoy) Disconnect() {
	e.mu.Lock()
	s, done := e.stream, e.done
	e.mu.Unlock()
	s.Close()
	<-done
}

// Err waits for the stream to end and says why it did.
func (e *Envoy) Err() error {
	e.mu.Lock()
	done := e.done
	e.mu.Unlock()
	<-done
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

func (e *Envoy) receive(s Stream, done chan struct{}) {
	defer close(done)
	for {
		var err error
		if e.protocol == wire.SotW {
			m := &discoveryv3.DiscoveryResponse{}
			if err = s.Recv(m); err == nil {
				e.sotw(m)
			}
		} else {
			m := &discoveryv3.DeltaDiscoveryResponse{}
			if err = s.Recv(m); err == nil {
				e.delta(m)
			}
		}
		if err != nil {
			e.mu.Lock()
			e.err = err
			e.mu.Unlock()
			return
		}
	}
}

// Hold delays the ACKs of a type until Release.
func (e *Envoy) Hold(url string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hold[url] = true
}

// Release ends all delays and sends the delayed ACKs.
func (e *Envoy) Release() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.hold)
	for _, m := range e.delayed {
		if r, ok := m.(*discoveryv3.DiscoveryRequest); ok { // what is wanted now
			r.ResourceNames = slices.Sorted(maps.Keys(e.types[r.TypeUrl].sub))
		}
		e.send(m)
	}
	e.delayed = nil
}

// Settle says that the server has handled all that was sent to it.
func (e *Envoy) Settle() {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.Copy(e.refused, e.told)
	clear(e.told)
}

// State is what the client holds: bodies by type and name. Endpoints are those of its clusters.
func (e *Envoy) State() map[string]map[string]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := map[string]map[string]string{}
	for u, t := range e.types {
		out[u] = maps.Clone(t.have)
	}
	return out
}

// Received counts the resources received of a type.
func (e *Envoy) Received(url string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.received[url]
}

// Refusals counts the responses that the client refused.
func (e *Envoy) Refusals() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.refusals
}

// Warming lists the clusters that wait for endpoints.
func (e *Envoy) Warming() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Sorted(maps.Keys(e.warming))
}

// Orphans reports whether the client applied something of a response that it refused and has not
// been sent it again since: a reconnecting delta client does not list that, so no server can know.
func (e *Envoy) Orphans() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.types {
		for n := range t.unlisted {
			if _, ok := t.have[n]; ok {
				return true
			}
		}
	}
	return false
}

// Violations lists what a server must not do and did.
func (e *Envoy) Violations() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.violations)
}

func (e *Envoy) violation(format string, a ...any) {
	e.violations = append(e.violations, fmt.Sprintf(format, a...))
}

// item is one resource of a response.
type item struct{ name, version, body string }

func names(items []item) (out []string) {
	for _, i := range items {
		out = append(out, i.name)
	}
	return out
}

func (e *Envoy) delta(m *discoveryv3.DeltaDiscoveryResponse) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var items []item
	for _, r := range m.Resources {
		if r.Resource.GetTypeUrl() != m.TypeUrl {
			e.violation("%s: resource of type %s", m.TypeUrl, r.Resource.GetTypeUrl())
		}
		items = append(items, item{r.Name, r.Version, string(r.Resource.GetValue())})
	}
	e.trace("<- %s nonce %s: %q, removed %q", m.TypeUrl, m.Nonce, names(items), m.RemovedResources)
	e.unique(m.TypeUrl, items, m.RemovedResources)
	fault, bad := e.apply(m.TypeUrl, items, m.RemovedResources)
	req := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce, ErrorDetail: status(fault)}
	if t := e.types[m.TypeUrl]; fault == "" {
		for _, i := range items {
			if t.sub[i.name] || wildcard(m.TypeUrl) { // what was given up meanwhile is passed over
				t.recorded[i.name] = i.version
			}
			delete(t.unlisted, i.name)
		}
		for _, n := range m.RemovedResources {
			delete(t.recorded, n)
		}
	} else {
		for _, i := range items {
			t.unlisted[i.name] = true
		}
	}
	e.answer(m.TypeUrl, req, bad)
}

func (e *Envoy) sotw(m *discoveryv3.DiscoveryResponse) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var items []item
	now := map[string]bool{}
	for _, r := range m.Resources {
		name := NameOf(m.TypeUrl, r.Value)
		now[name] = true
		items = append(items, item{name, "", string(r.Value)})
	}
	t := e.types[m.TypeUrl]
	var removed []string
	if m.TypeUrl == gen.ClusterURL || m.TypeUrl == gen.ListenerURL {
		for n := range t.have {
			if !now[n] {
				removed = append(removed, n)
			}
		}
		for _, refused := range []map[string]string{e.refused, e.told} {
			maps.DeleteFunc(refused, func(key, _ string) bool { // the server may have forgotten it with the resource
				n, ok := strings.CutPrefix(key, m.TypeUrl+"/")
				return ok && !now[n]
			})
		}
	}
	e.trace("<- %s nonce %s: %q", m.TypeUrl, m.Nonce, names(items))
	e.unique(m.TypeUrl, items, nil)
	fault, bad := e.apply(m.TypeUrl, items, removed)
	if fault == "" {
		t.version = m.VersionInfo
	}
	e.answer(m.TypeUrl, &discoveryv3.DiscoveryRequest{
		TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce, VersionInfo: t.version, ErrorDetail: status(fault), ResourceNames: slices.Sorted(maps.Keys(t.sub)),
	}, bad)
}

func status(fault string) *statuspb.Status {
	if fault == "" {
		return nil
	}
	return &statuspb.Status{Code: int32(codes.Internal), Message: fault}
}

func (e *Envoy) unique(url string, items []item, removed []string) {
	seen := map[string]bool{}
	for _, i := range items {
		if seen[i.name] {
			e.violation("%s: %s is twice in one response", url, i.name)
		}
		seen[i.name] = true
	}
	for _, n := range removed {
		if seen[n] {
			e.violation("%s: %s is removed, and named before, in one response", url, n)
		}
		seen[n] = true
	}
}

// answer sends an ACK or NACK, unless it has to wait, and then whatever became due.
func (e *Envoy) answer(url string, req proto.Message, refused map[string]string) {
	if len(refused) > 0 {
		e.telling[req] = refused
	}
	switch {
	case url == gen.ClusterURL && len(e.warming) > 0:
		e.withheld = append(e.withheld, req)
	case e.hold[url]:
		e.delayed = append(e.delayed, req)
	default:
		e.send(req)
	}
	if len(e.warming) > 0 {
		return
	}
	for _, m := range e.withheld {
		if e.hold[gen.ClusterURL] {
			e.delayed = append(e.delayed, m)
		} else {
			e.send(m)
		}
	}
	e.withheld = nil
	if e.deferred {
		e.deferred = false
		e.first(gen.ClusterURL)
	}
	if !e.types[gen.ListenerURL].asked {
		e.first(gen.ListenerURL)
	}
}

// change asks for more or fewer names of a type.
func (e *Envoy) change(url string, add, remove []string) {
	if len(add)+len(remove) == 0 {
		return
	}
	t := e.types[url]
	for _, n := range add {
		t.sub[n] = true
		e.forgive(url, n)
	}
	for _, n := range remove {
		delete(t.sub, n)
		delete(t.have, n)
		delete(t.recorded, n)
	}
	if !t.asked {
		e.first(url)
		return
	}
	e.renew(url, add, remove)
}

// forgive makes it right to send refused content of a name again.
func (e *Envoy) forgive(url, name string) {
	key := url + "/" + name
	delete(e.refused, key)
	delete(e.told, key)
	for _, m := range e.telling {
		delete(m, key)
	}
}

func (e *Envoy) renew(url string, add, remove []string) {
	t := e.types[url]
	if e.protocol == wire.Delta {
		e.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: url, ResourceNamesSubscribe: add, ResourceNamesUnsubscribe: remove})
		return
	}
	e.send(&discoveryv3.DiscoveryRequest{
		TypeUrl: url, VersionInfo: t.version, ResponseNonce: t.nonce, ResourceNames: slices.Sorted(maps.Keys(t.sub)),
	})
}
