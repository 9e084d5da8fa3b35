package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug/debugtest"
)

// closedPort is an address that refuses connections until the test ends: a socket has it, so nobody else gets it, and does not listen.
func closedPort(t *testing.T) string {
	t.Helper()
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(s) })
	if err := unix.Bind(s, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(s)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint("127.0.0.1:", at.(*unix.SockaddrInet4).Port)
}

const bridgeYAML = `
apiVersion: networking.higress.io/v1
kind: McpBridge
metadata: {name: default, namespace: istio-system}
spec:
  registries:
  - {type: static, name: billing, domain: "10.9.0.4:7001,oops", port: 80}
  - {type: eureka, name: netflix, domain: eureka.internal, port: 8761}
  - {type: nacos2, name: west, domain: 127.0.0.1, port: 1, nacosAccessKey: id, nacosSecretKey: hush}
`

func registryYAML(name, address, more string) string {
	return "apiVersion: isthmus.io/v1alpha1\nkind: Registry\nmetadata: {name: " + name + ", namespace: istio-system}\nspec: {provider: consul, addresses: [\"" + address + "\"]" + more + "}\n"
}

// registryOf gives a registry as the command line shows it.
func registryOf(t *testing.T, r *running, name string) debug.Registry {
	t.Helper()
	for _, x := range ask[[]debug.Registry](t, r, "registry list") {
		if x.Name == name {
			return x
		}
	}
	return debug.Registry{}
}

// TestIncident96RegistriesAreShown: of each registry it can be told how it is and why, where it is declared, and with which settings.
func TestIncident96RegistriesAreShown(t *testing.T) {
	t.Parallel()
	r := startHub(t, map[string]string{
		"east/services.yaml": serviceYAML("east", "10.1.0.1"), "east/bridge.yaml": bridgeYAML,
		"east/legacy.yaml":   registryYAML("legacy", closedPort(t), ", credentials: {secretName: legacy}"),
		"west/registry.yaml": registryYAML("stray", closedPort(t), ""),
	}, "--cluster-id", "east", "--sync-timeout", "1s", "--registry-secrets-dir", t.TempDir())
	r.untilReady(t)
	r.log.until(t, "a service of the McpBridge", func() bool { return registryOf(t, r, "billing").Endpoints == 1 })
	r.log.until(t, "the missing Secret", func() bool { return strings.Contains(registryOf(t, r, "legacy").Reason, "does not exist") })
	legacy := registryOf(t, r, "legacy")
	if legacy.State != debug.Refused || legacy.DeclaredBy.Source.Object != "Registry/istio-system/legacy" || legacy.Effective.Limits.Concurrency != 96 {
		t.Errorf("%+v", legacy)
	}
	if x := registryOf(t, r, "stray"); x.Name != "" {
		t.Errorf("a Registry outside the config cluster is in force: %+v", x)
	}
	for _, c := range ask[[]debug.Cluster](t, r, "cluster list") {
		if c.ID == "legacy" || c.ID == "billing" {
			t.Errorf("%s is listed as a cluster", c.ID)
		}
	}
	got := command(t, "registry", "explain", "legacy", "--hub", r.url)
	for _, want := range []string{"consul/legacy", "refused", "the Secret istio-system/legacy does not exist", "Registry/istio-system/legacy", "concurrency: 96"} {
		if got.code != exitOK || !strings.Contains(got.stdout, want) {
			t.Errorf("registry explain: exit code %d, no %q in:\n%s%s", got.code, want, got.stdout, got.stderr)
		}
	}
	if got := command(t, "registry", "explain", "nobody", "--hub", r.url); got.code != exitNotFound {
		t.Errorf("exit code %d: %s", got.code, got.stderr)
	}
	for _, path := range []string{"/debug/configz", "/debug/registries", "/debug/findings"} {
		if _, text := get(t, r.url+path); strings.Contains(text, "hush") || !strings.Contains(text, "McpBridge") {
			t.Errorf("%s tells a credential, or nothing:\n%s", path, text)
		}
	}
	if got := command(t, "registry", "list", "-o", "wide", "--hub", r.url); !strings.Contains(got.stdout, "McpBridge/istio-system/default registries[0]") {
		t.Errorf("%s", got.stdout)
	}
	said := func() (out []string) {
		for _, f := range ask[[]debug.ObjectFinding](t, r, "findings") {
			out = append(out, strings.TrimSpace(f.Cluster+" "+f.Kind+"/"+f.Name+" "+f.Field+" "+f.Code))
		}
		return out
	}
	for _, want := range []string{"west Registry/stray  NotInForce", "east McpBridge/default registries[0].domain InvalidAddress", "east McpBridge/default registries[1].type InvalidInBridge", "east McpBridge/default registries[2] NameTaken"} {
		r.log.until(t, "the finding "+want, func() bool { return slices.Contains(said(), want) })
	}
}

