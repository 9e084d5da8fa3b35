package nacos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/foreign"
	"github.com/isthmus-mesh/isthmus/clusters/holdback"
	"github.com/isthmus-mesh/isthmus/test/env"
)

// content reads what a server has, in the words of sink.lines.
func (r *registrant) content(scopes ...scope) (out []string) {
	r.t.Helper()
	for _, sc := range scopes {
		names, err := r.s.list(r.s.ctx, sc)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, name := range names {
			n := serviceName{sc.namespace, sc.group, name}
			info, err := r.s.query(r.s.ctx, n)
			if err != nil {
				r.t.Fatal(err)
			}
			out = append(out, line(n, info))
		}
	}
	slices.Sort(out)
	return out
}

func line(n serviceName, info *serviceInfo) string {
	var endpoints []string
	for _, h := range info.Hosts {
		if h.Weight == 0 {
			continue
		}
		text := fmt.Sprintf("%s:%d healthy", h.IP, h.Port)
		if info.Protected || !h.Healthy {
			text = fmt.Sprintf("%s:%d unhealthy", h.IP, h.Port)
		}
		if h.Weight != 1 {
			text += fmt.Sprint(" ×", h.Weight)
		}
		endpoints = append(endpoints, text)
	}
	slices.Sort(endpoints)
	return strings.TrimSuffix(n.String()+": "+strings.Join(endpoints, ", "), ": ")
}

// churn changes one service at random.
func (r *registrant) churn(rng *rand.Rand, scopes []scope) {
	sc := scopes[rng.IntN(len(scopes))]
	var list []instance
	for i := range rng.IntN(5) {
		list = append(list, host(fmt.Sprintf("10.%d.%d.%d:%d", r.id, rng.IntN(3), i, 80+rng.IntN(2)), func(h *instance) {
			h.Weight = float64(rng.IntN(4))
			h.Healthy = rng.IntN(5) > 0
			h.Metadata = map[string]string{"version": fmt.Sprint(rng.IntN(3))}
		}))
	}
	r.set(serviceName{sc.namespace, sc.group, fmt.Sprint("s", rng.IntN(12))}, list)
}

// Whatever happens to a real server's services, in the end the rows say what the server does.
func TestRealChurn(t *testing.T) {
	at := sharedNacos(t)
	one, two := newNamespace(t, at), newNamespace(t, at)
	writers := []*registrant{newRegistrant(t, at, ""), newRegistrant(t, at, "")}
	scopes := []scope{{one, defaultGroup}, {one, "PAY_GROUP"}, {two, defaultGroup}}
	spec := realSpec(at, one, two)
	spec.Nacos.Groups = []string{defaultGroup, "PAY_GROUP"}
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	out := start(t, Options{Spec: spec}, func(q *timing) { q.settle, q.reconcile = 2*time.Second, 5*time.Second })
	out.awaitState(model.StateLive)
	for round := range 4 {
		for range 60 {
			writers[rng.IntN(len(writers))].churn(rng, scopes)
		}
		if round == 2 {
			writers[1].s.close(errors.New("the test ends it")) // its instances go
			writers = writers[:1]
		}
		writers[0].settled(out, scopes)
	}
}

