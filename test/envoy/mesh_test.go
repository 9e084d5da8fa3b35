package envoy_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/bootstrap"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// limit is for whatever must happen in the end. It is generous: only a fault
// meets it.
const limit = 60 * time.Second

// mesh is a hub on a folder of clusters, with loopback addresses of its own:
// the hub on x.x.0.1, proxies on x.x.1.n, backends where a test wants them from
// x.x.2.1 on.
type mesh struct {
	lo  *envoytest.Loopback
	dir string
	hub *envoytest.Hub

	args []string // of the hub, beside the usual ones
	// authority certifies every proxy; nil: only those that a test asks it for.
	authority *envoytest.Authority
	drain     int  // seconds after which a proxy cuts what a replaced listener still serves
	rejects   bool // a test makes a proxy reject something

	proxies, backends atomic.Int32 // made so far
}

// files maps a path below the hub's folder to objects.
type files map[string][]any

// newMesh claims addresses; start runs its hub.
func newMesh(t testing.TB) *mesh {
	t.Helper()
	return &mesh{lo: envoytest.StartLoopback(t), dir: t.TempDir(), drain: 1}
}

// start writes the files and starts a hub on them. At the end it must not have
// seen a rejected resource.
func (m *mesh) start(t testing.TB, content files) {
	t.Helper()
	m.startAt(t, content, m.lo.At(0, 1, 15010))
}

func (m *mesh) startAt(t testing.TB, content files, grpc string) {
	t.Helper()
	for path, objects := range content {
		m.write(t, path, objects...)
	}
	m.hub = envoytest.StartHub(t, envoytest.HubOptions{
		Binary:     os.Getenv(envoytest.HubVar),
		Dir:        m.dir,
		GRPC:       grpc,
		HTTP:       m.lo.At(0, 1, 8080),
		Monitoring: m.lo.At(0, 1, 15014),
		Log:        filepath.Join(t.TempDir(), "hub.log"),
		Args:       m.args,
	})
	t.Cleanup(func() { m.checkRejects(t) })
}

// backend serves at x.x.2.n, port 9000, and calls itself by name.
func (m *mesh) backend(t testing.TB, kind envoytest.Kind, name string) *envoytest.Backend {
	t.Helper()
	return m.backendAt(t, kind, name, m.lo.At(2, byte(m.backends.Add(1)), 9000))
}

func (m *mesh) backendAt(t testing.TB, kind envoytest.Kind, name, addr string) *envoytest.Backend {
	t.Helper()
	return envoytest.StartBackend(t, envoytest.BackendOptions{Kind: kind, Name: name, Addr: addr})
}

func (m *mesh) checkRejects(t testing.TB) {
	t.Helper()
	if m.rejects || !m.hub.Running() {
		return // a test ended it on purpose, or its end is reported elsewhere
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	n, err := m.hub.Metric(ctx, "pilot_total_xds_rejects")
	if err != nil || n != 0 {
		t.Errorf("the hub counts %v rejected responses, %v", n, err)
	}
}

// write replaces a file at once, as careful tools do.
func (m *mesh) write(t testing.TB, path string, objects ...any) {
	t.Helper()
	m.writeText(t, path, documents(t, objects...))
}

func (m *mesh) writeText(t testing.TB, path string, text []byte) {
	t.Helper()
	path = filepath.Join(m.dir, path)
	temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(temp, text, 0o644)
	}
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (m *mesh) remove(t testing.TB, path string) {
	t.Helper()
	if err := os.Remove(filepath.Join(m.dir, path)); err != nil {
		t.Fatal(err)
	}
}

func (m *mesh) removeAll(t testing.TB, path string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(m.dir, path)); err != nil {
		t.Fatal(err)
	}
}

// proxy is an Envoy of the mesh.
type proxy struct {
	*envoytest.Envoy
	ns *envoytest.Namespace
	ip netip.Addr
	// rejects: the test makes it reject something, so how it ends is not checked.
	rejects bool
}

// launch starts a proxy and waits until it is ready. The options default to a
// sidecar in cluster east without interception, on an address of its own. At
// the end it must not have rejected anything, and have what the hub has for it.
func (m *mesh) launch(t testing.TB, name string, o bootstrap.Options) *proxy {
	t.Helper()
	o = m.complete(t, name, o)
	return m.run(t, o.IP, envoytest.Options{Name: name, Bootstrap: config(t, o)})
}

