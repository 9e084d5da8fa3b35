package kubeapi

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// wire is a listener without a network, so that time passes at once in a synctest bubble.
type wire struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l wire) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l wire) Close() error   { close(l.done); return nil }
func (l wire) Addr() net.Addr { return &net.UnixAddr{Name: "wire"} }

func (l wire) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// listsInAnHour counts the lists of a way to read a server whose watches end as told.
func listsInAnHour(t *testing.T, w way, watch http.HandlerFunc) (lists int) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		srv := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", runtime.ContentTypeJSON)
			if r.URL.Query().Get("watch") != "" {
				watch(w, r)
				return
			}
			asked.Add(1)
			_, _ = fmt.Fprint(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"100"},"items":[]}`)
		})}
		l, served := wire{make(chan net.Conn), make(chan struct{})}, make(chan struct{})
		go func() { defer close(served); _ = srv.Serve(l) }()
		c, err := Connect(Options{Config: &rest.Config{Host: "http://api", Dial: l.dial}, QPS: 1e6, Burst: 1e6})
		if err != nil {
			t.Fatal(err)
		}
		_, end := w.begin(t, c)
		time.Sleep(time.Hour) // of the bubble
		end()
		c.Close()
		_ = srv.Close()
		<-served
		lists = int(asked.Load())
	})
	return lists
}

// A watch that ends is no reason to list everything again, unless the server says that it can't go on. What
// client-go's reflector does with the same server, and its own pauses, is logged.
func TestListsInAnHour(t *testing.T) {
	t.Parallel()
	open := func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }
	last := func(r *http.Request, d time.Duration) {
		select {
		case <-time.After(d):
		case <-r.Context().Done():
		}
	}
	for _, c := range []struct {
		name  string
		watch http.HandlerFunc
		most  int // lists of the feed
	}{
		{"ends at once", func(w http.ResponseWriter, _ *http.Request) { open(w) }, 1},
		{"breaks at once", func(w http.ResponseWriter, _ *http.Request) { open(w); panic(http.ErrAbortHandler) }, 1},
		{"ends after 1 s", func(w http.ResponseWriter, r *http.Request) { open(w); last(r, time.Second) }, 1},
		{"ends after 1 min", func(w http.ResponseWriter, r *http.Request) { open(w); last(r, time.Minute) }, 1},
		{"breaks after 1 min", func(w http.ResponseWriter, r *http.Request) {
			open(w)
			last(r, time.Minute)
			panic(http.ErrAbortHandler)
		}, 1},
		{"is refused as too old (410)", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusGone)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"reason":"Expired"}`)
		}, 400},
	} {
		feed, reflector := listsInAnHour(t, ways()[0], c.watch), listsInAnHour(t, plainReflector(), c.watch)
		t.Logf("a watch that %s: %d lists by the feed, %d by a reflector", c.name, feed, reflector)
		if feed > c.most {
			t.Errorf("a watch that %s: %d lists in an hour", c.name, feed)
		}
	}
}
