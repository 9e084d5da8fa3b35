package kubeapi

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func answer(code int32) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: map[int32]metav1.StatusReason{403: metav1.StatusReasonForbidden}[code]}}
}

var (
	errSilent = errors.New("no answer")
	forbidden = answer(http.StatusForbidden)
	busy      = answer(http.StatusServiceUnavailable)
)

// What is refused once is not given up, and what is refused for long has been taken.
func TestIncident14RefusalsInARow(t *testing.T) {
	t.Parallel()
	repeat := func(n int, err error) (out []error) {
		for range n {
			out = append(out, err)
		}
		return out
	}
	for name, c := range map[string]struct {
		need              Need
		outcomes          []error
		hopeless, revoked bool
	}{
		"one refusal":                   {Optional, []error{forbidden}, false, false},
		"four refusals":                 {Optional, repeat(4, forbidden), false, false},
		"five refusals":                 {Optional, repeat(5, forbidden), true, false},
		"eight refusals":                {Optional, repeat(8, forbidden), true, true},
		"eight failures":                {Optional, repeat(8, busy), true, false},
		"refusals with an answer":       {Optional, append(append(repeat(4, forbidden), nil), repeat(4, forbidden)...), false, false},
		"a refusal after an outage":     {Optional, append(repeat(20, errSilent), forbidden), false, false},
		"failures, then refusals":       {Optional, append(repeat(4, busy), forbidden), true, false},
		"no answer":                     {Optional, repeat(20, errSilent), false, false},
		"a credential that is refused":  {Optional, repeat(20, answer(401)), false, false},
		"what must be":                  {Required, repeat(20, forbidden), false, true},
		"refusals around another fault": {Optional, append(append(repeat(3, forbidden), errSilent), repeat(3, forbidden)...), false, false},
	} {
		ct := newContact("host", Options{}.withDefaults())
		outcome := ct.Track("kind", Place{Resource: "kinds"}, c.need)
		for _, err := range c.outcomes {
			outcome("list", err)
		}
		if h := ct.Of("kind"); h.Hopeless() != c.hopeless || h.Revoked() != c.revoked {
			t.Errorf("%s: hopeless %v, revoked %v; want %v, %v", name, h.Hopeless(), h.Revoked(), c.hopeless, c.revoked)
		}
	}
}

// Pauses double whatever the failure is. When a server that was silent answers, they are short again: it has
// just started and may refuse what it will allow in a moment. One that keeps going away gains nothing by that.
func TestIncident11PausesAreShortWhenAServerIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		timing := Timing{}.withDefaults()
		b := timing.backoff()
		pauses := func(n int, err error) (total time.Duration) {
			for range n {
				d := b.After(err)
				total += d
				time.Sleep(d) // of the bubble
			}
			return total
		}
		if d := pauses(5, forbidden); d > 10*time.Second {
			t.Errorf("five refusals take %v", d)
		}
		pauses(20, forbidden)
		if d := b.After(forbidden); d > 20*time.Second {
			t.Errorf("a right that was granted is noticed after %v", d)
		}
		pauses(20, errSilent)
		if d := pauses(4, forbidden); d > 5*time.Second {
			t.Errorf("four refusals after an outage take %v", d)
		}
		var all time.Duration
		for range 100 {
			all += pauses(1, errSilent) + pauses(1, forbidden)
		}
		if all < 100*time.Second {
			t.Errorf("a server that keeps going away is asked 200 times within %v", all)
		}
	})
}

// Pauses end early when a server that answered nothing answers again, and not because one request of many
// never succeeds.
func TestWhatCutsPausesShort(t *testing.T) {
	t.Parallel()
	ct := newContact("host", Options{}.withDefaults())
	pods := ct.Track("pods", Place{}, Required)
	services := ct.Track("services", Place{}, Required)
	other := ct.Track("other", Place{}, Optional)
	cut := func(outcomes func()) bool {
		up := ct.Back()
		outcomes()
		select {
		case <-up:
			return true
		default:
			return false
		}
	}
	if cut(func() {
		other("list", errSilent)
		pods("list", nil)
		services("list", nil)
		other("list", errSilent)
		services("watch", nil)
	}) {
		t.Error("an optional kind whose lists never end wakes all others")
	}
	if cut(func() {
		pods("list", errSilent)
		services("list", nil)
		pods("list", errSilent)
		services("watch", nil)
	}) {
		t.Error("a required kind whose lists never end wakes itself")
	}
	if !cut(func() { services("watch", errSilent); pods("watch", errSilent); pods("watch", nil) }) {
		t.Error("a server that is back wakes nobody")
	}
	if !cut(func() { pods("watch", errSilent); other("list", forbidden) }) {
		t.Error("a server that is back wakes nobody, since it refuses")
	}
}

// Pauses grow to a limit; what was refused waits for somebody to act.
func TestBackoff(t *testing.T) {
	t.Parallel()
	b := Timing{Retry: time.Second, RetryMax: 4 * time.Second}.withDefaults().backoff()
	for _, want := range []time.Duration{1, 2, 4, 4, 4} {
		if d := b.After(nil); d < want*time.Second || d > want*time.Second*3/2 {
			t.Errorf("pause %v, want %v and up to half more", d, want*time.Second)
		}
	}
	b.Reset()
	if d := b.After(nil); d > 3*time.Second/2 {
		t.Errorf("pause %v after a reset", d)
	}
}
