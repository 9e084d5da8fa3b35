package envoy_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// weights: destinations have their shares of the requests; all of them go elsewhere once the weights say so.
func (w *roads) weights(t *testing.T) {
	config := func(v1, v2 int) []string {
		return []string{versions("weights", ""), routes("weights", fmt.Sprintf(`
http:
- route:
  - {destination: {host: HOST, subset: v1}, weight: %d, headers: {request: {set: {x-by: v1}}}}
  - {destination: {host: HOST, subset: v2}, weight: %d, headers: {request: {set: {x-by: v2}}}}
`, v1, v2))}
	}
	at := w.serves(t, "weights", "http", 80, webPort, config(25, 75)...)
	w.until(t, at, request{}, "the routes", func(r reply) bool { return r.Name != "" && r.Headers.Get("x-by") == r.Name })
	const n = 1000
	got := w.counts(t, at, n, request{})
	likely(t, "v1", got["v1"], n, 0.25)
	if got["v1"]+got["v2"] != n {
		t.Errorf("answers of %v", got)
	}
	w.says(t, "weights", config(0, 100)...)
	envoytest.Eventually(t, limit, "v2 to have all", func() error {
		return same(w.counts(t, at, 20, request{})["v2"], 20, nil)
	})
	if got := w.counts(t, at, 100, request{}); got["v2"] != 100 {
		t.Errorf("answers of %v", got)
	}
}

// attempts is how often a request was seen by backends.
func (w *roads) attempts(id string) int {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.seen[id]
}

// retries: what fails is tried again as often as the route says, and elsewhere by default if nobody listens.
func (w *roads) retries(t *testing.T) {
	at := w.serves(t, "retries", "http", 80, webPort, routes("retries", `
http:
- match: [{uri: {exact: /ready}}]
  directResponse: {status: 204}
- match: [{uri: {prefix: /three}}]
  route: [{destination: {host: HOST}}]
  retries: {attempts: 3, retryOn: 5xx, backoff: 1ms}
- match: [{uri: {prefix: /never}}]
  route: [{destination: {host: HOST}}]
  retries: {attempts: 0}
- match: [{uri: {prefix: /slow}}]
  route: [{destination: {host: HOST}}]
  retries: {attempts: 1, perTryTimeout: 3s, retryOn: 5xx}
`))
	w.until(t, at, request{path: "/ready"}, "the routes", status(204))
	for _, tt := range []struct {
		path, header     string
		n, status, asked int
	}{
		{"/three", "x-fail", 3, 200, 4},
		{"/three", "x-fail", 4, 503, 4},
		{"/never", "x-fail", 1, 503, 1},
		{"/slow", "x-hang", 1, 200, 2},
	} {
		id := fmt.Sprint(tt.path, tt.header, tt.n)
		got := w.must(t, at, request{path: tt.path, header: map[string]string{tt.header: fmt.Sprint(tt.n), "x-id": id}})
		if asked := w.attempts(id); got.status != tt.status || asked != tt.asked {
			t.Errorf("%s: status %d after %d attempts, want %d after %d", id, got.status, asked, tt.status, tt.asked)
		}
	}

	lame := service("lame", "10.96.1.1", "http", 80)
	w.write(t, "east/lame.yaml", lame, slicesOf(lame, endpoint{addr: podPort(w.v1, webPort), pod: "v1"}, endpoint{addr: podPort(w.v2, unknownPort), pod: "v2"}))
	w.proxy.has(t, outbound(host("lame"), 80), podPort(w.v1, webPort), podPort(w.v2, unknownPort))
	w.until(t, "10.96.1.1:80", request{}, "the service", named("v1"))
	if got := w.counts(t, "10.96.1.1:80", 20, request{}); got["v1"] != 20 {
		t.Errorf("answers of %v", got)
	}
	w.remove(t, "east/lame.yaml")
}

// timeouts: who does not answer in time is not waited for.
func (w *roads) timeouts(t *testing.T) {
	config := func(timeout string) string {
		return routes("timeouts", "http: [{route: [{destination: {host: HOST}}], timeout: "+timeout+", retries: {attempts: 0}, headers: {request: {set: {x-timeout: '"+timeout+"'}}}}]")
	}
	at := w.serves(t, "timeouts", "http", 80, webPort, config("0.1s"))
	hang := request{header: map[string]string{"x-hang": "1000", "x-id": "timeouts"}}
	w.until(t, at, hang, "a time-out", status(504))
	w.says(t, "timeouts", config("20s"))
	w.until(t, at, request{}, "the other timeout", func(r reply) bool { return r.Headers.Get("x-timeout") == "20s" })
}

// faults: requests are aborted and delayed as often as the route says.
func (w *roads) faults(t *testing.T) {
	at := w.serves(t, "faults", "http", 80, webPort, routes("faults", `
http:
- match: [{uri: {prefix: /abort}}]
  fault: {abort: {httpStatus: 507, percentage: {value: 100}}}
  route: [{destination: {host: HOST}}]
- match: [{uri: {prefix: /some}}]
  fault: {abort: {httpStatus: 507, percentage: {value: 30}}}
  route: [{destination: {host: HOST}}]
- match: [{uri: {prefix: /delay}}]
  fault: {delay: {fixedDelay: 0.05s, percentage: {value: 100}}}
  route: [{destination: {host: HOST}}]
- route: [{destination: {host: HOST}}]
`))
	w.until(t, at, request{path: "/abort"}, "an abort", status(507))
	if got := w.counts(t, at, 20, request{path: "/abort"}); got["507"] != 20 {
		t.Errorf("answers of %v", got)
	}
	if got := w.counts(t, at, 20, request{}); got["507"] != 0 {
		t.Errorf("without fault: answers of %v", got)
	}
	const n = 500
	likely(t, "aborted", w.counts(t, at, n, request{path: "/some"})["507"], n, 0.3)
	before := w.delays(t)
	if got := w.counts(t, at, 10, request{path: "/delay"}); got["v1"]+got["v2"] != 10 {
		t.Errorf("answers of %v", got)
	}
	if n := w.delays(t) - before; n != 10 {
		t.Errorf("%d delays of 10 requests", n)
	}
}

