package env

import (
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"
)

// Front is a way to a server that speaks plain HTTP, which can be cut, hung and slowed, and that knows what is asked for. It is
// safe for concurrent use.
type Front struct {
	URL    string // read-only
	socket *socket

	mu     sync.Mutex
	asked  []*url.URL
	at     int // requests that are being answered
	most   int // at once
	closed bool
}

// NewFront makes a way to a server for the length of a test.
func NewFront(t testing.TB, server string) *Front {
	t.Helper()
	target, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &Front{URL: "http://" + listener.Addr().String(), socket: newSocket(listener)}
	out := &http.Transport{DisableKeepAlives: true}
	quiet := log.New(nowhere{}, "", 0)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: out, FlushInterval: -1, ErrorLog: quiet,
		// A server that is gone has no answer, not even an error page.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	var served sync.WaitGroup
	begin := func(u *url.URL) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.closed {
			return false
		}
		served.Add(1)
		f.asked = append(f.asked, u)
		f.at++
		f.most = max(f.most, f.at)
		return true
	}
	srv := &http.Server{ErrorLog: quiet, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !begin(r.URL) {
			panic(http.ErrAbortHandler)
		}
		defer func() {
			f.mu.Lock()
			f.at--
			f.mu.Unlock()
			served.Done()
		}()
		proxy.ServeHTTP(w, r)
	})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.Serve(f.socket) }) // ends with Close
	t.Cleanup(func() {
		f.socket.restore()
		_ = srv.Close() // the listener and all connections, of which some may be gone
		f.socket.drop()
		serving.Wait()
		f.mu.Lock()
		f.closed = true
		f.mu.Unlock()
		served.Wait()
		out.CloseIdleConnections()
	})
	return f
}

// Cut resets all connections, and new ones as they are made, until Restore.
func (f *Front) Cut() { f.socket.cut() }

// Hang makes it swallow what it is sent and say nothing, until Restore.
func (f *Front) Hang() { f.socket.hang() }

// Slow makes every read of what a client sends wait so long, until Restore.
func (f *Front) Slow(d time.Duration) { f.socket.slow(d) }

// Restore undoes Cut, Hang and Slow.
func (f *Front) Restore() { f.socket.restore() }

// Drop resets all connections; new ones are welcome.
func (f *Front) Drop() { f.socket.drop() }

// Asked are the URLs of all requests so far.
func (f *Front) Asked() []*url.URL {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*url.URL(nil), f.asked...)
}

// Most is how many requests there were at once.
func (f *Front) Most() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.most
}
