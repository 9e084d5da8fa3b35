package client_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/mcp/client"
	"github.com/isthmus-mesh/isthmus/mcp/mcptest"
)

func itoa(n int) string { return strconv.Itoa(n) }

// patience is how long tests wait for a real server: long, for a busy machine.
const patience = 2 * time.Minute

// sink keeps what a client says.
type sink struct {
	mu       sync.Mutex
	rows     map[model.RowKey]model.Object
	replaces int
	puts     int // events of Puts
	status   model.Status
	states   []model.State // in order, without repetitions
	changed  chan struct{} // closed and renewed at every call
}

func (s *sink) call(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *sink) Replace(full *model.ShardState) {
	s.call(func() { s.rows, s.replaces = maps.Collect(full.Rows()), s.replaces+1 })
}

func (s *sink) Put(evs ...model.Event) {
	s.call(func() {
		for _, ev := range evs {
			s.puts++
			if s.rows[ev.Row] = ev.Obj; ev.Obj == nil {
				delete(s.rows, ev.Row)
			}
		}
	})
}

func (s *sink) Status(st model.Status) {
	s.call(func() {
		if s.status = st; len(s.states) == 0 || s.states[len(s.states)-1] != st.State {
			s.states = append(s.states, st.State)
		}
	})
}

// running is a client that runs.
type running struct {
	*sink
	t      *testing.T
	cancel context.CancelFunc
	done   chan error
}

func run(t *testing.T, o client.Options) *running {
	t.Helper()
	return runRegistry(t, client.New(o))
}

func runRegistry(t *testing.T, reg model.Registry) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{sink: &sink{rows: map[model.RowKey]model.Object{}, changed: make(chan struct{})}, t: t, cancel: cancel, done: make(chan error, 1)}
	go func() { r.done <- reg.Run(ctx, r.sink) }()
	t.Cleanup(r.stop)
	return r
}

func (r *running) stop() {
	r.cancel()
	if err, first := <-r.done; first && !errors.Is(err, context.Canceled) {
		r.t.Errorf("Run: %v", err)
	}
	select {
	case <-r.done:
	default:
		close(r.done)
	}
}

// await waits until ok holds for the sink, which is locked meanwhile.
func (r *running) await(what string, ok func() bool) {
	r.t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		r.mu.Lock()
		done, next := ok(), r.changed
		r.mu.Unlock()
		if done {
			return
		}
		select {
		case <-next:
		case <-late.C:
			r.mu.Lock()
			defer r.mu.Unlock()
			keys := make([]string, 0, len(r.rows))
			for k := range r.rows {
				keys = append(keys, k.Key)
			}
			slices.Sort(keys)
			r.t.Fatalf("%s: not within %v; status %+v, rows %s", what, patience, r.status, strings.Join(keys, " "))
		}
	}
}

func (r *running) state(s model.State) {
	r.t.Helper()
	r.await("state "+string(s), func() bool { return r.status.State == s })
}

// host waits until a host has these addresses.
func (r *running) host(host string, addresses ...string) {
	r.t.Helper()
	r.await(host+" at "+strings.Join(addresses, " "), func() bool {
		got, ok := r.addresses(host)
		return ok && slices.Equal(got, addresses)
	})
}

// addresses are those of a host, if there is a service for it; the sink is locked.
func (r *running) addresses(host string) (out []string, ok bool) {
	for _, o := range r.rows {
		switch o := o.(type) {
		case *model.Service:
			ok = ok || o.Host == host
		case *model.Endpoints:
			for _, e := range o.Endpoints {
				if o.Host == host {
					out = append(out, e.Addr.AddrPort.Addr().String())
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out), ok
}

func (r *running) noHost(host string) {
	r.t.Helper()
	r.await("no "+host, func() bool { _, ok := r.addresses(host); return r.replaces > 0 && !ok })
}

// config waits for an object of a kind, "namespace/name".
func (r *running) config(kind, id string) {
	r.t.Helper()
	r.await(kind+" "+id, func() bool { return r.object(kind, id) != nil })
}

func (r *running) noConfig(kind, id string) {
	r.t.Helper()
	r.await("no "+kind+" "+id, func() bool { return r.object(kind, id) == nil })
}

// object is a row of configuration; the sink is locked.
func (r *running) object(kind, id string) *model.Config {
	c, _ := r.rows[model.RowKey{Kind: model.RowConfig, Key: kind + "/" + id}].(*model.Config)
	return c
}

// problem waits for a problem with both texts.
func (r *running) problem(item, reason string) {
	r.t.Helper()
	r.await("problem "+item+": "+reason, func() bool {
		return slices.ContainsFunc(r.status.Problems, func(p model.Problem) bool {
			return strings.Contains(p.Item, item) && strings.Contains(p.Reason, reason)
		})
	})
}

// dialer connects to servers by their addresses.
type dialer map[string]*mcptest.Server

func (d dialer) dial(ctx context.Context, address string) (net.Conn, error) {
	return d[address].Dial(ctx, address)
}
