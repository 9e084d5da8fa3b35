package consul

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/foreign"
)

// fake is a Consul cluster that a test scripts, as the transport of a client. It answers blocking queries as servers do, and
// misbehaves on demand.
type fake struct {
	mu       sync.Mutex
	index    uint64
	services map[string][]entry
	indexes  map[string]uint64 // of services
	lists    uint64            // index of the list
	checks   uint64
	nodes    uint64

	nodeIndex map[string]uint64 // of nodes; 1 if there is none
	changed   chan struct{}     // closed at every change
	asked     []string          // "path?index"
	busy      int               // requests that are being answered
	most      int

	// mangle may take the place of the answer to a request: nil goes on.
	mangle func(r *http.Request) (*http.Response, error)
	header http.Header // of all answers, over what they have
}

func newFake() *fake {
	return &fake{index: 100, lists: 100, checks: 100, nodes: 100, services: map[string][]entry{}, indexes: map[string]uint64{}, changed: make(chan struct{}), header: http.Header{}}
}

// set gives a service its instances; without any it is listed all the same.
func (f *fake) set(name string, list ...entry) {
	f.register(name, list...)
	f.do(func() { f.checks = f.index })
}

// register changes no checks.
func (f *fake) register(name string, list ...entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.index++
	f.services[name], f.indexes[name], f.lists = list, f.index, f.index
	f.wake()
}

// setHealth changes checks alone, which the list does not tell of.
func (f *fake) setHealth(name string, list ...entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.index++
	f.services[name], f.indexes[name], f.checks = list, f.index, f.index
	f.wake()
}

func (f *fake) remove(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.index++
	delete(f.services, name)
	f.indexes[name], f.lists, f.checks = f.index, f.index, f.index
	f.wake()
}

// do changes anything under the lock, and wakes all who wait.
func (f *fake) do(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	f.wake()
}

func (f *fake) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// count is how many requests had the prefix.
func (f *fake) count(prefix string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.asked {
		if strings.HasPrefix(a, prefix) {
			n++
		}
	}
	return n
}

// RoundTrip implements http.RoundTripper.
func (f *fake) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	f.asked = append(f.asked, r.URL.Path+"?"+r.URL.Query().Get("index"))
	f.busy++
	f.most = max(f.most, f.busy)
	f.mu.Unlock()
	defer f.locked(func() { f.busy-- })
	if resp, err := f.fault(r); resp != nil || err != nil {
		return resp, err
	}
	return f.answer(r)
}

func (f *fake) fault(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	mangle := f.mangle
	f.mu.Unlock()
	if mangle == nil {
		return nil, nil
	}
	return mangle(r)
}

func (f *fake) locked(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// answer waits as a server does: until there is a higher index, or as long as it was asked to.
func (f *fake) answer(r *http.Request) (*http.Response, error) {
	index, _ := strconv.ParseUint(r.URL.Query().Get("index"), 10, 64)
	wait, _ := time.ParseDuration(r.URL.Query().Get("wait"))
	late := time.NewTimer(wait)
	defer late.Stop()
	for {
		f.mu.Lock()
		body, now := f.body(r.URL.Path)
		changed := f.changed
		h := f.header.Clone()
		f.mu.Unlock()
		if index == 0 || now > index || now < index {
			return respond(200, body, now, h), nil
		}
		select {
		case <-changed:
			if resp, err := f.fault(r); resp != nil || err != nil { // that has come meanwhile
				return resp, err
			}
		case <-late.C:
			if resp, err := f.fault(r); resp != nil || err != nil {
				return resp, err
			}
			return respond(200, body, now, h), nil
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
}

func (f *fake) body(path string) (body any, index uint64) {
	name, isService := strings.CutPrefix(path, "/v1/health/service/")
	switch {
	case isService:
		return append([]entry{}, f.services[name]...), max(f.indexes[name], 1)
	case path == "/v1/catalog/services":
		names := map[string][]string{"consul": {}}
		for n, list := range f.services {
			names[n] = []string{}
			for _, e := range list {
				names[n] = append(names[n], e.Service.Tags...)
			}
		}
		return names, f.lists
	case strings.HasPrefix(path, "/v1/health/state/"):
		state := strings.TrimPrefix(path, "/v1/health/state/")
		all := []check{}
		for n, list := range f.services {
			for _, e := range list {
				for _, c := range e.Checks {
					c.Node = e.Node.Node
					if !strings.HasPrefix(c.CheckID, "node:") {
						c.ServiceName = n
					}
					if state == "any" || state == c.Status {
						all = append(all, c)
					}
				}
			}
		}
		return all, f.checks
	case path == "/v1/catalog/nodes":
		all := []nodeRow{}
		for _, list := range f.services {
			for _, e := range list {
				all = append(all, nodeRow{Node: e.Node.Node, ModifyIndex: max(f.nodeIndex[e.Node.Node], 1)})
			}
		}
		return all, f.nodes
	case path == "/v1/catalog/datacenters":
		return []string{"dc1"}, 0
	}
	return nil, 0
}

func respond(status int, body any, index uint64, h http.Header) *http.Response {
	text, isText := body.(string)
	if !isText {
		raw, err := json.Marshal(body)
		if err != nil {
			panic(err)
		}
		text = string(raw)
	}
	header := http.Header{}
	header.Set("X-Consul-Index", strconv.FormatUint(index, 10))
	header.Set("X-Consul-KnownLeader", "true")
	header.Set("X-Consul-LastContact", "0")
	maps.Copy(header, h)
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status, " ", http.StatusText(status)), Header: header, Body: io.NopCloser(bytes.NewBufferString(text))}
}

// at is an instance that passes.
func at(address string, more ...func(*entry)) entry {
	e := entry{
		Node: node{Node: "n-" + address, Address: address, Datacenter: "dc1"}, Service: instance{ID: "i", Port: 80, Weights: &weights{1, 1}},
		Checks: []check{{CheckID: "c-" + address, Status: "passing"}},
	}
	for _, m := range more {
		m(&e)
	}
	return e
}

func checked(s string) func(*entry) {
	return func(e *entry) { e.Checks = []check{{CheckID: "c-" + e.Node.Address, Status: s}} }
}

// sink keeps rows, and counts what it is told.
type sink struct {
	mu       sync.Mutex
	rows     map[model.RowKey]model.Object
	replaces int
	puts     int
	status   model.Status
	statuses int
	changed  chan struct{}
}

func newSink() *sink {
	return &sink{rows: map[model.RowKey]model.Object{}, changed: make(chan struct{})}
}

func (s *sink) enter() func() {
	s.mu.Lock()
	return func() {
		close(s.changed)
		s.changed = make(chan struct{})
		s.mu.Unlock()
	}
}

// Replace implements model.Sink.
func (s *sink) Replace(st *model.ShardState) {
	defer s.enter()()
	s.replaces++
	s.rows = maps.Collect(st.Rows())
}

// Put implements model.Sink.
func (s *sink) Put(events ...model.Event) {
	defer s.enter()()
	s.puts++
	for _, e := range events {
		if e.Obj == nil {
			delete(s.rows, e.Row)
		} else {
			s.rows[e.Row] = e.Obj
		}
	}
}

// Status implements model.Sink.
func (s *sink) Status(st model.Status) {
	defer s.enter()()
	s.status = st
	s.statuses++
}

// told is how often rows were given.
func (s *sink) told() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replaces + s.puts
}