// settled waits until the rows are as the server's content, which may still change since it cleans up.
func (r *registrant) settled(out *sink, scopes []scope) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*patience)
	defer cancel()
	for {
		want := r.content(scopes...)
		out.mu.Lock()
		got, next := out.lines(), out.changed
		out.mu.Unlock()
		if slices.Equal(got, want) {
			return
		}
		again := time.NewTimer(200 * time.Millisecond)
		select {
		case <-next:
		case <-again.C:
		case <-ctx.Done():
			r.t.Fatalf("rows are\n%s\nand the server has\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		again.Stop()
	}
}

// A server that is killed under load and comes back without what was not persistent: no endpoint is lost meanwhile, and none that is dead stays.
// Access to it is controlled.
func TestRealRestart(t *testing.T) {
	if testing.Short() {
		t.Skip("a real Nacos takes 10 s to start")
	}
	const password = "opensesame-1"
	at := env.StartNacos(t, env.NacosOptions{Password: password})
	writer := patientRegistrant(t, at, password)
	set := func(w *registrant, services int, subnet int) (want []string) {
		for i := range services {
			n := public(fmt.Sprint("s", i))
			list := []instance{host(fmt.Sprintf("10.0.%d.1:80", subnet)), host(fmt.Sprintf("10.0.%d.2:80", subnet))}
			w.set(n, list)
			want = append(want, line(n, &serviceInfo{Hosts: list}))
		}
		return want
	}
	before := set(writer, 21, 1)
	spec := realSpec(at)
	spec.Empty.Duration.Duration = time.Hour
	r, err := quickly(Options{Spec: spec, Access: foreign.Access{Username: "nacos", Password: password}}, func(q *timing) { q.beat = time.Second })
	if err != nil {
		t.Fatal(err)
	}
	out := run(t, holdback.Wrap(r, holdback.Options{Policy: *spec.Empty}))
	out.awaitServices(before...)
	writer.set(public("s20"), nil) // one that goes alone goes; without instances it is listed for another minute
	before[20] = "DEFAULT_GROUP@@s20"
	out.awaitServices(before...)
	before = before[:20]

	wrong := start(t, Options{Name: "wrong", Spec: spec, Access: foreign.Access{Username: "nacos", Password: "wrong"}})
	wrong.await("the credentials are named", func() bool { return strings.Contains(wrong.status.Err, "password is wrong") })
	nobody := start(t, Options{Name: "nobody", Spec: spec})
	nobody.await("the credentials are named", func() bool { return strings.Contains(nobody.status.Err, "the credentials are not accepted") })
	partly := start(t, Options{Name: "partly", Spec: realSpec(at, "public", "secret"), Access: publicReader(t, at)})
	partly.awaitServices(append(before, "DEFAULT_GROUP@@s20")...)
	partly.awaitState(model.StateLive)
	partly.awaitProblem(scope{"secret", defaultGroup}.String(), "the server says 403")

	at.Kill()
	out.awaitState(model.StateStale)
	out.awaitServices(append(before, "DEFAULT_GROUP@@s20")...)
	if err := at.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	out.awaitState(model.StateLive) // the server knows no instance now, and s20 not at all
	out.awaitServices(before...)
	writer = patientRegistrant(t, at, password)
	after := set(writer, 19, 2)
	held := before[19]
	out.awaitServices(append(after, held)...)
	writer.set(public("s19"), []instance{host("10.0.3.1:80"), host("10.0.3.2:80")}) // the last one comes back, too
	out.awaitServices(append(after, "DEFAULT_GROUP@@s19: 10.0.3.1:80 healthy, 10.0.3.2:80 healthy")...)
}

// publicReader makes a user who may read one namespace of two.
func publicReader(t *testing.T, at *env.Nacos) foreign.Access {
	t.Helper()
	for _, r := range []struct {
		path string
		form url.Values
	}{
		{"/v3/auth/user", url.Values{"username": {"partly"}, "password": {"opensesame-2"}}},
		{"/v3/auth/role", url.Values{"username": {"partly"}, "role": {"public-reader"}}},
		{"/v3/auth/permission", url.Values{"role": {"public-reader"}, "resource": {"public:*:*"}, "action": {"r"}}},
	} {
		repeat(t, func(ctx context.Context) error { return at.Do(ctx, http.MethodPost, r.path, r.form, nil) })
	}
	return foreign.Access{Username: "partly", Password: "opensesame-2"}
}

// repeat tries until something works, since servers know users and roles only after some seconds.
func repeat(t *testing.T, do func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	for {
		err := do(ctx)
		if err == nil {
			return
		}
		if sleep(ctx, 500*time.Millisecond) != nil {
			t.Fatal(err)
		}
	}
}

// patientRegistrant waits until a server that has just started knows its users.
func patientRegistrant(t *testing.T, at *env.Nacos, password string) *registrant {
	t.Helper()
	to, err := parseServer(at.Host, 0)
	if err != nil {
		t.Fatal(err)
	}
	repeat(t, func(ctx context.Context) error {
		return newAuth(foreign.Access{Username: "nacos", Password: password}, httpClient(nil), "/nacos", false, defaultTiming, time.Now).ensure(ctx, to)
	})
	return newRegistrant(t, at, password)
}
