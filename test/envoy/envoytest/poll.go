package envoytest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// pollEvery is the pause between two looks at another process, which has no way
// to call back.
const pollEvery = 20 * time.Millisecond

// permanent wraps an error that further looks cannot cure.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// Permanent makes Poll give up at once with err.
func Permanent(err error) error { return permanent{err} }

// Poll calls cond until it returns nil, returns a Permanent error, or ctx ends;
// the error is then the last one of cond.
func Poll(ctx context.Context, cond func() error) error { return PollEvery(ctx, pollEvery, cond) }

// PollEvery is Poll with a pause of one's own between two looks.
func PollEvery(ctx context.Context, pause time.Duration, cond func() error) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		err := cond()
		if err == nil {
			return nil
		}
		if p := (permanent{}); errors.As(err, &p) {
			return p.error
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (last: %w)", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

// Eventually fails the test unless cond returns nil within limit. What says
// what is waited for, as in "waiting for WHAT".
func Eventually(t testing.TB, limit time.Duration, what string, cond func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := Poll(ctx, cond); err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}
