package env

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"testing"

	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// IstiodVar is the environment variable that holds the path of an istiod to use.
const IstiodVar = "ISTHMUS_ISTIOD"

// RootNamespace and TrustDomain are those of every istiod here.
const (
	RootNamespace = "istio-system"
	TrustDomain   = "upstream.test"
)

// Istiod is a real istiod that reads a cluster's API server and serves what it finds there over MCP (Mesh
// Configuration Protocol).
type Istiod struct {
	Address string // of its xDS port: the secure one, if it has one

	cluster *Cluster
	binary  string
	log     string
	args    []string
	auth    bool // callers must say who they are
	health  string
	server  *process
}

// Istiod runs an istiod for the cluster until the test ends. It serves plaintext, to anybody.
func (c *Cluster) Istiod(t testing.TB) *Istiod { return c.istiod(t, nil) }

// ServerTLS is what an istiod has to be reached over TLS, in PEM.
type ServerTLS struct {
	Cert, Key string
	CA        string // authorities of callers
}

// SecureIstiod runs an istiod as it is in production: over TLS, with its configuration for those alone that it knows to be in its root
// namespace, by a certificate with a SPIFFE identity or a token of the API server for the audience "istio-ca".
func (c *Cluster) SecureIstiod(t testing.TB, tls ServerTLS) *Istiod { return c.istiod(t, &tls) }

func (c *Cluster) istiod(t testing.TB, tls *ServerTLS) *Istiod {
	t.Helper()
	binary, err := envoytest.Tool(t.Context(), "istiod", IstiodVar)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := map[string]string{
		"kubeconfig": string(c.Kubeconfig(AdminToken)), "mesh.yaml": "trustDomain: " + TrustDomain + "\nrootNamespace: " + RootNamespace + "\n", "networks.yaml": "networks: {}\n",
	}
	if tls != nil {
		files["cert.pem"], files["key.pem"], files["ca.pem"] = tls.Cert, tls.Key, tls.CA
	}
	for name, text := range files {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := func(port uint16) string { return netip.AddrPortFrom(c.at, port).String() }
	i := &Istiod{Address: at(15010), cluster: c, binary: binary, log: dir + "/istiod.log", health: "http://" + at(8080) + "/ready", args: []string{
		"discovery", "--kubeconfig", dir + "/kubeconfig", "--meshConfig", dir + "/mesh.yaml", "--networksConfig", dir + "/networks.yaml",
		"--httpsAddr", "", "--grpcAddr", at(15010), "--httpAddr", at(8080), "--monitoringAddr", at(15014), "--ctrlz_port", "0", "--secureGRPCAddr",
	}}
	if tls == nil {
		i.args = append(i.args, "")
	} else {
		i.Address, i.auth = at(15012), true
		i.args = append(i.args, i.Address, "--tlsCertFile", dir+"/cert.pem", "--tlsKeyFile", dir+"/key.pem", "--caCertFile", dir+"/ca.pem")
	}
	i.Start(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of istiod:\n%s", i.server.tail())
		}
		i.server.kill()
	})
	return i
}

// Start runs it again after Stop.
func (i *Istiod) Start(t testing.TB) {
	t.Helper()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	asks := &http.Client{Transport: transport}
	// Nothing that needs certificates, webhooks or rights to write.
	env := []string{
		"POD_NAMESPACE=" + RootNamespace, "POD_NAME=istiod", "ENABLE_CA_SERVER=false", "PILOT_CERT_PROVIDER=none", "INJECT_ENABLED=false",
		"VALIDATION_ENABLED=false", "PILOT_ENABLE_ANALYSIS=false", "PILOT_ENABLE_GATEWAY_API=false", "PILOT_ENABLE_STATUS=false",
		"PILOT_ENABLE_AMBIENT=false", fmt.Sprint("XDS_AUTH=", i.auth), fmt.Sprint("ENABLE_XDS_API_GENERATOR_AUTH=", i.auth),
	}
	p, err := launch(t.Context(), i.log, "/usr/bin/env", append(append(env, i.binary), i.args...), func(ctx context.Context) error {
		return answers(ctx, asks, i.health)
	})
	if err != nil {
		t.Fatal(fmt.Errorf("istiod: %w", err))
	}
	i.server = p
}

// Stop kills it.
func (i *Istiod) Stop() { i.server.kill() }
