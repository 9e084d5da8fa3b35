package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-mesh/isthmus/test/env"
)

func registryExamples(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../examples/registries/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(f)] = string(text)
	}
	return out
}

// The examples have no errors, and nothing in them that has no effect.
func TestRegistryExamples(t *testing.T) {
	t.Parallel()
	for name := range registryExamples(t) {
		got := command(t, "check", "../../examples/registries/"+name)
		if got.code != exitOK || strings.Contains(got.stdout, "error") || name != "federatedservice.yaml" && got.stdout != "" {
			t.Errorf("%s: exit code %d\n%s%s", name, got.code, got.stdout, got.stderr)
		}
	}
}

// An API server takes the examples by the definitions in deploy/crds, and refuses what can't be.
func TestDefinitionsOnAServer(t *testing.T) {
	t.Parallel()
	c := servers.Take(t, 1)[0]
	c.Apply(t, env.Namespace("istio-system"), env.Namespace("shop"))
	for _, text := range registryExamples(t) {
		c.Apply(t, text)
	}
	for text, want := range map[string]string{
		`{kind: Registry, spec: {provider: eureka, addresses: ["a:1"]}}`:                                                     "provider",
		`{kind: Registry, spec: {provider: consul, addresses: ["a:1"], nacos: {}}}`:                                          "nacos is for the provider nacos",
		`{kind: Registry, spec: {provider: consul}}`:                                                                         "addresses are missing",
		`{kind: Registry, spec: {provider: consul, addresses: ["a:1"], tls: {mode: MUTUAL}}}`:                                "MUTUAL needs secretName",
		`{kind: Registry, spec: {provider: consul, addresses: ["a:1"], empty: {percent: 101}}}`:                              "percent",
		`{kind: Registry, spec: {provider: consul, addresses: ["a:1"], staleAfter: soon}}`:                                   "staleAfter",
		`{kind: FederatedService, spec: {host: a.b, ports: [], sources: []}}`:                                                "ports",
		`{kind: FederatedService, spec: {host: a.b, ports: [{name: a, number: 1}], sources: [{host: a, selector: {a: b}}]}}`: "either host or selector",
		`{kind: FederatedService, spec: {host: a.b, ports: [{name: a, number: 70000}], sources: [{host: a}]}}`:               "number",
	} {
		if err := create(t.Context(), c, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// create makes an object of isthmus.io in the namespace shop.
func create(ctx context.Context, c *env.Cluster, text string) error {
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		return err
	}
	o.SetAPIVersion("isthmus.io/v1alpha1")
	o.SetName("x")
	o.SetNamespace("shop")
	plural := map[string]string{"Registry": "registries", "FederatedService": "federatedservices"}[o.GetKind()]
	_, err := c.Dynamic.Resource(schema.GroupVersionResource{Group: "isthmus.io", Version: "v1alpha1", Resource: plural}).Namespace("shop").Create(ctx, o, metav1.CreateOptions{})
	return err
}

// Registries in an API server are read with the rights of deploy/, and their Secrets, and both may change at any time.
func TestRegistriesOfAnAPIServer(t *testing.T) {
	t.Parallel()
	c := servers.Take(t, 1)[0]
	c.Apply(t, env.Namespace("istio-system"), manifest(t, "rbac-primary.yaml"), registryYAML("legacy", closedPort(t), ", credentials: {secretName: legacy}"), bridgeYAML)
	own := c.Token(t, "istio-system/isthmus", 3600)
	r := &running{dir: t.TempDir(), log: newLogbook()}
	r.write(t, "primary.yaml", string(c.Kubeconfig(own)))
	r.start(t, "--kubeconfig", r.path("primary.yaml"), "--sync-timeout", "10s", "--state-dir", t.TempDir())
	r.log.until(t, "the missing Secret", func() bool { return strings.Contains(registryOf(t, r, "legacy").Reason, "does not exist") })
	r.log.until(t, "a service of the McpBridge", func() bool { return registryOf(t, r, "billing").Services == 1 })
	secret := func(token string) string {
		return fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: legacy, namespace: istio-system}, stringData: {token: %s}}", token)
	}
	c.Apply(t, secret("hush-1"))
	r.log.until(t, "a registry that is tried", func() bool { x := registryOf(t, r, "legacy"); return x.State == "syncing" || x.State == "timeout" })
	c.Apply(t, secret("hush-2"))
	r.log.until(t, "the new token", func() bool { return strings.Count(r.log.String(), "registry declared") >= 3 }) // billing, and legacy twice
	c.Delete(t, secret("hush-2"))
	r.log.until(t, "that it is gone", func() bool {
		for _, p := range registryOf(t, r, "legacy").Problems {
			if strings.Contains(p.Reason, "is gone") {
				return true
			}
		}
		return false
	})
	if strings.Contains(r.log.String(), "hush") {
		t.Error("a credential is told")
	}
	c.Delete(t, registryYAML("legacy", "a:1", ""))
	r.log.until(t, "its end", func() bool { return registryOf(t, r, "legacy").Name == "" })
}

// TestRegistriesWhileTheConfigClusterIsAway: a hub that starts then serves what was kept, of the registries too, though neither their
// declarations nor their Secrets can be read; it reads the registries when they can.
func TestRegistriesWhileTheConfigClusterIsAway(t *testing.T) {
	t.Parallel()
	c, consul := servers.Take(t, 1)[0], newConsul(t, map[string][]string{"web": {"10.7.0.1"}})
	c.Apply(t, env.Namespace("istio-system"), registryYAML("legacy", consul.address(), ", credentials: {secretName: legacy}"),
		"{apiVersion: v1, kind: Secret, metadata: {name: legacy, namespace: istio-system}, stringData: {token: one}}")
	link := c.Link(t)
	r := &running{dir: t.TempDir(), log: newLogbook()}
	r.write(t, "primary.yaml", string(link.Kubeconfig(env.AdminToken)))
	flags := []string{"--kubeconfig", r.path("primary.yaml"), "--sync-timeout", "10s", "--state-dir", t.TempDir()}
	r.start(t, flags...)
	r.untilAddresses(t, "web.dc1.consul", "10.7.0.1:8080")
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	link.Cut()
	r.start(t, flags...)
	r.untilReady(t)
	r.untilAddresses(t, "web.dc1.consul", "10.7.0.1:8080")
	r.log.until(t, "a stale registry", func() bool { x := registryOf(t, r, "legacy"); return x.State == "stale" && x.DeclaredBy != nil })
	link.Restore()
	r.log.until(t, "a registry that is read", func() bool { return registryOf(t, r, "legacy").State == "live" })
	consul.set(func() { consul.services["web"] = []string{"10.7.0.2"} })
	r.untilAddresses(t, "web.dc1.consul", "10.7.0.2:8080")
}
