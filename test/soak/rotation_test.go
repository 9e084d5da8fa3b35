package soak_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/bootstrap"
	"github.com/isthmus-mesh/isthmus/test/env"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// TestIncident01HundredRotations rotates one cluster's credential a hundred times
// while endpoints change everywhere, proxies come and go, and a real Envoy sends
// requests to a backend of that cluster. No assignment ever lacks an endpoint that
// stays, no request fails, and the hub's process stays as it was.
func TestIncident01HundredRotations(t *testing.T) {
	t.Parallel()
	w := newRotation(t)
	rounds := setting(t, "ROTATIONS", 100)
	warm := max(rounds/10, min(rounds, 10)) // each kind of change has been there
	var base figures
	for done := 0; done < rounds; {
		done += w.rotate()
		if done >= warm && base.own == nil {
			base = w.rest()
		}
	}
	end := w.rest()
	t.Logf("after %d rotations: %v", warm, base)
	t.Logf("after %d rotations: %v; soon after: %v", rounds, end, w.flat(base, (rounds-warm+10)*least))
	w.sound()
	report := w.traffic.Stop()
	t.Logf("%d requests through Envoy, %d assignments checked at %d proxies, %d changes of objects", report.OK, w.guard.count(), len(w.proxies), w.changes)
	if report.Failed > 0 || report.OK == 0 {
		t.Errorf("%d of %d requests failed: %v", report.Failed, report.OK+report.Failed, report.First)
	}
}

// rotation is a mesh of three clusters, of which the hub is given ever new
// credentials for the second.
type rotation struct {
	*mesh
	r       *rand.Rand
	x       *member // whose credential is rotated
	traffic *envoytest.Traffic
	changes int

	good    []byte // the kubeconfig in force
	token   string // its token
	serial  int64
	retired []string  // tokens that were replaced
	synced  time.Time // when the cluster was read first with the credential in force
	used    int       // requests with them until they were
}

func newRotation(t *testing.T) *rotation {
	w := &rotation{mesh: newMesh(t, 2), r: chance(t)}
	w.x = w.remotes[0]
	for _, x := range w.all() {
		w.furnish(w.r, x)
	}
	backend := w.backend()
	at := netip.MustParseAddrPort(backend.Addr)
	w.x.Apply(t, env.Service(namespace+"/live", 8000), env.Slice(namespace+"/live", int32(at.Port()), at.Addr().String()))
	w.x.dirty = true
	other := w.remotes[1]
	other.joined, w.x.joined = true, true
	w.secret(other, other.link.Kubeconfig(other.Token(t, reader, 3600)))
	w.fresh()
	w.serve("--sync-timeout=30s")
	for _, id := range []string{primary, "c1", "c2"} {
		w.connect(id, 14)
	}
	w.taken(true)
	w.compare()
	w.guard.demand("live:8000", backend.Addr)
	w.envoy("live", 8000)
	return w
}

// backend listens at an address that an EndpointSlice may have: no loopback one.
func (w *rotation) backend() *envoytest.Backend {
	w.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		w.Fatal(err)
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && p.Addr().IsGlobalUnicast() {
			return envoytest.StartBackend(w, envoytest.BackendOptions{Kind: envoytest.HTTP1, Name: "live", Addr: netip.AddrPortFrom(p.Addr(), 0).String()})
		}
	}
	w.Skip("this machine has no address but loopback ones")
	return nil
}

// envoy sends requests through a sidecar of the other cluster until the end.
func (w *rotation) envoy(service string, port uint16) {
	w.Helper()
	ip := w.lo.Addr(1, 1)
	config, err := bootstrap.JSON(bootstrap.Options{
		ID: "envoy." + namespace, IP: ip, Cluster: "c2", Hub: w.hub.GRPC, Interception: bootstrap.None,
	})
	if err != nil {
		w.Fatal(err)
	}
	e := envoytest.Start(w, envoytest.Options{Name: "envoy", Bootstrap: config})
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	if err := e.WaitReady(ctx); err != nil {
		w.Fatalf("envoy: %v\n%s", err, e.Log())
	}
	client := &http.Client{Transport: &http.Transport{}, Timeout: patience}
	w.Cleanup(client.CloseIdleConnections)
	url, pace := fmt.Sprintf("http://%s/", netip.AddrPortFrom(ip, port)), time.NewTicker(10*time.Millisecond)
	w.Cleanup(pace.Stop)
	ask := func(ctx context.Context) error {
		_, err := envoytest.Get(ctx, client, url, host(service))
		return err
	}
	w.eventually("an answer through Envoy", func() error { return ask(w.Context()) })
	w.traffic = envoytest.StartTraffic(w, 1, func(ctx context.Context) error {
		select {
		case <-pace.C:
		case <-ctx.Done():
		}
		return ask(ctx)
	})
}

// churn changes something in a cluster.
func (w *rotation) churn() {
	w.Helper()
	w.changes++
	w.change(w.r, pick(w.r, w.all()...))
}

