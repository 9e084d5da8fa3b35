package envoy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// roads is a client whose sidecar takes all its traffic, two workloads, "v1" and "v2" (one with a sidecar, one without),
// and a machine outside the mesh. Every workload serves every port.
type roads struct {
	*mesh
	client, v1, v2, outside *envoytest.Namespace

	proxy    *proxy // of the client
	services byte   // made so far

	lock sync.Mutex
	seen map[string]int // requests by what their header x-id says
	host map[string]int // and by their host
}

// Ports of the workloads, beside webPort, apiPort, greeterPort and dbPort.
const securePort = 8443

const registryOnly = "outboundTrafficPolicy: {mode: REGISTRY_ONLY}"

func newRoads(t *testing.T, sotw bool) *roads {
	t.Helper()
	net := envoytest.NewNetwork(t, "client", "v1", "v2", "outside")
	w := &roads{mesh: newMesh(t), client: net.Namespace("client"), v1: net.Namespace("v1"), v2: net.Namespace("v2"), outside: net.Namespace("outside"),
		seen: map[string]int{}, host: map[string]int{}}
	serve := func(ns *envoytest.Namespace, kind envoytest.Kind, port uint16, handler http.Handler) {
		envoytest.StartBackend(t, envoytest.BackendOptions{Kind: kind, Name: ns.Name, Namespace: ns, Addr: podPort(ns, port), Handler: handler})
	}
	var objects []any
	for _, ns := range []*envoytest.Namespace{w.v1, w.v2} {
		serve(ns, envoytest.HTTP1, webPort, w.handler(ns.Name))
		serve(ns, envoytest.HTTP2, apiPort, w.handler(ns.Name))
		serve(ns, envoytest.GRPC, greeterPort, nil)
		serve(ns, envoytest.TCP, dbPort, nil)
		w.secure(t, ns)
		objects = append(objects, pod(ns.Name, ns.Addr.String(), "", map[string]string{"version": ns.Name}))
	}
	serve(w.outside, envoytest.HTTP1, 80, w.handler("outside"))
	serve(w.outside, envoytest.TCP, unknownPort, nil)
	objects = append(objects, pod("client", w.client.Addr.String(), "", nil))
	// What is not known yet is refused at once.
	w.startAt(t, files{"mesh.yaml": {registryOnly}, "east/all.yaml": objects}, netip.AddrPortFrom(net.Host, 15010).String())
	w.intercept(t, w.v1, sotw)
	w.proxy = w.intercept(t, w.client, sotw)
	return w
}

// handler answers as backends do, with the path as it was sent. A request may ask by its headers to be failed, or left
// without an answer, until x-id has been seen so many times, and for an upgrade.
func (w *roads) handler(name string) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.lock.Lock()
		w.seen[r.Header.Get("x-id")]++
		w.host[r.Host]++
		n := w.seen[r.Header.Get("x-id")]
		w.lock.Unlock()
		until := func(header string) bool {
			limit, err := strconv.Atoi(r.Header.Get(header))
			return err == nil && n <= limit
		}
		rw.Header().Set("x-backend", name)
		rw.Header().Set("x-served", "yes")
		switch {
		case until("x-fail"):
			rw.WriteHeader(http.StatusServiceUnavailable)
		case until("x-hang"):
			<-r.Context().Done()
		case r.Header.Get("Upgrade") != "":
			upgrade(rw, r, name)
		default:
			_ = json.NewEncoder(rw).Encode(envoytest.Answer{Name: name, Proto: r.Proto, Method: r.Method, Host: r.Host, Path: r.RequestURI,
				From: r.RemoteAddr, Headers: r.Header})
		}
	})
}

// upgrade changes to a protocol in which everything is sent back.
func upgrade(rw http.ResponseWriter, r *http.Request, name string) {
	conn, buf, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nX-Backend: %s\r\nX-Path: %s\r\n\r\n",
		r.Header.Get("Upgrade"), name, r.RequestURI)
	_, _ = io.Copy(conn, buf) // until the client hangs up
}

// secure answers over TLS.
func (w *roads) secure(t *testing.T, ns *envoytest.Namespace) {
	t.Helper()
	l, err := ns.Listen(podPort(ns, securePort))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(w.handler(ns.Name))
	s.Listener.Close()
	s.Listener = l
	s.StartTLS()
	t.Cleanup(s.Close)
}

// serves adds a service of both workloads with what the configuration says of it, and returns its address. In the
// configuration, HOST is its name.
func (w *roads) serves(t *testing.T, name, portName string, port, target uint16, config ...string) string {
	t.Helper()
	w.services++
	vip := fmt.Sprintf("10.96.0.%d", w.services)
	s := service(name, vip, portName, port)
	w.says(t, name, config...) // first: no request shall be sent without it
	w.write(t, "east/"+name+".yaml", s, slicesOf(s, endpoint{addr: podPort(w.v1, target), pod: "v1"}, endpoint{addr: podPort(w.v2, target), pod: "v2"}))
	return netip.AddrPortFrom(netip.MustParseAddr(vip), port).String()
}

