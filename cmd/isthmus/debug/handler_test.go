package debug_test

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug/debugtest"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/test/golden"
)

// local is a request from this machine.
func local(path string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8080"+path, nil)
	r.RemoteAddr = "127.0.0.1:40000"
	return r
}

func serve(o debug.Options, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	debug.New(o).ServeHTTP(w, r)
	return w
}

func options() debug.Options {
	return debugtest.Options(debugtest.Connected(json.RawMessage(`{"configs": []}`)))
}

func TestGolden(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{
		"clusterz":        "/debug/clusterz",
		"registryz":       "/debug/registryz",
		"registryz-bank":  "/debug/registryz?namespace=bank",
		"servicez":        "/debug/servicez?host=reviews",
		"servicez-proxy":  "/debug/servicez?host=reviews&proxyID=web-1.shop&cluster=west",
		"servicez-hidden": "/debug/servicez?host=ratings.example.com&proxyID=web-1.shop&cluster=west",
		"servicez-orphan": "/debug/servicez?host=legacy.shop",
		"endpointz":       "/debug/endpointz",
		"configz":         "/debug/configz",
		"mesh":            "/debug/mesh",
		"networkz":        "/debug/networkz",
		"push_status":     "/debug/push_status",
		"connections":     "/debug/connections",
		"syncz":           "/debug/syncz",
		"index":           "/debug",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := serve(options(), local(path))
			if w.Code != http.StatusOK {
				t.Fatalf("%d: %s", w.Code, w.Body)
			}
			compare(t, name, w.Body.Bytes())
		})
	}
}

func compare(t *testing.T, name string, got []byte) {
	t.Helper()
	// Protobuf's JSON varies its spacing from build to build.
	if json.Valid(got) {
		var v any
		if err := json.Unmarshal(got, &v); err != nil {
			t.Fatal(err)
		}
		got, _ = json.MarshalIndent(v, "", "  ")
		got = append(got, '\n')
	}
	golden.Compare(t, filepath.Join("testdata", name+".golden"), string(got))
}

func TestErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]struct {
		code int
		text string
	}{
		"/debug/servicez":                                   {http.StatusBadRequest, "?host=HOST"},
		"/debug/servicez?host=none.shop":                    {http.StatusNotFound, "isthmus service list"},
		"/debug/servicez?host=reviews&namespace=bank":       {http.StatusNotFound, "in namespace bank"},
		"/debug/servicez?host=reviews&proxyID=nobody.shop":  {http.StatusNotFound, "isthmus proxy list"},
		"/debug/endpointz?host=none":                        {http.StatusNotFound, "no service"},
		"/debug/config_dump":                                {http.StatusBadRequest, "?proxyID="},
		"/debug/config_dump?proxyID=nobody.shop":            {http.StatusNotFound, "isthmus proxy list"},
		"/debug/config_dump?proxyID=web-1.shop":             {http.StatusBadRequest, "ambiguous"},
		"/debug/config_dump?proxyID=gateway-1.edge&types=x": {http.StatusBadRequest, "none of cds, eds, lds, rds"},
		"/debug/nothing":                                    {http.StatusNotFound, "not found"},
	} {
		w := serve(options(), local(path))
		if w.Code != want.code || !strings.Contains(w.Body.String(), want.text) {
			t.Errorf("%s: %d %q, want %d and %q", path, w.Code, w.Body, want.code, want.text)
		}
	}
}

func TestConfigDumpGoesToTheNamedProxy(t *testing.T) {
	t.Parallel()
	for _, query := range []string{"proxyID=gateway-1.edge", "proxyID=web-1.shop&cluster=east", "proxyID=sidecar~10.20.0.5~web-1.shop~shop.svc.cluster.local&types=cds,eds"} {
		if w := serve(options(), local("/debug/config_dump?"+query)); w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
}

func TestReady(t *testing.T) {
	t.Parallel()
	r := local("/ready")
	r.RemoteAddr, r.Host = "203.0.113.9:40000", "hub.example"
	if w := serve(options(), r); w.Code != http.StatusOK {
		t.Errorf("open gate: %d %s", w.Code, w.Body)
	}
	o := options()
	o.Ready = func() error { return errors.New("waiting for west") }
	if w := serve(o, r); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "waiting for west") {
		t.Errorf("closed gate: %d %s", w.Code, w.Body)
	}
}

