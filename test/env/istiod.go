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

// Istiod is a real istiod that reads a cluster's API server and serves what it finds there over MCP (Mesh
// Configuration Protocol), plaintext and to anybody.
type Istiod struct {
	Address string // of its xDS port

	cluster *Cluster
	binary  string
	log     string
	args    []string
	health  string
	server  *process
}

// Istiod runs an istiod for the cluster until the test ends.
func (c *Cluster) Istiod(t testing.TB) *Istiod {
	t.Helper()
	binary, err := envoytest.Tool(t.Context(), "istiod", IstiodVar)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"kubeconfig": string(c.Kubeconfig(AdminToken)), "mesh.yaml": "trustDomain: upstream.test\nrootNamespace: istio-system\n", "networks.yaml": "networks: {}\n",
	} {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := func(port uint16) string { return netip.AddrPortFrom(c.at, port).String() }
	i := &Istiod{Address: at(15010), cluster: c, binary: binary, log: dir + "/istiod.log", health: "http://" + at(8080) + "/ready", args: []string{
		"discovery", "--kubeconfig", dir + "/kubeconfig", "--meshConfig", dir + "/mesh.yaml", "--networksConfig", dir + "/networks.yaml",
		"--httpsAddr", "", "--secureGRPCAddr", "", "--grpcAddr", at(15010), "--httpAddr", at(8080), "--monitoringAddr", at(15014), "--ctrlz_port", "0",
	}}
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
		"POD_NAMESPACE=istio-system", "POD_NAME=istiod", "ENABLE_CA_SERVER=false", "PILOT_CERT_PROVIDER=none", "INJECT_ENABLED=false",
		"VALIDATION_ENABLED=false", "PILOT_ENABLE_ANALYSIS=false", "PILOT_ENABLE_GATEWAY_API=false", "PILOT_ENABLE_STATUS=false",
		"PILOT_ENABLE_AMBIENT=false", "XDS_AUTH=false", "ENABLE_XDS_API_GENERATOR_AUTH=false",
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
