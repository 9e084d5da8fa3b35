package gen_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

// refused gives what a stock Envoy says against route tables, "" if it takes them.
func refused(t testing.TB, envoy string, tables ...*routev3.RouteConfiguration) string {
	t.Helper()
	b := &bootstrapv3.Bootstrap{Node: &corev3.Node{Id: "test", Cluster: "test"}, StaticResources: &bootstrapv3.Bootstrap_StaticResources{}}
	for _, m := range tables {
		b.StaticResources.Listeners = append(b.StaticResources.Listeners, routeListener(t, m, len(b.StaticResources.Listeners)))
	}
	raw, err := protojson.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "bootstrap.json")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), envoy, "--mode", "validate", "-c", path, "-l", "error", "--disable-hot-restart").CombinedOutput()
	if err != nil {
		return err.Error() + "\n" + string(out)
	}
	return ""
}

// A stock Envoy takes every feature of HTTP routes.
func TestEnvoyAcceptsRoutes(t *testing.T) {
	t.Parallel()
	envoy := os.Getenv("ISTHMUS_ENVOY")
	if envoy == "" {
		t.Skip("ISTHMUS_ENVOY does not name an Envoy binary: the routes are not validated by a real proxy here")
	}
	all := featureTables(t)
	for name, m := range hostileTables(t) {
		all[name] = m
	}
	if refused(t, envoy, slices.Collect(maps.Values(all))...) == "" {
		return
	}
	for name, m := range all {
		if why := refused(t, envoy, m); why != "" {
			t.Errorf("%q: %s", name, why)
		}
	}
}
