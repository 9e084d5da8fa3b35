package kube

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// failure is the kind of a failed request.
type failure int

const (
	failNone    failure = iota
	failServer          // an answer that promises better luck later: 429, 5xx
	failMissing         // 404: nobody serves this
	failDenied          // 403
	failContact         // no answer
	failRefused         // 401
)

var failureNames = [...]string{"none", "server", "missing", "denied", "contact", "refused"}

// answered reports that the server takes the credential and has said how it is.
func (f failure) answered() bool { return f != failContact && f != failRefused }

// String gives a word for metrics.
func (f failure) String() string { return failureNames[f] }

// contact is what the requests of one run say of the API server. It is safe for concurrent use.
type contact struct {
	host   string
	failed func(kind string, f failure) // counts
	wake   func()

	mu    sync.Mutex
	feeds map[string]*health
	down  bool          // the last requests for all that is required had no answer
	up    chan struct{} // closed and renewed when there is one again
}

// need says what a feed is to the registry.
type need int

const (
	requiredKind need = iota // nothing goes without it
	optionalKind             // it is done without, and that is said
	helpfulKind              // it is done without
)

// health is how the last requests of one feed went.
type health struct {
	kind    string
	what    string // in words: "pods"
	need    need
	failure failure
	fails   int // in a row: with answers, or without
	text    string
}

// hopeless reports that a feed which can be done without is not waited for: a right is missing, or the
// server fails for this kind, and that is so again and again. A server that has just started refuses what
// it will allow in a moment, so one refusal means nothing.
func (h health) hopeless() bool {
	return h.need != requiredKind && h.fails >= patience && (h.failure == failDenied || h.failure == failServer)
}

// refused reports that it is hopeless because a right is missing.
func (h health) refused() bool { return h.hopeless() && h.failure == failDenied }

// revoked reports that a right is missing for so long that somebody must have taken it.
func (h health) revoked() bool { return h.failure == failDenied && h.fails >= forGood }

// How many failures in a row are not passed over any more. Between them are the pauses of a backoff: with
// the default timing the fifth is 3 to 4.5 s after the first, the eighth 25 to 38 s.
const (
	patience = 5
	forGood  = 8
)

func newContact(host string, failed func(string, failure), wake func()) *contact {
	return &contact{host: host, failed: failed, wake: wake, feeds: map[string]*health{}, up: make(chan struct{})}
}

// track starts to take outcomes of a feed.
func (c *contact) track(kind string, at place, need need) func(op string, err error) {
	h := &health{kind: kind, what: at.words(), need: need}
	c.mu.Lock()
	c.feeds[kind] = h
	c.mu.Unlock()
	return func(op string, err error) { c.note(h, at, op, err) }
}

// forget drops what is known of a feed that has ended.
func (c *contact) forget(kind string) {
	c.mu.Lock()
	delete(c.feeds, kind)
	c.mu.Unlock()
	c.wake()
}

func (c *contact) note(h *health, at place, op string, err error) {
	f, text := c.explain(at, op, err)
	if f != failNone {
		c.failed(h.kind, f)
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
		c.wake()
	}
}

// note takes the outcome of one more request. It reports whether anything has changed.
func (h *health) note(f failure, text string) bool {
	before := *h
	switch {
	case f == failNone:
		h.fails = 0
	case f.answered() != h.failure.answered():
		h.fails = 1
	default:
		h.fails = min(h.fails+1, forGood)
	}
	h.failure, h.text = f, text
	return before != *h
}

// silent reports that nothing that is required has an answer: they are always asked for, so this is
// noticed at once, and one request that never succeeds is not taken for it.
func (c *contact) silent() bool {
	for _, h := range c.feeds {
		if h.need == requiredKind && h.failure != failContact {
			return false
		}
	}
	return true
}

// back is closed when the API server answers again: there is no need to wait any longer.
func (c *contact) back() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.up
}

// pause waits before the next attempt. It reports whether ctx has not ended meanwhile.
func (c *contact) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-c.back():
	}
	return true
}

// of gives how a feed's last request went.
func (c *contact) of(kind string) health {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.feeds[kind]; h != nil {
		return *h
	}
	return health{}
}

// lost says why the rows may be outdated; "" if they are not. One answer that promises better luck is
// none yet, and what may be missing does not count.
func (c *contact) lost() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var worst health
	for _, h := range c.feeds {
		counts := h.failure == failContact || h.failure == failRefused || h.need == requiredKind &&
			(h.failure == failDenied || h.failure == failMissing || h.failure == failServer && h.fails > 1)
		if !counts || h.failure < worst.failure || h.failure == worst.failure && worst.kind < h.kind && worst.kind != "" {
			continue
		}
		worst = *h
	}
	return worst.text
}