func TestBeforeTheFirstCommit(t *testing.T) {
	t.Parallel()
	o := options()
	o.Snapshot = func() *pushcontext.PushContext { return nil }
	for _, p := range debug.Paths() {
		w := serve(o, local(p.Pattern+"?proxyID=gateway-1.edge&host=reviews"))
		if w.Code != http.StatusOK && w.Code != http.StatusServiceUnavailable {
			t.Errorf("%s: %d %s", p.Pattern, w.Code, w.Body)
		}
	}
	if w := serve(o, local("/debug/clusterz")); w.Code != http.StatusOK {
		t.Errorf("clusterz: %d %s", w.Code, w.Body)
	}
}

func TestOnlyGET(t *testing.T) {
	t.Parallel()
	r := local("/debug/clusterz")
	r.Method = http.MethodPost
	if w := serve(options(), r); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}

// Incident 17: nobody elsewhere reads the configuration of the mesh through a debug port.
func TestIncident17DebugIsLoopbackOnly(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, remote, host string
		header             [2]string
		ok                 bool
	}{
		{name: "v4", remote: "127.0.0.1:1", host: "127.0.0.1:8080", ok: true},
		{name: "v6", remote: "[::1]:1", host: "[::1]:8080", ok: true},
		{name: "mapped", remote: "[::ffff:127.0.0.1]:1", host: "localhost", ok: true},
		{name: "other loopback address", remote: "127.0.0.9:1", host: "127.0.0.9:8080", ok: true},
		{name: "port forward", remote: "127.0.0.1:1", host: "LOCALHOST:18080", ok: true},
		{name: "other machine", remote: "10.0.0.1:1", host: "127.0.0.1:8080"},
		{name: "no address", remote: "@", host: "127.0.0.1:8080"},
		{name: "rebound name", remote: "127.0.0.1:1", host: "attacker.example:8080"},
		{name: "name that starts as an address", remote: "127.0.0.1:1", host: "127.0.0.1.attacker.example"},
		{name: "no host", remote: "127.0.0.1:1"},
		{name: "behind a proxy", remote: "127.0.0.1:1", host: "127.0.0.1", header: [2]string{"X-Forwarded-For", "203.0.113.9"}},
		{name: "forwarded", remote: "127.0.0.1:1", host: "127.0.0.1", header: [2]string{"Forwarded", "for=203.0.113.9"}},
		{name: "other site's page", remote: "127.0.0.1:1", host: "127.0.0.1", header: [2]string{"Sec-Fetch-Site", "cross-site"}},
		{name: "typed address", remote: "127.0.0.1:1", host: "127.0.0.1", header: [2]string{"Sec-Fetch-Site", "none"}, ok: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, path := range []string{"/debug", "/debug/clusterz", "/debug/pprof/cmdline"} {
				r := local(path)
				r.RemoteAddr, r.Host = tt.remote, tt.host
				if tt.header[0] != "" {
					r.Header.Set(tt.header[0], tt.header[1])
				}
				if w := serve(options(), r); (w.Code == http.StatusOK) != tt.ok || (!tt.ok && w.Code != http.StatusForbidden) {
					t.Errorf("%s: %d %s", path, w.Code, w.Body)
				}
			}
		})
	}
}

// FuzzHostHeader: a Host that is let through names this machine and nothing else.
func FuzzHostHeader(f *testing.F) {
	for _, h := range []string{"127.0.0.1:8080", "[::1]:8080", "localhost", "127.0.0.1.example", "::1", "[127.0.0.1", "127.0.0.1:x:y"} {
		f.Add(h)
	}
	f.Fuzz(func(t *testing.T, host string) {
		r := local("/debug")
		r.Host = host
		let := false
		debug.LoopbackOnly(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { let = true })).ServeHTTP(httptest.NewRecorder(), r)
		if !let {
			return
		}
		name, _, err := net.SplitHostPort(host)
		if err != nil {
			name = strings.Trim(host, "[]")
		}
		if ip := net.ParseIP(strings.SplitN(name, "%", 2)[0]); !strings.EqualFold(name, "localhost") && (ip == nil || !ip.IsLoopback()) {
			t.Errorf("Host %q is let through", host)
		}
	})
}
