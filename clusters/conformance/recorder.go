package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// patience is how long the suite waits for a real source before it gives up: long, for a busy machine.
const patience = 2 * time.Minute

// recorder is the sink of one run: it keeps the rows and every breach of the contract.
type recorder struct {
	key model.ShardKey

	mu       sync.Mutex
	rows     map[model.RowKey]model.Object
	prints   []print // of everything that was passed
	replaces int
	status   model.Status
	returned bool
	faults   []string
	changed  chan struct{} // closed and renewed at every call
}

// print is a value as it was when it was passed.
type print struct {
	row  model.RowKey
	obj  model.Object
	text []byte
}

func newRecorder(k model.ShardKey) *recorder {
	return &recorder{key: k, rows: map[model.RowKey]model.Object{}, changed: make(chan struct{})}
}

func (r *recorder) enter(what string) func() {
	r.mu.Lock()
	if r.returned {
		r.faults = append(r.faults, what+" after Run returned")
	}
	return func() {
		close(r.changed)
		r.changed = make(chan struct{})
		r.mu.Unlock()
	}
}

func (r *recorder) fault(format string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

// Replace implements model.Sink.
func (r *recorder) Replace(s *model.ShardState) {
	defer r.enter("Replace")()
	if s == nil {
		r.fault("Replace(nil)")
		return
	}
	r.replaces++
	r.rows = maps.Collect(s.Rows())
	for k, o := range r.rows {
		r.check(k, o)
	}
}

// Put implements model.Sink.
func (r *recorder) Put(evs ...model.Event) {
	defer r.enter("Put")()
	for _, ev := range evs {
		r.put(ev)
	}
}

func (r *recorder) put(ev model.Event) {
	if r.replaces == 0 {
		r.fault("Put of %v before Replace", ev.Row)
	}
	if ev.Obj == nil {
		delete(r.rows, ev.Row)
		return
	}
	if old := r.rows[ev.Row]; old != nil && bytes.Equal(fingerprint(old), fingerprint(ev.Obj)) {
		r.fault("Put of %v with the content that it had", ev.Row)
	}
	r.rows[ev.Row] = ev.Obj
	r.check(ev.Row, ev.Obj)
}

// Status implements model.Sink.
func (r *recorder) Status(s model.Status) {
	defer r.enter("Status")()
	r.status = s
}

// check looks at one row as it comes.
func (r *recorder) check(k model.RowKey, o model.Object) {
	if o.RowKind() != k.Kind {
		r.fault("row %v holds a %s", k, o.RowKind())
	}
	if s := source(o); s.Shard != r.key {
		r.fault("row %v says that it comes from %s, not %s", k, s.Shard, r.key)
	}
	if e, ok := o.(*model.Endpoints); ok {
		for i := range e.Endpoints {
			if c := e.Endpoints[i].Addr.Cluster; c != r.key.Cluster {
				r.fault("row %v has an address in cluster %q", k, c)
			}
		}
	}
	r.prints = append(r.prints, print{k, o, fingerprint(o)})
}

func source(o model.Object) model.Source {
	switch o := o.(type) {
	case *model.Service:
		return o.Source
	case *model.Endpoints:
		return o.Source
	case *model.Workload:
		return o.Source
	case *model.Config:
		return o.Source
	}
	return model.Source{}
}

func fingerprint(o model.Object) []byte {
	text, err := json.Marshal(o)
	if err != nil {
		return fmt.Append(nil, err)
	}
	return text
}

// await waits until ok holds for the recorder, which is locked meanwhile.
func (r *recorder) await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		r.mu.Lock()
		done, next := ok(), r.changed
		r.mu.Unlock()
		if done {
			return
		}
		select {
		case <-next:
		case <-ctx.Done():
			r.mu.Lock()
			defer r.mu.Unlock()
			t.Fatalf("%s: not within %v; %d replaces, status %+v, rows make %+v", what, patience, r.replaces, r.status, worldOf(r.rows))
		}
	}
}

// breaches lists every breach of the contract, also values that were changed after they were passed.
func (r *recorder) breaches() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := slices.Clone(r.faults)
	for _, p := range r.prints {
		if now := fingerprint(p.obj); !bytes.Equal(p.text, now) {
			out = append(out, fmt.Sprintf("row %v was changed after it was passed:\n was %s\n now %s", p.row, p.text, now))
		}
	}
	return out
}
