package env

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// Environment variables that hold the paths of the binaries to use.
const (
	KubeAPIServerVar = "ISTHMUS_KUBE_APISERVER"
	EtcdVar          = "ISTHMUS_ETCD"
)

// machine is what all clusters of a pool share.
type machine struct {
	dir       string // holds keys, data and logs
	apiserver string // the binary
	addrs     *envoytest.Loopback
	ca        *authority
	etcd      *process
	etcdURL   string

	definitions func() (map[string]*unstructured.Unstructured, error)
}

// loopbackFirst is where the search for a free block of addresses begins, away
// from the ones that Envoys claim.
const loopbackFirst = 100

func newMachine(ctx context.Context) (*machine, error) {
	apiserver, err := envoytest.Tool(ctx, "kube-apiserver", KubeAPIServerVar)
	if err != nil {
		return nil, err
	}
	etcd, err := envoytest.Tool(ctx, "etcd", EtcdVar)
	if err != nil {
		return nil, err
	}
	m := &machine{apiserver: apiserver, definitions: sync.OnceValues(func() (map[string]*unstructured.Unstructured, error) {
		return loadDefinitions(context.Background())
	})}
	if m.ca, err = newAuthority(); err != nil {
		return nil, err
	}
	if m.dir, err = os.MkdirTemp("", "isthmus-env-"); err != nil {
		return nil, err
	}
	if m.addrs, err = envoytest.ClaimLoopback(loopbackFirst); err == nil {
		err = m.startEtcd(ctx, etcd)
	}
	if err != nil {
		m.close(false)
		return nil, err
	}
	return m, nil
}

func (m *machine) startEtcd(ctx context.Context, binary string) error {
	client, peer := "http://"+m.addrs.At(0, 1, 2379), "http://"+m.addrs.At(0, 1, 2380)
	args := []string{
		"--data-dir", filepath.Join(m.dir, "etcd"), "--unsafe-no-fsync", "--log-level", "warn",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default=" + peer,
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	asks := &http.Client{Transport: transport}
	p, err := launch(ctx, filepath.Join(m.dir, "etcd.log"), binary, args, func(ctx context.Context) error {
		return answers(ctx, asks, client+"/health")
	})
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	m.etcd, m.etcdURL = p, client
	return nil
}

// close stops etcd; logs and data stay if they are to be kept.
func (m *machine) close(keep bool) {
	if m.etcd != nil {
		m.etcd.kill()
	}
	if m.addrs != nil {
		_ = m.addrs.Close() // the lock goes with the process at the latest
	}
	if keep {
		fmt.Fprintln(os.Stderr, "logs of etcd and of the API servers are in", m.dir)
		return
	}
	_ = os.RemoveAll(m.dir) // in the folder for temporary files
}
