package kubeapi

import (
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Backoff gives the pauses between attempts. It is used by one goroutine.
type Backoff struct {
	timing Timing
	next   time.Duration
	began  time.Time // when the pauses were short last
	silent bool      // the last attempt had no answer
}

// Backoff begins with short pauses.
func (c *Client) Backoff() *Backoff { return c.opts.Timing.backoff() }

func (t Timing) backoff() *Backoff { return &Backoff{timing: t, next: t.Retry} }

// Reset makes the pauses short again: it went well for some time.
func (b *Backoff) Reset() { b.next, b.began = b.timing.Retry, time.Now() }

// After gives the pause after an attempt: short at first, then longer and longer; what the server asks
// for, within bounds. The pauses are short again when a server that did not answer does: what it says
// while it starts is not true for long.
func (b *Backoff) After(err error) time.Duration {
	silent := err != nil && !answered(err)
	if b.silent && !silent && time.Since(b.began) > settled {
		b.Reset()
	}
	b.silent = silent
	d := b.next
	b.next = min(2*b.next, b.timing.RetryMax)
	if s, ok := apierrors.SuggestsClientDelay(err); ok {
		d = max(d, min(time.Duration(s)*time.Second, b.timing.RetryMax))
	}
	return Jitter(d)
}

// Jitter adds up to a half, so that many feeds and hubs do not return at once.
func Jitter(d time.Duration) time.Duration { return d + time.Duration(rand.Int64N(int64(d/2)+1)) }
