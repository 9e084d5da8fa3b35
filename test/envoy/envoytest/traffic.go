package envoytest

import (
	"context"
	"errors"
	"sync"
	"testing"
)

// ErrTrafficEnded is returned by Traffic.Wait when no more requests will come.
var ErrTrafficEnded = errors.New("the traffic has ended")

// Traffic is a steady load: workers that each make one request after the other.
type Traffic struct {
	done    <-chan struct{} // closed at the end
	cancel  context.CancelFunc
	workers sync.WaitGroup

	mu     sync.Mutex
	more   *sync.Cond // signalled for each request; uses mu
	report Report     // guarded by mu
}

// Report counts the requests of a Traffic.
type Report struct {
	OK     int
	Failed int
	// First is the first failure.
	First error
}

// StartTraffic makes requests from n workers, all through do, until Stop or the
// end of the test.
func StartTraffic(t testing.TB, n int, do func(context.Context) error) *Traffic {
	tr := RunTraffic(t.Context(), n, do)
	t.Cleanup(func() { tr.Stop() })
	return tr
}

// RunTraffic makes requests from n workers, all through do, until Stop or the
// end of ctx. Requests that this end cuts are not counted.
func RunTraffic(ctx context.Context, n int, do func(context.Context) error) *Traffic {
	tr := &Traffic{}
	tr.more = sync.NewCond(&tr.mu)
	ctx, tr.cancel = context.WithCancel(ctx)
	tr.done = ctx.Done()
	for range n {
		tr.workers.Go(func() {
			for tr.count(ctx, do(ctx)) {
			}
		})
	}
	// Wait must not outlast the workers.
	tr.workers.Go(func() {
		<-ctx.Done()
		tr.mu.Lock()
		defer tr.mu.Unlock()
		tr.more.Broadcast()
	})
	return tr
}

// count records one outcome; it is false at the end.
func (tr *Traffic) count(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	switch {
	case err == nil:
		tr.report.OK++
	case tr.report.Failed == 0:
		tr.report.First = err
		fallthrough
	default:
		tr.report.Failed++
	}
	tr.more.Broadcast()
	return true
}

// Wait returns when n more requests have ended since the call, well or badly,
// or with the error of ctx, or with ErrTrafficEnded. It lets a test go on "under
// traffic" without measuring time.
func (tr *Traffic) Wait(ctx context.Context, n int) error {
	stop := context.AfterFunc(ctx, func() {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		tr.more.Broadcast()
	})
	defer stop()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	goal := tr.report.total() + n
	for ; tr.report.total() < goal; tr.more.Wait() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tr.done:
			return ErrTrafficEnded
		default:
		}
	}
	return nil
}

// Report counts so far.
func (tr *Traffic) Report() Report {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.report
}

// Stop ends the load, waits for the workers and returns the whole count.
func (tr *Traffic) Stop() Report {
	tr.cancel()
	tr.workers.Wait()
	return tr.Report()
}

func (r Report) total() int { return r.OK + r.Failed }
