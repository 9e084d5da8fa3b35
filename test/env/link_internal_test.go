package env

import (
	"sync"
	"testing"
)

// Requests that begin while a link closes are waited for, or are not served: nothing is counted once the waiting began.
func TestLateRequests(t *testing.T) {
	t.Parallel()
	l := &Link{}
	if !l.begin() {
		t.Fatal("a request is not served")
	}
	var late sync.WaitGroup
	for range 8 {
		late.Go(func() {
			if l.begin() {
				l.served.Done()
			}
		})
	}
	go l.served.Done()
	l.finish()
	late.Wait()
	if l.begin() {
		t.Error("a request is served after the end")
	}
}
