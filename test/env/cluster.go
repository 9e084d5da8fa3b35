package env

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// AdminToken is the bearer token of a member of system:masters in every cluster.
const AdminToken = "admin-token"

// Cluster is one API server with data of its own.
type Cluster struct {
	// Read-only after it was started.
	URL     string // of the API server itself
	CA      []byte // PEM of the authority of its certificate, and of those of its links
	Config  *rest.Config
	Client  kubernetes.Interface
	Dynamic dynamic.Interface

	machine   *machine
	number    int
	at        netip.Addr
	dir       string
	signer    *ecdsa.PrivateKey // of service account tokens
	dialer    dialer
	transport *http.Transport // of all clients above
	mapper    *restmapper.DeferredDiscoveryRESTMapper

	// Owned by the test that has the cluster.
	custom bool // the custom resource definitions are there
	server *process
	links  int
}

// newCluster describes a cluster; prepare starts it.
func newCluster(m *machine, number int) *Cluster {
	at := m.addrs.Addr(1, byte(number+1))
	return &Cluster{
		URL:     "https://" + netip.AddrPortFrom(at, apiPort).String(),
		CA:      m.ca.pem,
		machine: m,
		number:  number,
		at:      at,
		dir:     filepath.Join(m.dir, fmt.Sprint("cluster-", number)),
	}
}

const apiPort = 6443

// prepare makes the cluster what a test expects, running and empty.
func (c *Cluster) prepare(ctx context.Context, fresh, custom bool) error {
	c.links = 0 // those of the last test are closed
	if fresh {
		if err := c.create(); err != nil {
			return err
		}
	}
	if c.server == nil || !c.server.running() {
		if err := c.start(ctx); err != nil {
			return err
		}
	}
	if !fresh {
		if err := c.clear(ctx); err != nil {
			return fmt.Errorf("clear %s: %w", c.URL, err)
		}
	}
	return c.define(ctx, custom)
}

// create writes the keys and makes the clients.
func (c *Cluster) create() error {
	cert, key, err := c.machine.ca.issue(c.at)
	if err != nil {
		return err
	}
	if c.signer, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return err
	}
	saKey, err := private(c.signer)
	if err != nil {
		return err
	}
	saPub, err := public(c.signer)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}
	for name, data := range map[string][]byte{
		"tls.crt": cert, "tls.key": key, "sa.key": saKey, "sa.pub": saPub,
		"tokens.csv": []byte(AdminToken + `,admin,1,"system:masters"` + "\n"),
	} {
		if err := os.WriteFile(c.path(name), data, 0o600); err != nil {
			return err
		}
	}
	return c.connect()
}

func (c *Cluster) path(name string) string { return filepath.Join(c.dir, name) }

// connect makes the clients. They share a transport of their own, which is closed
// with the cluster: client-go's cache of transports would keep its connections.
func (c *Cluster) connect() error {
	c.transport = c.dialer.transport(c.machine.ca)
	c.Config = &rest.Config{
		Host: c.URL, BearerToken: AdminToken, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.CA},
	}
	own := &http.Client{Transport: bearer{AdminToken, c.transport}}
	bare := &rest.Config{Host: c.URL, QPS: -1, WarningHandler: rest.NoWarnings{}}
	typed, err := kubernetes.NewForConfigAndClient(bare, own)
	if err != nil {
		return err
	}
	c.Client = typed
	if c.Dynamic, err = dynamic.NewForConfigAndClient(bare, own); err != nil {
		return err
	}
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(typed.Discovery()))
	return nil
}

// bearer adds a token to requests.
type bearer struct {
	token string
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

func (c *Cluster) start(ctx context.Context) error {
	args := []string{
		"--etcd-servers", c.machine.etcdURL, fmt.Sprintf("--etcd-prefix=/registry%d", c.number),
		"--bind-address", c.at.String(), fmt.Sprint("--secure-port=", apiPort),
		"--tls-cert-file", c.path("tls.crt"), "--tls-private-key-file", c.path("tls.key"), "--cert-dir", c.dir,
		"--service-account-key-file", c.path("sa.pub"), "--service-account-signing-key-file", c.path("sa.key"),
		"--service-account-issuer", issuer, "--token-auth-file", c.path("tokens.csv"),
		"--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount",
		"--service-cluster-ip-range=10.96.0.0/16", // the same everywhere, as clusters are made
		"--endpoint-reconciler-type=none", "--profiling=false",
	}
	p, err := launch(ctx, c.path("apiserver.log"), c.machine.apiserver, args, c.ready)
	if err != nil {
		return fmt.Errorf("kube-apiserver %s: %w", c.URL, err)
	}
	c.server = p
	return nil
}

// ready also waits for the namespaces that the server makes by itself.
func (c *Cluster) ready(ctx context.Context) error {
	asks := &http.Client{Transport: bearer{AdminToken, c.transport}}
	if err := answers(ctx, asks, c.URL+"/readyz"); err != nil {
		return err
	}
	for _, ns := range ownNamespaces {
		if _, err := c.Client.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// Stop kills the API server. Its data stays.
func (c *Cluster) Stop(t testing.TB) {
	t.Helper()
	c.stop()
}

func (c *Cluster) stop() {
	if c.server != nil {
		c.server.kill()
	}
	c.dialer.close()
}

// Start runs a stopped API server again, at the same address with the same data.
func (c *Cluster) Start(t testing.TB) {
	t.Helper()
	if c.server.running() {
		return
	}
	if err := c.start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Restart kills the API server and starts it again.
func (c *Cluster) Restart(t testing.TB) {
	t.Helper()
	c.stop()
	c.Start(t)
}

// Log is the end of what the API server has written.
func (c *Cluster) Log() string {
	if c.server == nil {
		return ""
	}
	return c.server.tail()
}
