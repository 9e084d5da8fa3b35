package oracle_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
	"github.com/isthmus-mesh/isthmus/xds"
	"github.com/isthmus-mesh/isthmus/xds/evaluate"
)

func decode(t testing.TB, r xds.Rendered) proto.Message {
	t.Helper()
	m, err := (&anypb.Any{TypeUrl: r.TypeURL, Value: r.Body}).UnmarshalNew()
	if err != nil {
		t.Fatalf("%s %s: %v", r.Short, r.Name, err)
	}
	return m
}

const asksPerRound = 30

// TestEvaluatorAgreesWithEnvoy asks a real Envoy and the evaluator the same.
func TestEvaluatorAgreesWithEnvoy(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct{ inline, gateway bool }{
		"hosts one by one": {}, "hosts in tables": {inline: true}, "gateway": {gateway: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := *seed
			if n == 0 {
				n = rand.Uint64()
			}
			t.Logf("-seed %d", n)
			w := newWorld(t, x.inline)
			g := &generator{rand.New(rand.NewPCG(n, 0)), w.at, x.gateway}
			first := g.config(0)
			w.startWith(first)
			requests, told := 0, map[string]int{}
			for i := range *rounds {
				c := first
				if i > 0 {
					c = g.config(i)
					w.apply(c.yaml())
				}
				w.settle(c, servicePorts...)
				e := w.evaluator()
				var all []asked
				for range asksPerRound {
					requests++
					all = append(all, asked{ask: g.ask(c), id: strconv.Itoa(requests)})
				}
				w.compare(e, c, all, told)
			}
			w.accepted()
			t.Logf("%d configurations, %d requests: %v", *rounds, requests, told)
		})
	}
}

// startWith runs the backends of all services, and the Envoy.
func (w *world) startWith(c *config) {
	w.t.Helper()
	var all []string
	for _, s := range services() {
		all = append(all, w.endpoints(s)...)
	}
	w.backends(all)
	w.start(c.yaml(), c.servers != nil)
}

// endpoints are where all versions of a service serve its ports.
func (w *world) endpoints(s *service) (out []string) {
	for v := range s.versions {
		for _, p := range servicePorts {
			out = append(out, fmt.Sprintf("%s:%d", w.at(s, v), targetPort(p)))
		}
	}
	return out
}

// settle waits until the Envoy answers with the number of a configuration at each port, and has its endpoints.
func (w *world) settle(c *config, ports ...int) {
	w.t.Helper()
	for _, port := range ports {
		w.soon(fmt.Sprintf("configuration %d at port %d", c.number, port), func() error {
			a, err := w.askAnew(ask{host: markerHost, port: port, method: "GET", path: "/"}, "marker")
			if err != nil || a.body != fmt.Sprint(c.number) {
				return fmt.Errorf("it answers with %d, %q, %w", a.status, a.body, err)
			}
			if a, err = w.ask(ask{host: markerHost, port: port, method: "GET", path: markerPath}, "marker"); err != nil || a.backend != c.markerEndpoint(port) {
				err = fmt.Errorf("%q serves, not %s, %w", a.backend, c.markerEndpoint(port), err)
			}
			return err
		})
	}
}

// answer is what an Envoy did.
type answer struct {
	status          int
	backend         string
	path, authority string
	location        string
	body            string
}

func (w *world) ask(a ask, id string) (out answer, err error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), limit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, a.method, fmt.Sprintf("http://%s:%d", w.lo.Addr(1, 1), a.port), nil)
	if err != nil {
		return out, err
	}
	r.URL.Opaque = a.path // as it is written
	r.Host = a.host
	r.Header.Set("X-Oracle", id)
	for k, v := range a.headers {
		r.Header.Set(k, v)
	}
	res, err := w.client.Do(r)
	if err != nil {
		return out, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	h := res.Header
	return answer{res.StatusCode, h.Get("X-Backend"), h.Get("X-Path"), h.Get("X-Authority"), h.Get("Location"), string(body)}, err
}

// askAnew asks over a new connection: an old one outlives its listener.
func (w *world) askAnew(a ask, id string) (answer, error) {
	w.client.CloseIdleConnections()
	return w.ask(a, id)
}

// asked is a request on its way.
type asked struct {
	ask
	id    string // in the Envoy's log
	want  *evaluate.Result
	got   answer
	error error
}

// compare fails the test if answers differ, for good: a change may take a moment to reach the Envoy's worker. It counts in told
// what became of the requests. All are asked before the log is read, which the Envoy writes now and then.
func (w *world) compare(e *evaluate.Config, c *config, all []asked, told map[string]int) {
	w.t.Helper()
	for i := range all {
		a := &all[i]
		headers := map[string]string{"x-oracle": a.id}
		for k, v := range a.headers {
			headers[k] = v
		}
		a.want = e.Evaluate(evaluate.Request{
			Destination: netip.AddrPortFrom(w.lo.Addr(1, 1), uint16(a.port)), Method: a.method, Authority: a.host, Path: a.path, Headers: headers,
		})
		a.got, a.error = w.ask(a.ask, a.id)
	}
	for i := range all {
		a := &all[i]
		why := w.differs(a)
		if why != "" {
			why = w.differsAgain(a)
		}
		if why == "" {
			why = c.contradicts(a.want, a.plain())
		}
		if why != "" {
			w.t.Fatalf("%s: %s\nthe Envoy: %+v, %v\nthe evaluator: %s\nthe configuration:\n%s", a.ask, why, a.got, a.error, text(a.want), c.names()+c.routing())
		}
		told[string(a.want.Kind)]++
	}
}