// delays counts those of the client's proxy.
func (w *roads) delays(t *testing.T) (n uint64) {
	t.Helper()
	all, err := w.proxy.Stats(t.Context(), `fault\.delays_injected$`)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		n += v
	}
	return n
}

// hosted is how often backends were asked for a host.
func (w *roads) hosted(host string) int {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.host[host]
}

// mirrors: a copy of each request goes to the mirror, and its answer to nobody; or of as many as the route says.
func (w *roads) mirrors(t *testing.T) {
	config := func(share string) []string {
		return []string{versions("mirrors", ""), routes("mirrors", "http: [{route: [{destination: {host: HOST, subset: v1}}], mirror: {host: HOST, subset: v2}, mirrorPercentage: {value: "+share+
			"}, headers: {request: {set: {x-share: '"+share+"'}}}}]")}
	}
	at := w.serves(t, "mirrors", "http", 80, webPort, config("100")...)
	w.until(t, at, request{}, "the routes", func(r reply) bool { return r.Headers.Get("x-share") == "100" })
	shadow := func(id string, n int) {
		t.Helper()
		if got := w.counts(t, at, n, request{host: host("mirrors"), header: map[string]string{"x-id": id}}); got["v1"] != n {
			t.Errorf("answers of %v", got)
		}
	}
	before := w.hosted(host("mirrors") + "-shadow")
	shadow("whole", 20)
	envoytest.Eventually(t, limit, "the mirror to have seen them", func() error {
		return same(w.hosted(host("mirrors")+"-shadow")-before, 20, nil)
	})
	if n := w.attempts("whole"); n != 40 {
		t.Errorf("backends saw %d requests, want 20 and their copies", n)
	}
	w.says(t, "mirrors", config("40")...)
	w.until(t, at, request{}, "the new routes", func(r reply) bool { return r.Headers.Get("x-share") == "40" })
	const n = 500
	shadow("part", n)
	w.says(t, "mirrors", config("0")...)
	w.until(t, at, request{}, "no mirror", func(r reply) bool { return r.Headers.Get("x-share") == "0" })
	likely(t, "copies", w.attempts("part")-n, n, 0.4)
	shadow("none", 20)
	if n := w.attempts("none"); n != 20 {
		t.Errorf("backends saw %d requests, want no copies", n)
	}
}

// hashes: requests that are alike in what the rule says go to the same workload.
func (w *roads) hashes(t *testing.T) {
	policy := func(by string) string {
		return object("DestinationRule", "hashes", "host: HOST\ntrafficPolicy: {loadBalancer: {consistentHash: {"+by+"}}}")
	}
	at := w.serves(t, "hashes", "http", 80, webPort, policy("httpHeaderName: x-user"))
	w.until(t, at, request{}, "the service", status(200))
	all := map[string]int{}
	for user := range 24 {
		got := w.counts(t, at, 5, request{header: map[string]string{"x-user": fmt.Sprint(user)}})
		if len(got) != 1 {
			t.Errorf("user %d: answers of %v", user, got)
		}
		for name := range got {
			all[name]++
		}
	}
	if len(all) != 2 {
		t.Errorf("all users are sent to %v", all)
	}

	w.says(t, "hashes", policy("httpCookie: {name: session, path: /, ttl: 60s}"))
	got := w.until(t, at, request{}, "a cookie", func(r reply) bool { return r.header.Get("Set-Cookie") != "" })
	cookie, _, _ := strings.Cut(got.header.Get("Set-Cookie"), ";")
	if !strings.HasPrefix(cookie, "session=") {
		t.Errorf("cookie %q", cookie)
	}
	if again := w.counts(t, at, 20, request{header: map[string]string{"Cookie": cookie}}); again[got.Name] != 20 {
		t.Errorf("%s gave the cookie, it is sent to %v", got.Name, again)
	}
}

// moves: routes go to a subset that is new, while the former one goes away, and no request notices.
func (w *roads) moves(t *testing.T) {
	config := func(generation int) (version string, objects []string) {
		version = []string{"v1", "v2"}[generation%2]
		return version, []string{
			object("DestinationRule", "moves", fmt.Sprintf("host: HOST\nsubsets: [{name: g%d, labels: {version: %s}}]", generation, version)),
			routes("moves", fmt.Sprintf("http: [{route: [{destination: {host: HOST, subset: g%d}}], headers: {request: {set: {x-generation: g%[1]d}}}}]", generation)),
		}
	}
	_, first := config(0)
	at := w.serves(t, "moves", "http", 80, webPort, first...)
	w.until(t, at, request{}, "the service", named("v1"))
	traffic := envoytest.StartTraffic(t, 2, func(ctx context.Context) error {
		got, err := w.ask(ctx, at, request{})
		return same(got.status, 200, err)
	})
	for generation := 1; generation < 8; generation++ {
		version, objects := config(generation)
		w.says(t, "moves", objects...)
		w.until(t, at, request{}, "the new subset", func(r reply) bool {
			return r.Name == version && r.Headers.Get("x-generation") == fmt.Sprint("g", generation)
		})
		more(t, traffic, 20)
	}
	flawless(t, traffic)
}
