package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
)

// TestKeptOfAnotherDeclaration: what a registry said before its declaration was edited, while the hub was down, is neither held nor served; other
// credentials, by whatever name, change nothing.
func TestKeptOfAnotherDeclaration(t *testing.T) {
	t.Parallel()
	secrets, set := secretDir(t)
	set("s", "one")
	set("t", "two")
	first, second := newConsul(t, map[string][]string{"web": {"10.7.0.1"}, "pay": {"10.7.0.2"}}), newConsul(t, map[string][]string{"mail": {"10.7.0.3"}})
	flags := []string{"--cluster-id", "east", "--state-dir", t.TempDir(), "--sync-timeout", "4s", "--registry-secrets-dir", secrets}
	hub := func(address, more string) *running {
		return startHub(t, map[string]string{"east/services.yaml": serviceYAML("east", "10.1.0.1"), "east/a.yaml": registryYAML("a", address, more)}, flags...)
	}
	r := hub(first.address(), ", credentials: {secretName: s}")
	r.untilAddresses(t, "web.dc1.consul", "10.7.0.1:8080")
	stop := func() {
		t.Helper()
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	first.set(func() { clear(first.services) })
	r = hub(first.address(), ", credentials: {secretName: t}")
	r.holds(t, "a", 2)
	r.untilAddresses(t, "web.dc1.consul", "10.7.0.1:8080")
	stop()
	r = hub(closedPort(t), ", namespace: team-b")
	r.log.until(t, "that nothing kept is served", func() bool {
		x := registryOf(t, r, "a")
		return x.State == "timeout" && x.Services == 0 && slices.ContainsFunc(x.Problems, func(p debug.Problem) bool { return strings.Contains(p.Reason, "as it was declared before") })
	})
	stop()
	r = hub(second.address(), ", namespace: team-b")
	r.untilAddresses(t, "mail.dc1.consul", "10.7.0.3:8080")
	if x := registryOf(t, r, "a"); x.HeldBack > 0 || x.Services != 1 {
		t.Errorf("%+v", x)
	}
	if !strings.Contains(r.log.String(), "what was kept of the registry is not used: it was declared otherwise") {
		t.Error("it is not told")
	}
}

// TestHeldAcrossRestarts: what is held is held for as long as it was to be, whenever the hub restarts.
func TestHeldAcrossRestarts(t *testing.T) {
	t.Parallel()
	c, state := newConsul(t, map[string][]string{"web": {"10.7.0.1"}, "pay": {"10.7.0.2"}}), t.TempDir()
	files := map[string]string{"east/services.yaml": serviceYAML("east", "10.1.0.1"), "east/a.yaml": registryYAML("a", c.address(), ", empty: {mode: hold, duration: 1h}")}
	flags := []string{"--cluster-id", "east", "--state-dir", state, "--sync-timeout", "4s"}
	r := startHub(t, files, flags...)
	r.untilAddresses(t, "web.dc1.consul", "10.7.0.1:8080")
	c.set(func() { clear(c.services) })
	before := r.holds(t, "a", 2).Problems
	for range 2 {
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		r = startHub(t, files, flags...)
		if after := r.holds(t, "a", 2).Problems; !slices.EqualFunc(before, after, func(a, b debug.Problem) bool { return a.Reason == b.Reason && a.Since.Equal(b.Since) }) {
			t.Errorf("%+v, before %+v", after, before)
		}
	}
}