func config(t testing.TB, o bootstrap.Options) []byte {
	t.Helper()
	text, err := bootstrap.JSON(o)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (m *mesh) complete(t testing.TB, name string, o bootstrap.Options) bootstrap.Options {
	t.Helper()
	if m.authority != nil {
		o = certified(t, m.authority, name, o)
	}
	if !o.IP.IsValid() {
		o.IP = m.lo.Addr(1, byte(m.proxies.Add(1)))
	}
	if o.Interception == "" && o.Type != bootstrap.Router {
		o.Interception = bootstrap.None
	}
	if o.Cluster == "" {
		o.Cluster = "east"
	}
	o.ID, o.Hub = name+"."+namespace, m.hub.GRPC
	return o
}

// run starts a proxy and waits until it is ready.
func (m *mesh) run(t testing.TB, ip netip.Addr, o envoytest.Options) *proxy {
	t.Helper()
	p := m.begin(t, ip, o)
	p.ready(t)
	return p
}

func (m *mesh) begin(t testing.TB, ip netip.Addr, o envoytest.Options) *proxy {
	t.Helper()
	// A removed listener keeps its routes until it is drained.
	o.Args = append(o.Args, "--drain-time-s", strconv.Itoa(m.drain))
	p := &proxy{Envoy: envoytest.Start(t, o), ns: o.Namespace, ip: ip}
	t.Cleanup(func() {
		if p.rejects {
			return
		}
		p.checkRejected(t)
		if m.hub.Running() && !t.Failed() {
			p.settles(t, m.hub)
		}
	})
	return p
}

func (p *proxy) ready(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := p.WaitReady(ctx); err != nil {
		t.Fatalf("%s is not ready: %v", p.Name, err)
	}
}

func (p *proxy) checkRejected(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	rejected, err := p.Rejected(ctx)
	if err != nil || len(rejected) != 0 {
		t.Errorf("%s rejected %v, %v; its log:\n%s", p.Name, rejected, err, p.Log())
	}
}

// addr is where the proxy listens for a port.
func (p *proxy) addr(port uint16) string {
	return net.JoinHostPort(p.ip.String(), strconv.Itoa(int(port)))
}

// get asks the proxy for a host over HTTP/1.1.
func (p *proxy) get(ctx context.Context, host string, port uint16) (envoytest.Answer, error) {
	return envoytest.Get(ctx, p.ns.HTTPClient(), "http://"+p.addr(port)+"/", host)
}

// get2 is get over HTTP/2.
func (p *proxy) get2(ctx context.Context, host string, port uint16) (envoytest.Answer, error) {
	client := p.ns.HTTP2Client()
	defer client.CloseIdleConnections()
	return envoytest.Get(ctx, client, "http://"+p.addr(port)+"/", host)
}

// answers waits until a request is answered by that backend.
func (p *proxy) answers(t testing.TB, host string, port uint16, backend string) {
	t.Helper()
	envoytest.Eventually(t, limit, fmt.Sprintf("%s to get an answer of %s for %s:%d", p.Name, backend, host, port), func() error {
		a, err := p.get(t.Context(), host, port)
		return same(a.Name, backend, err)
	})
}

// same is nil if err is and got is what is wanted.
func same[T comparable](got, want T, err error) error {
	if err == nil && got != want {
		err = fmt.Errorf("got %v, want %v", got, want)
	}
	return err
}

// refuses waits until a request gets that status.
func (p *proxy) refuses(t testing.TB, host string, port uint16, status int) {
	t.Helper()
	envoytest.Eventually(t, limit, fmt.Sprintf("%s to refuse %s:%d with %d", p.Name, host, port, status), func() error {
		_, err := p.get(t.Context(), host, port)
		return refusal(err, status)
	})
}

// refusal is nil if err is an HTTP answer with that status.
func refusal(err error, status int) error {
	var refused *envoytest.StatusError
	switch {
	case err == nil:
		return errors.New("it is answered")
	case errors.As(err, &refused) && refused.Code == status:
		return nil
	}
	return err
}

// hosts are the addresses "IP:PORT" that the proxy has for a cluster, with
// their health: true = it may be chosen. They are nil if there is no such
// cluster.
func (p *proxy) hosts(ctx context.Context, cluster string) (map[string]bool, error) {
	all, err := p.Clusters(ctx)
	if err != nil {
		return nil, err
	}
	for _, c := range all {
		if c.GetName() != cluster {
			continue
		}
		hosts := map[string]bool{}
		for _, h := range c.GetHostStatuses() {
			sa := h.GetAddress().GetSocketAddress()
			hosts[net.JoinHostPort(sa.GetAddress(), strconv.Itoa(int(sa.GetPortValue())))] = !h.GetHealthStatus().GetFailedOutlierCheck()
		}
		return hosts, nil
	}
	return nil, nil
}

// outbound is the name of a service's Envoy cluster.
func outbound(host string, port uint16) string { return fmt.Sprintf("outbound|%d||%s", port, host) }

// dropped waits until the proxy does not list the backend any more.
func (p *proxy) dropped(t testing.TB, cluster string, b *envoytest.Backend) {
	t.Helper()
	envoytest.Eventually(t, limit, p.Name+" to drop "+b.Name, func() error {
		hosts, err := p.hosts(t.Context(), cluster)
		if _, still := hosts[b.Addr]; still {
			err = errors.Join(err, fmt.Errorf("it still has %v", hosts))
		}
		return err
	})
}

// traffic asks for a host without pause, from n workers.
func (p *proxy) traffic(t testing.TB, n int, host string, port uint16) *envoytest.Traffic {
	return envoytest.StartTraffic(t, n, func(ctx context.Context) error {
		_, err := p.get(ctx, host, port)
		return err
	})
}

// more waits until n more requests have ended.
func more(t testing.TB, tr *envoytest.Traffic, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := tr.Wait(ctx, n); err != nil {
		t.Fatalf("waiting for %d requests: %v", n, err)
	}
}

// flawless ends the traffic, of which no request may have failed.
func flawless(t testing.TB, tr *envoytest.Traffic) {
	t.Helper()
	if r := tr.Stop(); r.Failed > 0 || r.OK == 0 {
		t.Errorf("%d requests failed, %d did not; the first failure: %v", r.Failed, r.OK, r.First)
	}
}
