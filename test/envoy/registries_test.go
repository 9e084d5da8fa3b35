package envoy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/bootstrap"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/test/env"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

const consulToken = "b1gs4cr3-7000-4000-8000-000000000001"

// trio is a mesh whose service checkout is in a cluster, in Nacos and in Consul.
type trio struct {
	*mesh
	clients []*proxy // of both variants of the protocol
	nacos   *env.Nacos
	consul  *env.Consul
	at      map[string]*envoytest.Backend // kube, nacos, consul
	kube    *corev1.Service
}

const federated = `apiVersion: isthmus.io/v1alpha1
kind: FederatedService
metadata: {name: checkout, namespace: shop}
spec:
  host: checkout.shop.svc.cluster.local
  ports: [{name: http, number: 8000, protocol: HTTP}]
  policy: failover
  sources:
  - host: checkout.shop.svc.cluster.local
  - host: checkout.DEFAULT-GROUP.public.nacos
  - host: checkout.dc1.consul`

// registry declares one; the rest is of its spec.
func registry(provider, name, address, rest string) string {
	return fmt.Sprintf("apiVersion: isthmus.io/v1alpha1\nkind: Registry\nmetadata: {name: %s, namespace: istio-system}\nspec: {provider: %s, addresses: ['%s']%s}", name, provider, address, rest)
}

