package gen_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	networking "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/test/golden"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// virtualService reads a spec. Names in it stand for themselves.
func virtualService(t testing.TB, name, spec string, edits ...func(*pushcontext.VirtualService)) *pushcontext.VirtualService {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(spec))
	if err != nil {
		t.Fatal(err)
	}
	s := &networking.VirtualService{}
	if s.UnmarshalJSON(raw) != nil { // it takes "24h", but not a thousand years
		s = &networking.VirtualService{}
		if err := protojson.Unmarshal(raw, s); err != nil {
			t.Fatal(err)
		}
	}
	v := &pushcontext.VirtualService{Namespace: "shop", Created: epoch, Hosts: s.Hosts, Gateways: s.Gateways, Spec: s,
		Export: pushcontext.Export{Public: true}, Source: model.Source{Object: model.ObjectKey{Kind: "VirtualService", Namespace: "shop", Name: name}}}
	if len(v.Gateways) == 0 {
		v.Gateways = []string{pushcontext.MeshGateway}
	}
	for _, e := range edits {
		e(v)
	}
	return v
}

// routedBy gives a service its VirtualServices.
func routedBy(list ...*pushcontext.VirtualService) func(*pushcontext.ShapeView) {
	return func(s *pushcontext.ShapeView) { s.VirtualServices = list }
}

const cartHost = "cart.shop.svc.cluster.local"

func cartService(edit func(*pushcontext.ShapeView)) svc {
	return svc{host: cartHost, ports: []model.Port{httpPort(80)}, vips: members("c1", "10.0.0.1"), edit: edit}
}

// withLabels gives a class labels of its workload.
func withLabels(l model.Labels) func(*gen.Class) {
	return func(c *gen.Class) { c.Labels = gen.NewLabels(l) }
}

// routeTable builds the shared table of a port.
func routeTable(t testing.TB, v *pushcontext.PortView, c gen.Class) *routev3.RouteConfiguration {
	t.Helper()
	for _, r := range build(t, gen.Routes{}, v, c) {
		if m := decode(t, r).(*routev3.RouteConfiguration); m.Name == "80" || m.Name == "exposed.80" {
			return m
		}
	}
	t.Fatal("no table")
	return nil
}

func virtualHostNamed(m *routev3.RouteConfiguration, name string) *routev3.VirtualHost {
	for _, h := range m.VirtualHosts {
		if h.Name == name {
			return h
		}
	}
	return nil
}

// featureTables are the tables of each spec in testdata/routes.
func featureTables(t testing.TB) map[string]*routev3.RouteConfiguration {
	t.Helper()
	out := map[string]*routev3.RouteConfiguration{}
	for name, spec := range featureSpecs(t) {
		s := cartService(routedBy(virtualService(t, name, spec)))
		out[name] = routeTable(t, portView(80, newMesh(), s), sidecar("c1", "shop", withLabels(model.Labels{"app": "web"})))
	}
	return out
}

func featureSpecs(t testing.TB) map[string]string {
	t.Helper()
	files, err := filepath.Glob("testdata/routes/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	out := map[string]string{}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimSuffix(filepath.Base(f), ".yaml")] = strings.ReplaceAll(string(raw), "LARGE", strings.Repeat("x", 5000))
	}
	return out
}

// Each feature of HTTP routes in Envoy's terms.
func TestRouteGoldens(t *testing.T) {
	t.Parallel()
	for name, m := range featureTables(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := strings.ReplaceAll(text(t, virtualHostNamed(m, cartHost+":80")), strings.Repeat("x", 5000), "LARGE")
			golden.Compare(t, filepath.Join("testdata", "routes", name+".golden"), got+"\n")
		})
	}
}

// A body larger than Envoy's default has the table allow it; others need no word.
func TestLargeBodyIsAllowed(t *testing.T) {
	t.Parallel()
	for name, m := range featureTables(t) {
		want := uint32(0)
		if name == "large-body" {
			want = 1 << 20
		}
		if got := m.GetMaxDirectResponseBodySizeBytes().GetValue(); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}

// Every field of the traffic API's HTTP routes is in some spec, so that the goldens show what becomes of it.
func TestEveryFieldOfHTTPRouteIsShown(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, spec := range featureSpecs(t) {
		raw, err := yaml.YAMLToJSON([]byte(spec))
		if err != nil {
			t.Fatal(err)
		}
		var m map[string]any
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Fatal(err)
		}
		collect(m["http"], seen)
	}
	// Delegates are merged before, and Envoy has no exponential delay and no HTTP/2 error.
	elsewhere := []string{"delegate", "exponentialDelay", "http2Error"}
	for _, f := range httpRouteFields() {
		if !seen[f] && !slices.Contains(elsewhere, f) {
			t.Errorf("no spec has %s", f)
		}
	}
}

// httpRouteFields are the fields of HTTPRoute and of all messages in it, as in YAML.
func httpRouteFields() []string {
	var out []string
	done := map[protoreflect.FullName]bool{}
	var walk func(protoreflect.MessageDescriptor)
	walk = func(d protoreflect.MessageDescriptor) {
		if done[d.FullName()] || d.IsMapEntry() || !strings.HasPrefix(string(d.FullName()), "istio.") {
			return
		}
		done[d.FullName()] = true
		for i := range d.Fields().Len() {
			f := d.Fields().Get(i)
			out = append(out, f.JSONName())
			switch {
			case f.IsMap():
				if v := f.MapValue().Message(); v != nil {
					walk(v)
				}
			case f.Message() != nil && f.JSONName() != "delegate":
				walk(f.Message())
			}
		}
	}
	walk((&networking.HTTPRoute{}).ProtoReflect().Descriptor())
	return out
}

func collect(x any, seen map[string]bool) {
	switch x := x.(type) {
	case []any:
		for _, y := range x {
			collect(y, seen)
		}
	case map[string]any:
		for k, y := range x {
			seen[k] = true
			collect(y, seen)
		}
	}
}