// says replaces the configuration of a service.
func (w *roads) says(t *testing.T, name string, config ...string) {
	t.Helper()
	var objects []any
	for _, c := range config {
		objects = append(objects, strings.ReplaceAll(c, "HOST", host(name)))
	}
	w.write(t, "east/"+name+"-config.yaml", objects...)
}

// object is one of Istio's networking kinds.
func object(kind, name, spec string) string {
	return fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: %s\nmetadata: {name: %s, namespace: %s}\nspec:\n%s", kind, name, namespace,
		"  "+strings.ReplaceAll(strings.Trim(spec, "\n"), "\n", "\n  "))
}

// versions is the rule of a service that divides it into its workloads.
func versions(name, policy string) string {
	return object("DestinationRule", name, "host: HOST\nsubsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]\n"+policy)
}

// routes is the VirtualService of a service.
func routes(name, rules string) string {
	return object("VirtualService", name, "hosts: [HOST]\n"+strings.Trim(rules, "\n"))
}

// request is a GET of "/" unless it says otherwise.
type request struct {
	method, path, host string
	header             map[string]string
}

type reply struct {
	status int
	header http.Header
	body   string
	envoytest.Answer
}

// ask makes a request at an address. It follows no redirect.
func (w *roads) ask(ctx context.Context, addr string, r request) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.method, "http://"+addr+"/", nil)
	if err != nil {
		return reply{}, err
	}
	if r.path != "" {
		if req.URL, err = req.URL.Parse(r.path); err != nil {
			return reply{}, err
		}
	}
	req.Host = r.host
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	client := w.client.HTTPClient()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return answer(client.Do(req))
}

// answer reads a response.
func answer(resp *http.Response, err error) (reply, error) {
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	out := reply{status: resp.StatusCode, header: resp.Header, body: string(body)}
	if err == nil && resp.StatusCode == http.StatusOK && len(body) > 0 {
		err = json.Unmarshal(body, &out.Answer)
	}
	return out, err
}

// must is ask of what cannot fail.
func (w *roads) must(t *testing.T, addr string, r request) reply {
	t.Helper()
	got, err := w.ask(t.Context(), addr, r)
	if err != nil {
		t.Fatalf("%+v: %v", r, err)
	}
	return got
}

// until asks until the reply is as wanted.
func (w *roads) until(t *testing.T, addr string, r request, what string, wanted func(reply) bool) reply {
	t.Helper()
	var got reply
	envoytest.Eventually(t, limit, what, func() (err error) {
		if got, err = w.ask(t.Context(), addr, r); err == nil && !wanted(got) {
			err = fmt.Errorf("got %+v", got)
		}
		return err
	})
	return got
}

// counts who answers n requests; "503" stands for those who got that status.
func (w *roads) counts(t *testing.T, addr string, n int, r request) map[string]int {
	t.Helper()
	got := map[string]int{}
	for range n {
		a := w.must(t, addr, r)
		if a.Name == "" {
			a.Name = strconv.Itoa(a.status)
		}
		got[a.Name]++
	}
	return got
}

// likely fails unless n of all is within five standard deviations of what a share makes likely.
func likely(t *testing.T, what string, n, all int, share float64) {
	t.Helper()
	mean, sigma := float64(all)*share, math.Sqrt(float64(all)*share*(1-share))
	if math.Abs(float64(n)-mean) > 5*sigma {
		t.Errorf("%s: %d of %d, want %.0f within %.0f", what, n, all, mean, 5*sigma)
	}
}

func named(name string) func(reply) bool { return func(r reply) bool { return r.Name == name } }

func status(code int) func(reply) bool { return func(r reply) bool { return r.status == code } }

// TestTraffic: what VirtualServices, DestinationRules, ServiceEntries and Sidecars say holds for what a workload sends.
func TestTraffic(t *testing.T) {
	envoytest.RequireRoot(t)
	modes(t, func(t *testing.T, sotw bool) {
		w := newRoads(t, sotw)
		for _, test := range []struct {
			name string
			run  func(*roads, *testing.T)
		}{
			{"matches", (*roads).matches},
			{"actions", (*roads).actions},
			{"weights", (*roads).weights},
			{"retries", (*roads).retries},
			{"timeouts", (*roads).timeouts},
			{"faults", (*roads).faults},
			{"cors", (*roads).cors},
			{"mirror", (*roads).mirrors},
			{"hash", (*roads).hashes},
			{"delegate", (*roads).delegates},
			{"moves", (*roads).moves},
			{"tcp", (*roads).tcpRoutes},
			{"tls", (*roads).tlsRoutes},
			{"grpc", (*roads).grpcRoutes},
			{"http2", (*roads).http2Routes},
			{"websocket", (*roads).upgrades},
			{"egress", (*roads).egress},
			{"sidecar", (*roads).sidecars},
			{"http-proxy", (*roads).httpProxies},
		} {
			t.Run(test.name, func(t *testing.T) { test.run(w, t) })
		}
	})
}
