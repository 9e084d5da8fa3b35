package validate_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
	networkingv1beta1 "istio.io/api/networking/v1beta1"
	telemetry "istio.io/api/telemetry/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube/validate"
	"github.com/isthmus-mesh/isthmus/test/golden"
)

// specs makes the empty message of each kind.
var specs = map[string]func() proto.Message{
	"VirtualService":  func() proto.Message { return &networking.VirtualService{} },
	"DestinationRule": func() proto.Message { return &networking.DestinationRule{} },
	"Gateway":         func() proto.Message { return &networking.Gateway{} },
	"ServiceEntry":    func() proto.Message { return &networking.ServiceEntry{} },
	"WorkloadEntry":   func() proto.Message { return &networking.WorkloadEntry{} },
	"WorkloadGroup":   func() proto.Message { return &networking.WorkloadGroup{} },
	"Sidecar":         func() proto.Message { return &networking.Sidecar{} },
	"ProxyConfig":     func() proto.Message { return &networkingv1beta1.ProxyConfig{} },
	"Telemetry":       func() proto.Message { return &telemetry.Telemetry{} },
}

// object is one document of a file in testdata.
type object struct {
	key  model.ObjectKey
	spec proto.Message
}

func objects(t testing.TB, kind string) (out []object) {
	t.Helper()
	file, err := os.ReadFile(filepath.Join("testdata", strings.ToLower(kind)+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for doc := range strings.SplitSeq(string(file), "\n---\n") {
		var o struct {
			Metadata struct{ Name string }
			Spec     any
		}
		if err := yaml.UnmarshalStrict([]byte(doc), &o); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		body, err := yaml.Marshal(o.Spec)
		if err != nil {
			t.Fatal(err)
		}
		spec := specs[kind]()
		if err := yaml.Unmarshal(body, spec); err != nil {
			t.Fatalf("%s %s: %v", kind, o.Metadata.Name, err)
		}
		out = append(out, object{model.ObjectKey{Kind: kind, Namespace: "shop", Name: o.Metadata.Name}, spec})
	}
	return out
}

// TestFindings compares what is found in the objects of testdata with golden files.
func TestFindings(t *testing.T) {
	t.Parallel()
	for kind := range specs {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			var got bytes.Buffer
			for _, o := range objects(t, kind) {
				before := proto.Clone(o.spec)
				fmt.Fprintf(&got, "%s\n", o.key.Name)
				for _, f := range validate.Object(o.key, o.spec) {
					fmt.Fprintf(&got, "  %-7s %s: %s [%s]\n", f.Severity, f.Field, f.Message, f.Code)
				}
				if !proto.Equal(before, o.spec) {
					t.Errorf("%s was changed", o.key)
				}
			}
			golden.Compare(t, filepath.Join("testdata", strings.ToLower(kind)+".golden"), got.String())
		})
	}
}

// TestNothingWrong holds the first object of each file, in which every field may stand, to what its name says.
func TestNothingWrong(t *testing.T) {
	t.Parallel()
	for kind := range specs {
		for _, o := range objects(t, kind) {
			if found := validate.Object(o.key, o.spec); o.key.Name == "nothing-wrong" && len(found) > 0 {
				t.Errorf("%s: %v", o.key, found)
			}
		}
	}
}

// TestErrorsComeFirst also shows that an object with very much wrong is told some of it.
func TestErrorsComeFirst(t *testing.T) {
	t.Parallel()
	spec := &networking.VirtualService{Hosts: []string{"a"}}
	for range 200 {
		spec.Http = append(spec.Http, &networking.HTTPRoute{Name: "same", Route: []*networking.HTTPRouteDestination{{Destination: &networking.Destination{Host: "*"}}}})
	}
	found := validate.Object(model.ObjectKey{Kind: "VirtualService"}, spec)
	if len(found) != 65 {
		t.Errorf("%d findings, want 64 and that there are more", len(found))
	}
	last := model.SeverityError
	for _, f := range found {
		if f.Severity > last {
			t.Fatalf("%v comes after a lesser one", f)
		}
		last = f.Severity
	}
	if !validate.Refused(found) {
		t.Error("an object with errors is not refused")
	}
}

