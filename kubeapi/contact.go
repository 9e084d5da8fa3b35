package kubeapi

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// Failure is the kind of a failed request.
type Failure int

const (
	failNone    Failure = iota
	failServer          // an answer that promises better luck later: 429, 5xx
	failMissing         // 404: nobody serves this
	failDenied          // 403
	failContact         // no answer
	failRefused         // 401
)

var failureNames = [...]string{"none", "server", "missing", "denied", "contact", "refused"}

// answered reports that the server takes the credential and has said how it is.
func (f Failure) answered() bool { return f != failContact && f != failRefused }

// String gives a word for metrics.
func (f Failure) String() string { return failureNames[f] }

// Contact is what the requests of a client say of the API server. It is safe for concurrent use.
type Contact struct {
	host, role string
	failed     func(feed string, f Failure)
	changed    func()

	mu    sync.Mutex
	feeds map[string]*Health
	down  bool          // the last requests for all that is required had no answer
	up    chan struct{} // closed and renewed when there is one again
}

// Need says what a feed is to whoever reads.
type Need int

const (
	Required Need = iota // nothing goes without it
	Optional             // it is done without, and that is said
	Helpful              // it is done without
)

// Health is how the last requests of one feed went.
type Health struct {
	Name string // of the feed
	What string // in words: "pods"
	Text string // what is wrong, and what to do about it; "" if nothing is

	need    Need
	failure Failure
	fails   int // in a row: with answers, or without
}

// OK reports that the last request went well.
func (h Health) OK() bool { return h.failure == failNone }

// Hopeless reports that a feed which can be done without is not waited for: a right is missing, or the
// server fails for this kind, and that is so again and again. A server that has just started refuses what
// it will allow in a moment, so one refusal means nothing.
func (h Health) Hopeless() bool {
	return h.need != Required && h.fails >= patience && (h.failure == failDenied || h.failure == failServer)
}

// Refused reports that it is hopeless because a right is missing.
func (h Health) Refused() bool { return h.Hopeless() && h.failure == failDenied }

// Revoked reports that a right is missing for so long that somebody must have taken it.
func (h Health) Revoked() bool { return h.failure == failDenied && h.fails >= forGood }

// How many failures in a row are not passed over any more. Between them are the pauses of a backoff: with
// the default timing the fifth is 3 to 4.5 s after the first, the eighth 25 to 38 s.
const (
	patience = 5
	forGood  = 8
)

func newContact(host string, o Options) *Contact {
	return &Contact{host: host, role: o.Role, failed: o.Failed, changed: o.Changed, feeds: map[string]*Health{}, up: make(chan struct{})}
}

// Track starts to take outcomes of a feed, or of other requests that go by a name: what was tried ("list"), and how
// it went.
func (c *Contact) Track(name string, at Place, need Need) func(op string, err error) {
	h := &Health{Name: name, What: at.words(), need: need}
	c.mu.Lock()
	c.feeds[name] = h
	c.mu.Unlock()
	return func(op string, err error) { c.note(h, at, op, err) }
}

// Forget drops what is known of a feed that has ended.
func (c *Contact) Forget(name string) {
	c.mu.Lock()
	delete(c.feeds, name)
	c.mu.Unlock()
	c.changed()
}

func (c *Contact) note(h *Health, at Place, op string, err error) {
	f, text := c.explain(at, op, err)
	if f != failNone {
		c.failed(h.Name, f)
	}
	c.mu.Lock()
	changed := h.note(f, text)
	switch {
	case f == failContact:
		c.down = c.down || c.silent()
	case c.down:
		c.down = false
		close(c.up)
		c.up = make(chan struct{})
	}
	c.mu.Unlock()
	if changed {
		c.changed()
	}
}

// note takes the outcome of one more request. It reports whether anything has changed.
func (h *Health) note(f Failure, text string) bool {
	before := *h
	switch {
	case f == failNone:
		h.fails = 0
	case f.answered() != h.failure.answered():
		h.fails = 1
	default:
		h.fails = min(h.fails+1, forGood)
	}
	h.failure, h.Text = f, text
	return before != *h
}

// silent reports that nothing that is required has an answer: they are always asked for, so this is
// noticed at once, and one request that never succeeds is not taken for it.
func (c *Contact) silent() bool {
	for _, h := range c.feeds {
		if h.need == Required && h.failure != failContact {
			return false
		}
	}
	return true
}

// Back is closed when the API server answers again: there is no need to wait any longer.
func (c *Contact) Back() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.up
}

// Pause waits before the next attempt. It reports whether ctx has not ended meanwhile.
func (c *Contact) Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-c.Back():
	}
	return true
}

// Of gives how a feed's last request went.
func (c *Contact) Of(name string) Health {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.feeds[name]; h != nil {
		return *h
	}
	return Health{}
}

// Lost says why what is known may be outdated; "" if they are not. One answer that promises better luck is
// none yet, and what may be missing does not count.
func (c *Contact) Lost() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var worst Health
	for _, h := range c.feeds {
		counts := h.failure == failContact || h.failure == failRefused || h.need == Required &&
			(h.failure == failDenied || h.failure == failMissing || h.failure == failServer && h.fails > 1)
		if !counts || h.failure < worst.failure || h.failure == worst.failure && worst.Name < h.Name && worst.Name != "" {
			continue
		}
		worst = *h
	}
	return worst.Text
}

// Hopeless lists feeds that are done without, and of which that is to be said, by name.
func (c *Contact) Hopeless() []Health {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Health
	for _, h := range c.feeds {
		if h.need == Optional && h.Hopeless() {
			out = append(out, *h)
		}
	}
	slices.SortFunc(out, func(a, b Health) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