// hopeless lists feeds that are done without, and of which that is to be said, by kind.
func (c *contact) hopeless() []health {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []health
	for _, h := range c.feeds {
		if h.need == optionalKind && h.hopeless() {
			out = append(out, *h)
		}
	}
	slices.SortFunc(out, func(a, b health) int { return cmp.Compare(a.kind, b.kind) })
	return out
}

// words names the objects: "pods", "serviceentries.networking.istio.io".
func (p place) words() string {
	w := p.resource
	if w == "" {
		return "kinds"
	}
	if p.group != "" {
		w += "." + p.group
	}
	if name, ok := strings.CutPrefix(p.fields, "metadata.name="); ok {
		w = strings.TrimSuffix(w, "s") + " " + p.namespace + "/" + name
	}
	return w
}

// answered reports that an error is what the API server said, rather than that it said nothing.
func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.Is(err, errUnreadable) || errors.As(err, &status)
}

// explain sorts an error and says in a sentence what to do. Texts hold nothing that changes between
// attempts, and nothing of a credential.
func (c *contact) explain(at place, op string, err error) (failure, string) {
	if err == nil {
		return failNone, ""
	}
	if errors.Is(err, errUnreadable) {
		return failServer, fmt.Sprintf("what %s gives as %s can't be read; it is asked again", c.host, at.words())
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return failContact, c.unreached(err)
	}
	switch code := status.Status().Code; {
	case code == http.StatusUnauthorized:
		return failRefused, c.host + " refuses the credential (401): it has expired or was revoked; give the cluster a new one"
	case code == http.StatusForbidden && (at.resource == "" || op == lookFor):
		return failDenied, "the right to see which kinds are served is missing (403): bind the cluster role system:discovery to the credential's account"
	case code == http.StatusForbidden:
		return failDenied, fmt.Sprintf("the right to %s %s is missing (403): allow get, list and watch of it to the credential's account", op, at.words())
	case code == http.StatusNotFound:
		return failMissing, fmt.Sprintf("%s does not serve %s (404)", c.host, at.words())
	case code == http.StatusTooManyRequests:
		return failServer, c.host + " is overloaded (429); it is asked again"
	case code >= 300 && code < 400:
		return failContact, fmt.Sprintf("%s redirects elsewhere (%d), which is not followed: give the address of the API server itself", c.host, code)
	default:
		return failServer, fmt.Sprintf("%s fails to %s %s (%d); it is asked again", c.host, op, at.words(), code)
	}
}

// unreached explains an error without an answer.
func (c *contact) unreached(err error) string {
	var dns *net.DNSError
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var alert tls.AlertError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &dns):
		return "the name " + clip(dns.Name) + " can't be resolved: check the address of the API server in the kubeconfig, and the hub's DNS"
	case utilnet.IsConnectionRefused(err):
		return c.host + " refuses connections: check that the API server runs, and its address in the kubeconfig"
	case errors.As(err, &unknown):
		return "the certificate of " + c.host + " is not signed by the kubeconfig's authority: give its certificate-authority-data"
	case errors.As(err, &name):
		return "the certificate of " + c.host + " is not for that name: use one that it names, or set tls-server-name"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the certificate of " + c.host + " has expired or is not valid yet: renew it, and check the clocks"
	case errors.As(err, &invalid):
		return "the certificate of " + c.host + " is not valid"
	case errors.As(err, &alert):
		return c.host + " refuses the TLS connection (" + clip(alert.Error()) + "): check the client certificate in the kubeconfig"
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return c.host + " does not speak TLS: check the scheme and the port of the API server in the kubeconfig"
	case timedOut(err):
		return c.host + " does not answer: check the network and the firewalls between the hub and the API server"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return c.host + " can't be reached (no route): check the network between the hub and the API server"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), utilnet.IsConnectionReset(err), errors.Is(err, net.ErrClosed):
		return c.host + " closes connections: check what stands between the hub and the API server"
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return c.host + " can't be reached: " + clip(err.Error())
}

func timedOut(err error) bool {
	var t interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &t) && t.Timeout() ||
		strings.Contains(err.Error(), "client connection lost") // what a connection without sign of life ends with
}

// hostOf gives the host and port of an API server's address.
func hostOf(address string) string {
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		return u.Host
	}
	return clip(address)
}
