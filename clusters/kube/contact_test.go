package kube_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

const apiService = `
kind: Service
metadata: {name: api, namespace: shop}
spec: {clusterIP: 10.0.0.2, ports: [{name: http, port: 80}]}`

// What changed while an API server did not answer is seen once it does, and nothing was dropped meanwhile.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.apply(web)
	w := watch(t, kube.New(options(s)))
	w.awaitRows(webRows...)
	w.awaitState(model.StateLive)
	s.line.hang(true)
	w.awaitState(model.StateStale)
	w.awaitErr("does not answer", "firewalls")
	w.awaitRows(webRows...)
	s.apply(apiService)
	s.remove("pods", "shop/web-a")
	s.line.hang(false)
	w.awaitState(model.StateLive)
	w.awaitRows(append([]string{"service Service/shop/api"}, webRows[:2]...)...)
	if w.status.Err != "" {
		t.Errorf("err %q while live", w.status.Err)
	}
}

func TestConnectionRefused(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host := l.Addr().String()
	l.Close()
	w := watch(t, kube.New(kube.Options{Cluster: "c1", Config: &rest.Config{Host: "https://" + host}, Timing: quick}))
	w.awaitErr(host + " refuses connections")
	if w.status.State != model.StateSyncing || w.replaces > 0 {
		t.Errorf("status %+v, %d replaces", w.status, w.replaces)
	}
}

// A token is only looked at when a watch opens: the fault shows then, and a new instance with another
// token does without it.
func TestIncident13ExpiredToken(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.apply(web)
	logs := &logBook{}
	o := options(s)
	o.Log = logs.logger()
	old := watch(t, kube.New(o))
	old.awaitRows(webRows...)
	s.change(func() { s.bad["secret-token"] = true; s.epoch++ })
	old.awaitState(model.StateStale)
	old.awaitErr("refuses the credential (401)", "give the cluster a new one")
	old.awaitRows(webRows...)
	o.Config.BearerToken = "other-token"
	next := watch(t, kube.New(o))
	next.awaitRows(webRows...)
	old.stop()
	s.awaitConns(1)
	s.remove("pods", "shop/web-a") // until it is seen, what was under way has arrived
	next.awaitRows(webRows[:2]...)
	before := s.count(func(r request) bool { return r.token == "secret-token" })
	s.change(func() { s.epoch++ })
	s.apply(apiService)
	next.awaitRows(append([]string{"service Service/shop/api"}, webRows[:2]...)...)
	if n := s.count(func(r request) bool { return r.token == "secret-token" }); n != before {
		t.Errorf("%d requests with the old token after it was replaced", n-before)
	}
	if strings.Contains(logs.String(), "-token") {
		t.Errorf("a token is logged:\n%s", logs)
	}
}

// A token in a file is read again when it is refused.
func TestIncident13TokenFile(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.apply(web)
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	o := options(s)
	o.Config.BearerToken, o.Config.BearerTokenFile = "", file
	w := watch(t, kube.New(o))
	w.awaitRows(webRows...)
	s.change(func() { s.bad["one"] = true; s.epoch++ })
	w.awaitState(model.StateStale)
	write("two")
	w.awaitState(model.StateLive)
	s.apply(apiService)
	w.awaitRows(append([]string{"service Service/shop/api"}, webRows...)...)
}