// TestSize: what one object makes of every proxy's routes is bounded.
func TestSize(t *testing.T) {
	t.Parallel()
	spec := &networking.VirtualService{}
	for i := range 1000 {
		spec.Hosts = append(spec.Hosts, fmt.Sprintf("h%d.example.com", i))
		spec.Http = append(spec.Http, &networking.HTTPRoute{
			Match: []*networking.HTTPMatchRequest{{Uri: &networking.StringMatch{MatchType: &networking.StringMatch_Exact{Exact: fmt.Sprintf("/%d", i)}}}},
			Route: []*networking.HTTPRouteDestination{{Destination: &networking.Destination{Host: "a"}}},
		})
	}
	key := model.ObjectKey{Kind: "VirtualService"}
	if !validate.Refused(validate.Object(key, spec)) {
		t.Error("a million routes are taken")
	}
	spec.Http = spec.Http[:200]
	if found := validate.Object(key, spec); len(found) > 0 {
		t.Errorf("200 000 routes are refused: %v", found)
	}
}

// TestSizeOfServiceEntries is TestSize for clusters.
func TestSizeOfServiceEntries(t *testing.T) {
	t.Parallel()
	spec := &networking.ServiceEntry{Resolution: networking.ServiceEntry_DNS}
	for i := range 300 {
		spec.Hosts = append(spec.Hosts, fmt.Sprintf("h%d.example.com", i))
		spec.Ports = append(spec.Ports, &networking.ServicePort{Number: uint32(i + 1), Name: fmt.Sprintf("p%d", i), Protocol: "HTTP"})
	}
	key := model.ObjectKey{Kind: "ServiceEntry"}
	if !validate.Refused(validate.Object(key, spec)) {
		t.Error("90 000 clusters are taken")
	}
	spec.Hosts = spec.Hosts[:200]
	if found := validate.Object(key, spec); len(found) > 0 {
		t.Errorf("60 000 clusters are refused: %v", found)
	}
}

// TestUnknownKinds are not looked at.
func TestUnknownKinds(t *testing.T) {
	t.Parallel()
	if found := validate.Object(model.ObjectKey{}, nil); found != nil {
		t.Errorf("nothing has findings: %v", found)
	}
}

// FuzzObject shows that no message makes it panic.
func FuzzObject(f *testing.F) {
	kinds := []string{"VirtualService", "DestinationRule", "Gateway", "ServiceEntry", "WorkloadEntry", "WorkloadGroup", "Sidecar", "ProxyConfig", "Telemetry"}
	for i, kind := range kinds {
		for _, o := range objects(f, kind) {
			b, err := proto.Marshal(o.spec)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(uint8(i), b)
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		name := kinds[int(kind)%len(kinds)]
		spec := specs[name]()
		if proto.Unmarshal(b, spec) != nil {
			return
		}
		for _, x := range validate.Object(model.ObjectKey{Kind: name}, spec) {
			if x.Code == "" || x.Message == "" {
				t.Errorf("a finding says nothing: %v", x)
			}
		}
	})
}

// Envoy refuses a match by a parameter with a longer name, so no request meets it.
func TestNamesOfParameters(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{1024: 0, 1025: 1} {
		match := &networking.HTTPMatchRequest{QueryParams: map[string]*networking.StringMatch{strings.Repeat("p", n): {MatchType: &networking.StringMatch_Exact{Exact: "a"}}}}
		got := validate.Object(model.ObjectKey{}, &networking.VirtualService{Hosts: []string{"a"}, Http: []*networking.HTTPRoute{{
			Match: []*networking.HTTPMatchRequest{match}, Route: []*networking.HTTPRouteDestination{{Destination: &networking.Destination{Host: "a"}}}}}})
		if len(got) != want {
			t.Errorf("%d: %v", n, got)
		}
	}
}