// differsAgain asks some more times, with pauses.
func (w *world) differsAgain(a *asked) (why string) {
	w.t.Helper()
	attempt := 0
	_ = envoytest.PollEvery(w.t.Context(), 50*time.Millisecond, func() error {
		again := *a
		again.id += "-" + strconv.Itoa(attempt)
		again.got, again.error = w.askAnew(a.ask, again.id)
		if why = w.differs(&again); why == "" {
			return nil
		}
		if attempt++; attempt == 4 {
			return envoytest.Permanent(errors.New(why))
		}
		return errors.New(why)
	})
	return why
}

func text(r *evaluate.Result) string {
	var b strings.Builder
	for _, s := range r.Steps {
		fmt.Fprintf(&b, "\n  %s %q: %s %v", s.What, s.Name, s.Why, s.Config)
	}
	fmt.Fprintf(&b, "\n  = %+v", *r)
	return b.String()
}

// differs says in what an answer is not what was worked out, "" if it is.
func (w *world) differs(a *asked) string {
	if a.error != nil {
		return a.error.Error()
	}
	want, got := a.want, a.got
	switch want.Kind {
	case evaluate.Redirect:
		if got.location != want.Location {
			return fmt.Sprintf("it is sent to %q, not %q", got.location, want.Location)
		}
	case evaluate.Direct, evaluate.NoRoute:
	case evaluate.ToCluster:
		return w.sentElsewhere(a)
	default:
		return "the evaluator says " + string(want.Kind)
	}
	if got.status != want.Status || got.backend != "" {
		return fmt.Sprintf("status %d from %q, not %d", got.status, got.backend, want.Status)
	}
	return ""
}

func (w *world) sentElsewhere(a *asked) string {
	want, got := a.want, a.got
	if len(want.Faults) > 0 {
		if !strings.Contains(want.Faults[0], fmt.Sprintf("abort with %d", got.status)) {
			return fmt.Sprintf("status %d, not %v", got.status, want.Faults)
		}
		return ""
	}
	if want.Fails != "" && (want.Fails != evaluate.Unavailable || got.status != 503) {
		return fmt.Sprintf("status %d, and it should fail: %s", got.status, want.Fails)
	}
	cluster := w.loggedCluster(a.id)
	i := slices.IndexFunc(want.Clusters, func(s evaluate.Share) bool { return s.Cluster == cluster && s.Percent > 0 })
	if i < 0 {
		// Of a cluster that it does not have, an Envoy says nothing.
		if cluster == "-" && got.status == 503 && slices.ContainsFunc(want.Clusters, func(s evaluate.Share) bool { return s.Missing && s.Percent > 0 }) {
			return ""
		}
		return fmt.Sprintf("it went to cluster %q with status %d", cluster, got.status)
	}
	s := want.Clusters[i]
	switch {
	case s.Missing || len(s.Endpoints) == 0:
		if got.status != 503 {
			return fmt.Sprintf("status %d of a cluster without endpoints", got.status)
		}
		return ""
	case got.status != 200:
		return fmt.Sprintf("status %d", got.status)
	case !slices.ContainsFunc(s.Endpoints, func(e evaluate.Endpoint) bool { return e.Address == got.backend }):
		return fmt.Sprintf("endpoint %s is none of the cluster's", got.backend)
	}
	for _, x := range []struct{ what, want, asked, got string }{{"path", want.Path, a.path, got.path}, {"authority", want.Authority, a.host, got.authority}} {
		if x.want == "" {
			x.want = x.asked
		}
		if x.got != x.want {
			return fmt.Sprintf("the upstream sees %s %q, not %q", x.what, x.got, x.want)
		}
	}
	return ""
}

// loggedCluster waits for the line of a request in the Envoy's log.
func (w *world) loggedCluster(id string) (cluster string) {
	w.soon("request "+id+" in the access log", func() error {
		c, ok := w.log.cluster(id)
		if !ok {
			return fmt.Errorf("it has %d", len(w.log.clusters))
		}
		cluster = c
		return nil
	})
	return cluster
}

// accepted makes sure that the Envoy refused nothing in the whole run.
func (w *world) accepted() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	refused, err := w.envoy.Rejected(ctx)
	if err != nil || len(refused) > 0 {
		w.t.Errorf("the Envoy refused %v, %v\n%s", refused, err, w.envoy.Log())
	}
	for _, p := range w.server.Proxies() {
		for _, typ := range p.Types {
			if typ.Nack != nil {
				w.t.Errorf("%s: %s", typ.Short, typ.Nack.Message)
			}
		}
	}
}