// An authority in a file is read again when a server's certificate is of another one: an API server that comes
// back with a certificate of a renewed authority is trusted as soon as the file is.
func TestAuthorityInAFileIsRenewed(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.apply(web)
	file := filepath.Join(t.TempDir(), "ca.crt")
	write := func(pem []byte) {
		if err := os.WriteFile(file, pem, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := options(s)
	write(o.Config.CAData)
	o.Config.CAData, o.Config.CAFile = nil, file
	w := watch(t, kube.New(o))
	w.awaitRows(webRows...)
	authority := s.renew()
	w.awaitErr("is not signed by the kubeconfig's authority")
	write([]byte("half a file"))
	w.turn()
	write(authority)
	w.awaitState(model.StateLive)
	s.apply(apiService)
	w.awaitRows(append([]string{"service Service/shop/api"}, webRows...)...)
	w.stop()
	s.awaitConns(0)
}

// Without a required right nothing is told but which one is missing.
func TestRequiredRight(t *testing.T) {
	t.Parallel()
	for _, right := range []string{"list pods", "list endpointslices.discovery.k8s.io"} {
		t.Run(right, func(t *testing.T) {
			t.Parallel()
			s := newAPIServer(t)
			s.apply(web)
			s.deny(right)
			w := watch(t, kube.New(options(s)))
			w.awaitErr("the right to "+right+" is missing (403)", "allow list and watch of it", "deploy/rbac-remote.yaml")
			if w.replaces > 0 || w.status.State != model.StateSyncing {
				t.Errorf("%d replaces, status %+v", w.replaces, w.status)
			}
			s.allow(right)
			w.awaitRows(webRows...)
			w.awaitState(model.StateLive)
		})
	}
}

func TestRequiredRightIsTaken(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.apply(web)
	w := watch(t, kube.New(options(s)))
	w.awaitRows(webRows...)
	s.deny("watch nodes")
	w.awaitState(model.StateStale)
	w.awaitErr("the right to watch nodes is missing (403)")
	w.awaitRows(webRows...)
	s.allow("watch nodes")
	w.awaitState(model.StateLive)
}

// A server that is overloaded, or starts, is asked again; one such answer is nothing to report.
func TestServerErrors(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.apply(web)
	s.fail("", http.StatusServiceUnavailable)
	w := watch(t, kube.New(options(s)))
	w.awaitErr("(503); it is asked again")
	s.fail("", 0)
	w.awaitRows(webRows...)
	w.awaitState(model.StateLive)
	s.fail("", http.StatusTooManyRequests)
	w.awaitState(model.StateStale)
	w.awaitErr("overloaded (429)")
	s.apply(apiService)
	s.fail("", 0)
	w.awaitState(model.StateLive)
	w.awaitRows(append([]string{"service Service/shop/api"}, webRows...)...)
}

// Whatever the connection fails by, the reason says what to do.
func TestReasonsForNoContact(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	elsewhere := httptest.NewServer(http.RedirectHandler(plain.URL, http.StatusFound))
	t.Cleanup(elsewhere.Close)
	other := newAPIServer(t)
	for name, c := range map[string]struct {
		change func(*rest.Config)
		want   string
	}{
		"another authority": {func(c *rest.Config) { c.CAData = nil }, "is not signed by the kubeconfig's authority"},
		"another name":      {func(c *rest.Config) { c.ServerName = "elsewhere.test" }, "is not for that name"},
		"no TLS":            {func(c *rest.Config) { c.Host = strings.Replace(plain.URL, "http:", "https:", 1) }, "does not speak TLS"},
		"no such name":      {func(c *rest.Config) { c.Host = "https://nowhere.invalid:6443" }, "the name nowhere.invalid can't be resolved"},
		"redirect":          {func(c *rest.Config) { c.Host, c.CAData = elsewhere.URL, nil }, "redirects elsewhere (302)"},
		"refused token":     {func(c *rest.Config) { c.Host, c.BearerToken = other.srv.URL, "bad"; other.bad["bad"] = true }, "refuses the credential (401)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(s)
			c.change(o.Config)
			w := watch(t, kube.New(o))
			w.awaitErr(c.want)
			if strings.Contains(w.status.Err, "token") || strings.Contains(w.status.Err, "bad") {
				t.Errorf("a token is in %q", w.status.Err)
			}
		})
	}
}

// A configuration that can't be used ends the run at once.
func TestUnusableConfiguration(t *testing.T) {
	t.Parallel()
	reg := kube.New(kube.Options{Cluster: "c1", Config: &rest.Config{Host: "https://127.0.0.1:1", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("junk")}}})
	if err := reg.Run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "can't be used") {
		t.Errorf("Run: %v", err)
	}
}

// A run has few connections, and none is left when it has ended.
func TestConnectionsEnd(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.apply(web)
	w := watch(t, kube.New(options(s)))
	w.awaitRows(webRows...)
	if open, ever := s.line.conns(); open != 1 || ever != 1 {
		t.Errorf("%d connections open, %d ever; want 1", open, ever)
	}
	w.stop()
	s.awaitConns(0)
}

// awaitConns waits until a number of connections is open; an end is seen by the server a moment later.
func (s *apiServer) awaitConns(want int) {
	s.t.Helper()
	for range 4000 {
		if open, _ := s.line.conns(); open == want {
			return
		}
		(&watcher{changed: make(chan struct{})}).turn()
	}
	open, _ := s.line.conns()
	s.t.Errorf("%d connections open, want %d", open, want)
}
