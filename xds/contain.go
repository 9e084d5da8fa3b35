package xds

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

// panicLogEvery is how often the hub's own faults are logged, whoever provokes them; all are counted.
const panicLogEvery = 10 * time.Second

// contain runs a part of a stream. A panic in it ends that stream, and not the hub.
func (st *stream) contain(part func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			st.s.panicked(st, p)
			err = errPanic
		}
	}()
	return part()
}

func (s *Server) panicked(st *stream, p any) {
	s.metrics.panics.Inc()
	s.mu.Lock()
	held, pass := s.faults.pass(s.now())
	s.mu.Unlock()
	if !pass {
		return
	}
	s.log.LogAttrs(st.ctx, slog.LevelError, "panic: a stream is closed", slog.String("proxy", st.status.id()), slog.String("err", fmt.Sprint(p)),
		slog.Int("unlogged", held), slog.String("stack", string(debug.Stack())))
}

// throttle lets one through in a while and counts the others.
type throttle struct {
	every time.Duration
	last  time.Time
	held  int
}

// pass reports whether the next one may pass, and how many were held back before it.
func (t *throttle) pass(now time.Time) (held int, ok bool) {
	if !t.last.IsZero() && now.Sub(t.last) < t.every {
		t.held++
		return 0, false
	}
	held, t.held, t.last = t.held, 0, now
	return held, true
}
