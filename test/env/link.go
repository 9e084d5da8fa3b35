package env

import (
	"crypto/tls"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// Request is what a link saw of a request.
type Request struct {
	Token string // the bearer token
	Path  string
	Watch bool // it asks for changes
}

// Link is a way to an API server that can be cut, hung and slowed, and that knows
// who asks for what. It ends TLS with a certificate of the same authority. It is
// safe for concurrent use.
type Link struct {
	// Read-only after Cluster.Link.
	URL    string
	ca     []byte
	server *http.Server
	socket *socket
	dialer *dialer // to the API server
	served sync.WaitGroup

	mu       sync.Mutex
	closed   bool // nothing is served any more
	requests []Request
	refused  map[string]bool // by token
	holds    []*hold
}

// hold stops the requests that it matches until released.
type hold struct {
	match func(Request) bool
	open  chan struct{}
}

// Link makes a way to the API server for the length of a test.
func (c *Cluster) Link(t testing.TB) *Link {
	t.Helper()
	at := netip.AddrPortFrom(c.machine.addrs.Addr(byte(2+c.links), byte(c.number+1)), apiPort)
	c.links++
	certs, err := c.machine.ca.server(at.Addr())
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	l := &Link{
		URL:     "https://" + at.String(),
		ca:      c.CA,
		socket:  newSocket(listener),
		dialer:  &dialer{},
		refused: map[string]bool{},
	}
	target, err := url.Parse(c.URL)
	if err != nil {
		t.Fatal(err)
	}
	l.serve(target, certs, l.dialer.transport(c.machine.ca))
	t.Cleanup(l.close)
	return l
}

func (l *Link) serve(target *url.URL, certs *tls.Config, out *http.Transport) {
	quiet := log.New(nowhere{}, "", 0)
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     out,
		FlushInterval: -1,
		ErrorLog:      quiet,
		// A server that is gone has no answer, not even an error page.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	l.server = &http.Server{TLSConfig: certs, ErrorLog: quiet, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !l.begin() {
			panic(http.ErrAbortHandler)
		}
		defer l.served.Done()
		if l.admit(w, r) {
			proxy.ServeHTTP(w, r)
		}
	})}
	l.served.Go(func() { _ = l.server.ServeTLS(l.socket, "", "") }) // ends with Close
}

type nowhere struct{}

func (nowhere) Write(p []byte) (int, error) { return len(p), nil }

// begin counts a request among those that close waits for, unless it comes too late: one that was read before the
// server closed may be handled after it has ended.
func (l *Link) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.served.Add(1)
	}
	return !l.closed
}

// admit notes a request and answers it if it may not pass.
func (l *Link) admit(w http.ResponseWriter, r *http.Request) bool {
	req := Request{
		Token: strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "),
		Path:  r.URL.Path,
		Watch: r.URL.Query().Get("watch") == "1" || r.URL.Query().Get("watch") == "true",
	}
	l.mu.Lock()
	l.requests = append(l.requests, req)
	refused := l.refused[req.Token]
	var waits []chan struct{}
	for _, h := range l.holds {
		if h.match(req) {
			waits = append(waits, h.open)
		}
	}
	l.mu.Unlock()
	for _, open := range waits {
		select {
		case <-open:
		case <-r.Context().Done():
			return false
		}
	}
	if refused {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",` +
			`"message":"Unauthorized","reason":"Unauthorized","code":401}`)) // the peer may be gone
		return false
	}
	return true
}

// Kubeconfig is a kubeconfig for the link with a bearer token.
func (l *Link) Kubeconfig(token string) []byte { return l.NamedKubeconfig("test", token) }

// NamedKubeconfig is one that calls the cluster so.
func (l *Link) NamedKubeconfig(cluster, token string) []byte {
	return kubeconfig(cluster, l.URL, l.ca, token)
}

// Config is for a client with the bearer token.
func (l *Link) Config(token string) *rest.Config {
	return &rest.Config{Host: l.URL, BearerToken: token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: l.ca}}
}

// Cut resets all connections, and new ones as they are made, until Restore.
func (l *Link) Cut() { l.socket.cut() }

// Hang makes the link swallow what it is sent and say nothing, on connections old
// and new, until Restore.
func (l *Link) Hang() { l.socket.hang() }

// Slow makes every read of what a client sends wait so long, until Restore.
func (l *Link) Slow(d time.Duration) { l.socket.slow(d) }

// Restore undoes Cut, Hang and Slow.
func (l *Link) Restore() { l.socket.restore() }

// DropConnections resets all connections; new ones are welcome. Clients have to
// open their watches again.
func (l *Link) DropConnections() { l.socket.drop() }

// Refuse answers 401 to every request with the token from now on, as a server does
// once a token has expired: watches that are open stay open.
func (l *Link) Refuse(token string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused[token] = true
}

// Accept undoes Refuse.
func (l *Link) Accept(token string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.refused, token)
}

// Hold stops the requests that match, as a server does that is slow to answer
// these, until release is called or the test ends.
func (l *Link) Hold(match func(Request) bool) (release func()) {
	h := &hold{match: match, open: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds = append(l.holds, h)
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for i := range l.holds {
			if l.holds[i] == h {
				l.holds = append(l.holds[:i:i], l.holds[i+1:]...)
				break
			}
		}
		close(h.open)
	})
}

// Requests lists all requests so far, in order, also those that were refused.
func (l *Link) Requests() []Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Request(nil), l.requests...)
}

// Count is how many requests so far match.
func (l *Link) Count(match func(Request) bool) (n int) {
	for _, r := range l.Requests() {
		if match(r) {
			n++
		}
	}
	return n
}

// By matches the requests with a token.
func By(token string) func(Request) bool {
	return func(r Request) bool { return r.Token == token }
}

func (l *Link) close() {
	l.socket.restore()
	_ = l.server.Close() // the listener and all connections, of which some may be gone
	l.socket.drop()
	l.dialer.end()
	l.finish()
}

// finish waits for what is being served, and lets nothing begin any more.
func (l *Link) finish() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.served.Wait()
}
