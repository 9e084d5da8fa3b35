package xds

import (
	"context"
	"sync"
	"time"
)

// admission is a token bucket on new streams. A stream that finds it empty waits its turn for a
// short while.
type admission struct {
	rate, burst float64 // tokens per second, and at most
	wait        time.Duration
	now         func() time.Time

	mu     sync.Mutex
	tokens float64   // guarded by mu; negative: promised to those who wait
	at     time.Time // guarded by mu; when tokens was right
}

func newAdmission(o *Options) *admission {
	return &admission{rate: o.StreamRate, burst: float64(o.StreamBurst), wait: o.StreamWait, now: o.Now, tokens: float64(o.StreamBurst), at: o.Now()}
}

// admit waits for a token; it fails when that would take too long.
func (a *admission) admit(ctx context.Context) error {
	d, ok := a.take()
	if !ok {
		return errBusy
	}
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (a *admission) take() (time.Duration, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	a.tokens = min(a.burst, a.tokens+now.Sub(a.at).Seconds()*a.rate)
	a.at = now
	d := time.Duration((1 - a.tokens) / a.rate * float64(time.Second))
	if d > a.wait {
		return 0, false
	}
	a.tokens--
	return d, true
}