// A server of configuration can be declared as well as named by a flag, which comes first. Its token is not sent in the clear.
func TestDeclaredMCPServer(t *testing.T) {
	t.Parallel()
	secrets := t.TempDir()
	if err := os.Mkdir(filepath.Join(secrets, "mcp"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(secrets, "mcp", "token"), []byte("hush"), 0o600); err != nil {
		t.Fatal(err)
	}
	declare := func(name, more string) string {
		return strings.Replace(registryYAML(name, "xds://"+closedPort(t), more), "provider: consul", "provider: mcp", 1)
	}
	r := startHub(t, map[string]string{
		"east/services.yaml": serviceYAML("east", "10.1.0.1"), "east/open.yaml": declare("open", ", credentials: {secretName: mcp}"),
		"east/safe.yaml": declare("safe", ", credentials: {secretName: mcp}, tls: {mode: SIMPLE}"), "east/taken.yaml": declare("taken", ""),
	}, "--cluster-id", "east", "--sync-timeout", "1s", "--registry-secrets-dir", secrets, "--mcp-upstream", "taken=xds://"+closedPort(t))
	r.untilReady(t)
	r.log.until(t, "a token that is not sent", func() bool {
		return slices.ContainsFunc(ask[[]debug.ObjectFinding](t, r, "findings"), func(f debug.ObjectFinding) bool {
			return f.Name == "open" && f.Field == "credentials" && f.Severity == "error" && strings.Contains(f.Message, "a token needs TLS")
		})
	})
	if x := registryOf(t, r, "open"); x.Name != "" {
		t.Errorf("it is in force: %+v", x)
	}
	r.log.until(t, "a server that is tried", func() bool { return strings.Contains(registryOf(t, r, "safe").Reason, "refused") })
	if x := registryOf(t, r, "taken"); x.DeclaredBy != nil || x.Provider != "mcp" {
		t.Errorf("%+v", x)
	}
}

// What the command line shows of registries in several states.
func TestRegistryTables(t *testing.T) {
	t.Parallel()
	now := debugtest.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	by := func(object, field string) *debug.Declaring {
		return &debug.Declaring{Source: debug.Source{Shard: "kubernetes/east", Object: object}, Field: field}
	}
	spec := api.RegistrySpec{Provider: api.Consul, Addresses: []string{"consul.example.com:8500"}, Namespace: "istio-system", Hosts: &api.HostNaming{Mode: api.NamingHigress}}
	list := []debug.Registry{
		{Provider: "consul", Name: "legacy", State: "stale", Since: ago(3 * time.Minute), Reason: "connection refused", Synced: true, Services: 12, Workloads: 40, Endpoints: 40, HeldBack: 1, LastEvent: ago(4 * time.Minute),
			Problems: []debug.Problem{{Item: "Service/istio-system/web.dc1.consul", Reason: "held", Since: ago(time.Minute)}}, DeclaredBy: by("Registry/istio-system/legacy", ""), Secrets: []string{"legacy-consul"}, Effective: &spec},
		{Provider: "nacos", Name: "trade", State: debug.Refused, Since: ago(time.Second), Reason: "the Secret istio-system/trade does not exist", DeclaredBy: by("McpBridge/istio-system/default", "registries[0]")},
		{Provider: "mcp", Name: "up", State: "live", Since: ago(time.Hour), Synced: true},
	}
	var out strings.Builder
	if err := registryTable(list, now).Write(&out); err != nil {
		t.Fatal(err)
	}
	for _, x := range list {
		out.WriteString("\n")
		if err := explainRegistry(&out, x, now); err != nil {
			t.Fatal(err)
		}
	}
	compare(t, "registries.golden", out.String())
}

// Secrets in a folder are followed, and a registry that can't be reached hurts nobody and comes and goes with its declaration.
func TestRegistrySecretsInAFolder(t *testing.T) {
	t.Parallel()
	secrets := t.TempDir()
	r := startHub(t, map[string]string{
		"east/services.yaml": serviceYAML("east", "10.1.0.1"), "east/legacy.yaml": registryYAML("legacy", closedPort(t), ", credentials: {secretName: legacy}"),
	}, "--cluster-id", "east", "--sync-timeout", "1s", "--registry-secrets-dir", secrets)
	r.untilReady(t)
	if err := os.Mkdir(filepath.Join(secrets, "legacy"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(secrets, "legacy", "token"), []byte("hush\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.log.until(t, "a registry that is tried", func() bool {
		return strings.Contains(registryOf(t, r, "legacy").Reason, "refused") && registryOf(t, r, "legacy").State != debug.Refused
	})
	if n := counts(t, r)["east"].Total; n != 1 {
		t.Errorf("east has %d endpoints", n)
	}
	_, dump := get(t, r.url+"/debug/registries")
	if strings.Contains(dump+r.log.String(), "hush") {
		t.Error("a credential is told")
	}
	if err := os.Remove(filepath.Join(r.dir, "east/legacy.yaml")); err != nil {
		t.Fatal(err)
	}
	r.log.until(t, "its end", func() bool { return registryOf(t, r, "legacy").Name == "" })
}