func (s *sink) state() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.TrimSuffix(string(s.status.State)+": "+s.status.Err, ": ")
}

func (s *sink) problems() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, p := range s.status.Problems {
		out = append(out, p.Item+": "+p.Reason)
	}
	return strings.Join(out, "\n")
}

// content is all services as text: "a.dc1.consul [80/http]: 10.0.0.1:80 healthy 1; …; -10.0.0.2:80 Disabled", a line each.
func (s *sink) content() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	services, of := map[string]string{}, map[string][]string{}
	for _, o := range s.rows {
		switch o := o.(type) {
		case *model.Service:
			var ports []string
			for _, p := range o.Ports {
				ports = append(ports, fmt.Sprintf("%d/%s", p.Number, p.Name))
			}
			services[o.Host] = fmt.Sprintf("%s %v:", o.Host, ports)
		case *model.Endpoints:
			for _, e := range o.Endpoints {
				of[o.Host] = append(of[o.Host], fmt.Sprintf("%s %s %v", e.Addr, e.Health, e.Weight))
			}
			for _, l := range o.LeftOut {
				of[o.Host] = append(of[o.Host], fmt.Sprintf("-%s %s", l.Addr, l.Reason))
			}
		}
	}
	var lines []string
	for _, host := range slices.Sorted(maps.Keys(services)) {
		slices.Sort(of[host])
		lines = append(lines, strings.TrimSpace(services[host]+" "+strings.Join(of[host], "; ")))
	}
	return strings.Join(lines, "\n")
}

// world is a registry that follows a fake, in a bubble with its own time.
type world struct {
	*fake
	*sink
	t   *testing.T
	end func()
}

func spec(more ...func(*api.RegistrySpec)) api.RegistrySpec {
	s := api.RegistrySpec{Provider: api.Consul, Addresses: []string{"consul.test:8500"}, Limits: &api.Limits{RequestsPerSecond: 1000}}
	for _, m := range more {
		m(&s)
	}
	return s.Effective("ns")
}

func inBubble(t *testing.T, o Options, test func(*world)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		w := start(t, o, f)
		test(w)
		w.end()
	})
}

// start runs a registry, which has synced what there is when this returns.
func start(t *testing.T, o Options, f *fake) *world {
	t.Helper()
	if o.Spec.Provider == "" {
		o.Spec = spec()
	}
	o.Name = "legacy"
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	r.client.http.Transport = f
	s := newSink()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx, s) }()
	w := &world{fake: f, sink: s, t: t, end: func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	}}
	synctest.Wait()
	return w
}

// want waits as long as the registry may take, and compares.
func (w *world) want(lines ...string) {
	w.t.Helper()
	w.after(5*time.Second, lines...)
}

func (w *world) after(d time.Duration, lines ...string) {
	w.t.Helper()
	time.Sleep(d) // of the bubble
	synctest.Wait()
	if got, want := w.content(), strings.Join(lines, "\n"); got != want {
		w.t.Errorf("known:\n%s\nwant:\n%s", got, want)
	}
}

func (w *world) wantState(want string) {
	w.t.Helper()
	synctest.Wait()
	if got := w.state(); got != want {
		w.t.Errorf("state %q, want %q", got, want)
	}
}

// script sets what takes the place of answers.
func (f *fake) script(mangle func(*http.Request) (*http.Response, error)) {
	f.locked(func() { f.mangle = mangle })
}

// scripted gives the options of a registry with a spec.
func scripted(more ...func(*api.RegistrySpec)) Options {
	return Options{Spec: spec(more...), Access: foreign.Access{Token: "secret-token"}}
}