// token and kubeconfig that nobody has seen before.
func (w *rotation) next() (token string, kubeconfig []byte) {
	w.Helper()
	w.serial++
	token = w.x.Token(w.T, reader, 3600+w.serial)
	return token, w.x.link.Kubeconfig(token)
}

// fresh gives the hub a new credential.
func (w *rotation) fresh() {
	w.Helper()
	if w.token != "" {
		w.retired = append(w.retired, w.token)
	}
	w.token, w.good = w.next()
	w.secret(w.x, w.good)
}

// taken waits, under churn, until the hub reads with the newest credential alone; it
// is another than before, or the same again.
func (w *rotation) taken(another bool) {
	w.Helper()
	w.eventually("the new credential in force", func() error {
		all, err := w.entries()
		if err != nil {
			return err
		}
		e := all[w.x.id]
		if err = w.x.reads(e); err == nil && another && !e.SyncedAt.After(w.synced) {
			err = fmt.Errorf("it is not used yet: %+v", e)
		}
		if err != nil {
			w.churn()
			return err
		}
		w.synced = e.SyncedAt
		return nil
	})
}

const withExec = `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:6443"}}]
users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/true, interactiveMode: Never}}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`

// useless are kubeconfigs that can't work.
func (w *rotation) useless() [][]byte {
	w.Helper()
	w.serial++
	here := w.x.link.Kubeconfig(fmt.Sprintf("wrong-%d", w.serial))
	nowhere := bytes.ReplaceAll(here, []byte(w.x.link.URL), []byte("https://"+w.lo.At(9, 9, 6443))) // nobody listens there
	return [][]byte{
		[]byte(withExec), fmt.Appendf(nil, "no kubeconfig %d", w.serial), here, nowhere,
	}
}

// bad gives the hub a credential of no use and, mostly, waits until it says so.
func (w *rotation) bad() {
	w.Helper()
	w.secret(w.x, pick(w.r, w.useless()...))
	if w.r.IntN(4) == 0 {
		return
	}
	w.eventually("a degraded cluster", func() error {
		all, err := w.entries()
		if e := all[w.x.id]; err == nil && (e.State != "degraded" || e.Replacement == "") {
			w.churn()
			err = fmt.Errorf("%+v", e)
		}
		return err
	})
}

// rotate does one of several things, which all end with a good credential in
// force; it gives how many good ones the hub was given.
func (w *rotation) rotate() (n int) {
	w.Helper()
	w.unused()
	w.churn()
	another := true
	switch n = 1; w.r.IntN(8) {
	case 0: // a bad one, then a good one
		w.bad()
		w.fresh()
	case 1: // several bad ones, then back to the one in force
		w.bad()
		w.bad()
		w.secret(w.x, w.good)
		another = false
	case 2: // several in a row
		for range 2 {
			w.fresh()
			w.churn()
		}
		w.fresh()
		n = 3
	default:
		w.fresh()
	}
	w.taken(another)
	w.churn()
	w.retire()
	if w.r.IntN(4) == 0 {
		w.reconnect(pick(w.r, w.proxies...))
	}
	if w.r.IntN(10) == 0 {
		w.x.link.DropConnections() // every watch is opened again
	}
	return n
}

// retire makes the server refuse the tokens that were replaced, and counts what
// they were used for.
func (w *rotation) retire() {
	w.settle(w.x)
	for _, token := range w.retired {
		w.x.link.Refuse(token)
	}
	w.used = len(w.old())
}

// old lists the requests with tokens that were replaced.
func (w *rotation) old() (out []env.Request) {
	retired := map[string]bool{}
	for _, t := range w.retired {
		retired[t] = true
	}
	for _, r := range w.x.link.Requests() {
		if retired[r.Token] {
			out = append(out, r)
		}
	}
	return out
}

// unused checks that replaced tokens carry no request.
func (w *rotation) unused() {
	w.Helper()
	for _, r := range w.old()[w.used:] {
		age := len(w.retired) - slices.Index(w.retired, r.Token)
		w.Errorf("%s (a watch: %t) was asked for with a token that was replaced %d tokens ago", r.Path, r.Watch, age)
	}
	w.used = len(w.old())
}

// aged is for how many commits, or less, what was built from a view is kept for the next.
const aged = 16

// rest gives clusters the content of all rests, compares everything and measures the hub.
func (w *rotation) rest() figures {
	w.Helper()
	for _, x := range w.all() {
		w.level(x)
	}
	always := rand.New(rand.NewPCG(1, 1))
	for range aged {
		for w.steady(always, w.config); w.same(w.config); w.steady(always, w.config) {
		}
		w.settle(w.config)
	}
	w.fresh() // no watch of it has to be opened again
	w.taken(true)
	w.retire()
	w.eventually("all clusters live", func() error {
		all, err := w.entries()
		for id, e := range all {
			if e.State != "live" {
				err = fmt.Errorf("%s: %+v", id, e)
			}
		}
		return err
	})
	w.compare()
	return w.still()
}
