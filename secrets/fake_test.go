package secrets_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
)

// pipes is a listener without a network, so that whoever waits for it waits for nothing outside a synctest bubble.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipes) Close() error { p.once.Do(func() { close(p.done) }); return nil }

// Addr implements net.Listener.
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// serve is an API server that has the Secrets of a client, until the test ends. An error that is none of an API
// server's ends the connection.
func serve(t *testing.T, client *fake.Clientset) *rest.Config {
	t.Helper()
	p := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("/version", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, object{"major": "1"}) })
	mux.HandleFunc("/api/v1/namespaces/{namespace}/secrets", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		api, o := client.CoreV1().Secrets(r.PathValue("namespace")), metav1.ListOptions{LabelSelector: q.Get("labelSelector"), ResourceVersion: q.Get("resourceVersion")}
		if q.Get("watch") != "" {
			events, err := api.Watch(r.Context(), o)
			if refuse(w, err) {
				return
			}
			defer events.Stop()
			stream(w, r, events.ResultChan())
			return
		}
		list, err := api.List(r.Context(), o)
		if refuse(w, err) {
			return
		}
		list.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "SecretList"}
		answer(w, http.StatusOK, list)
	})
	srv := &http.Server{Handler: mux, ErrorLog: log.New(io.Discard, "", 0)}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(p) }()
	t.Cleanup(func() { _ = srv.Close(); <-done })
	return &rest.Config{Host: "http://fake", Dial: p.dial}
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

func refuse(w http.ResponseWriter, err error) bool {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return false
	case !errors.As(err, &status):
		panic(http.ErrAbortHandler)
	}
	s := status.Status()
	s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	answer(w, int(s.Code), s)
	return true
}

func stream(w http.ResponseWriter, r *http.Request, events <-chan apiwatch.Event) {
	w.Header().Set("Content-Type", "application/json")
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case ev, ok := <-events:
			if !ok {
				return
			}
			s := ev.Object.(*corev1.Secret).DeepCopy()
			s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}
			_ = json.NewEncoder(w).Encode(object{"type": ev.Type, "object": s})
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			return
		}
	}
}
