package memory

import (
	"maps"
	"slices"
	"sync"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Sink keeps what a registry says, as the hub would. The zero value is ready; its methods may be called from any goroutine.
type Sink struct {
	mu       sync.Mutex
	rows     map[model.RowKey]model.Object // guarded by mu
	replaces int                           // guarded by mu
	statuses []model.Status                // guarded by mu
}

// Replace implements model.Sink.
func (s *Sink) Replace(full *model.ShardState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows = maps.Collect(full.Rows())
	s.replaces++
}

// Put implements model.Sink.
func (s *Sink) Put(evs ...model.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ev := range evs {
		if ev.Obj == nil {
			delete(s.rows, ev.Row)
		} else {
			s.rows[ev.Row] = ev.Obj
		}
	}
}

// Status implements model.Sink.
func (s *Sink) Status(st model.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.statuses = append(s.statuses, st)
}

// Rows are those that there are now.
func (s *Sink) Rows() map[model.RowKey]model.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.rows)
}

// Replaces is how many full truths there were.
func (s *Sink) Replaces() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replaces
}

// Statuses are all that there were.
func (s *Sink) Statuses() []model.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.statuses)
}

// Last is the last status; zero if there was none.
func (s *Sink) Last() (last model.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.statuses); n > 0 {
		last = s.statuses[n-1]
	}
	return last
}