// newTrio starts it; empty is the policy of both registries.
func newTrio(t *testing.T, empty string) *trio {
	t.Helper()
	m := &trio{mesh: newMesh(t), at: map[string]*envoytest.Backend{}, kube: service("checkout", "10.96.0.7", "http", 8000)}
	m.nacos, m.consul = env.StartNacos(t, env.NacosOptions{}), env.StartConsul(t, env.ConsulOptions{Token: consulToken})
	for _, name := range []string{"kube", "nacos", "consul"} {
		m.at[name] = m.backend(t, envoytest.HTTP1, name)
	}
	m.inNacos(t, true)
	m.inConsul(t, true)
	secrets := t.TempDir()
	if err := os.MkdirAll(filepath.Join(secrets, "legacy"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(secrets, "legacy", "token"), []byte(consulToken), 0o600); err != nil {
		t.Fatal(err)
	}
	m.args = []string{"--cluster-id", "east", "--registry-secrets-dir", secrets}
	m.start(t, files{
		"east/kube.yaml":     {m.kube, slicesOf(m.kube, at(m.at["kube"])...)},
		"east/nacos.yaml":    {m.declared("nacos", empty)},
		"east/consul.yaml":   {m.declared("consul", empty)},
		"east/checkout.yaml": {federated},
	})
	m.clients = []*proxy{m.launch(t, "client", bootstrap.Options{}), m.launch(t, "sotw", bootstrap.Options{SotW: true})}
	return m
}

// declared is the Registry of a provider.
func (m *trio) declared(provider, empty string) string {
	if provider == "nacos" {
		return registry(provider, "trade", m.nacos.Host, ", nacos: {discoveryInterval: 1s}, empty: "+empty)
	}
	return registry(provider, "legacy", m.consul.URL, ", credentials: {secretName: legacy}, empty: "+empty)
}

func (m *trio) inNacos(t *testing.T, there bool) {
	t.Helper()
	a := netip.MustParseAddrPort(m.at["nacos"].Addr)
	i := env.NacosInstance{Service: "checkout", IP: a.Addr().String(), Port: a.Port(), Weight: 1, Metadata: map[string]string{"version": "v2"}}
	change := m.nacos.Deregister
	if there {
		change = m.nacos.Register
	}
	if err := change(t.Context(), i); err != nil {
		t.Fatal(err)
	}
}

func (m *trio) inConsul(t *testing.T, there bool) {
	t.Helper()
	if !there {
		m.consul.Put(t, "/v1/catalog/deregister", map[string]any{"Node": "vm-1", "ServiceID": "checkout-1"}, nil)
		return
	}
	a := netip.MustParseAddrPort(m.at["consul"].Addr)
	m.consul.Put(t, "/v1/catalog/register", map[string]any{
		"Node": "vm-1", "Address": a.Addr().String(),
		"Service": map[string]any{"ID": "checkout-1", "Service": "checkout", "Port": a.Port(), "Tags": []string{"version=v3"}},
	}, nil)
}

// ask makes a request through each client; "" is an answer of whoever.
func (m *trio) ask(ctx context.Context, host string, port uint16, want string) error {
	for _, p := range m.clients {
		a, err := envoytest.Get(ctx, p.ns.HTTPClient(), "http://"+p.addr(port), host)
		if err == nil && want != "" && a.Name != want {
			err = fmt.Errorf("an answer of %q", a.Name)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	return nil
}

// answers waits until requests to a host are answered by a backend alone, several times over.
func (m *trio) answers(t *testing.T, host, want string) {
	t.Helper()
	envoytest.Eventually(t, limit, fmt.Sprintf("%s to be answered by %s", host, want), func() error {
		for range 10 {
			if err := m.ask(t.Context(), host, 8000, want); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestServiceOfThreeRegistries: a FederatedService fails over from a cluster to Nacos to Consul and back; a registry that is killed
// takes nothing with it, and one that comes back changes nothing.
func TestServiceOfThreeRegistries(t *testing.T) {
	t.Parallel()
	m := newTrio(t, "{duration: 5s}")
	checkout := host("checkout")
	m.answers(t, checkout, "kube")
	m.write(t, "east/kube.yaml", m.kube)
	m.answers(t, checkout, "nacos")
	m.inNacos(t, false)
	m.answers(t, checkout, "consul")
	m.inNacos(t, true)
	m.answers(t, checkout, "nacos")
	m.nacos.Kill()
	m.reaches(t, "nacos", "stale")
	m.answers(t, checkout, "nacos") // what was known of it is served on
	m.write(t, "east/kube.yaml", m.kube, slicesOf(m.kube, at(m.at["kube"])...))
	m.answers(t, checkout, "kube")
	if err := m.nacos.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.consul.Kill()
	if err := m.consul.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.write(t, "east/kube.yaml", m.kube)
	m.answers(t, checkout, "nacos")
	m.inNacos(t, false)
	m.answers(t, checkout, "consul")
	m.explains(t, checkout)
}

// reaches waits until a registry is in a state.
func (m *mesh) reaches(t *testing.T, provider, state string) {
	t.Helper()
	m.registryHas(t, provider, "to be "+state, func(r debug.Registry) bool { return r.State == state })
}

// registryHas waits until something is true of a registry. Its server may have to be started, which takes long on a busy machine.
func (m *mesh) registryHas(t *testing.T, provider, what string, is func(debug.Registry) bool) {
	t.Helper()
	envoytest.Eventually(t, 4*limit, provider+" "+what, func() error {
		var all []debug.Registry
		text, err := m.hub.Get(t.Context(), m.hub.URL+"/debug/registries")
		if err == nil {
			err = json.Unmarshal(text, &all)
		}
		for _, r := range all {
			if r.Provider == provider && !is(r) {
				return fmt.Errorf("it is %s and holds %d back", r.State, r.HeldBack)
			}
		}
		return err
	})
}

// isthmus runs the command on the hub.
func (m *mesh) isthmus(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), os.Getenv(envoytest.HubVar), append(args, "--hub", m.hub.URL)...).CombinedOutput()
	if err != nil {
		t.Fatalf("isthmus %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// explains looks at what the hub says of the service: every source by its name, and which registry an endpoint came from.
func (m *trio) explains(t *testing.T, host string) {
	t.Helper()
	out := m.isthmus(t, "service", "explain", host, "--proxy", m.clients[0].Name+"."+namespace)
	for _, want := range []string{"consul/legacy", "checkout.dc1.consul", "checkout.DEFAULT-GROUP.public.nacos"} {
		if !strings.Contains(out, want) {
			t.Errorf("service explain does not name %s:\n%s", want, out)
		}
	}
	m.registryHas(t, "consul", "to have one endpoint, not two for its FederatedService", func(r debug.Registry) bool { return r.Endpoints == 1 })
	out = m.isthmus(t, "registry", "list")
	for _, want := range []string{"trade", "legacy", "live"} {
		if !strings.Contains(out, want) {
			t.Errorf("registry list does not name %s:\n%s", want, out)
		}
	}
}
