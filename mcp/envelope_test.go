package mcp_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"
	wire "istio.io/api/mcp/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/mcp"
)

func body(t testing.TB, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestEnvelopeThereAndBack(t *testing.T) {
	t.Parallel()
	in := mcp.Resource{
		Namespace: "shop", Name: "pay", Version: "7", Created: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
		Labels: map[string]string{"a": "1", "b": "2", "c": "3"}, Annotations: map[string]string{mcp.ViaAnnotation: "here"},
		Body: body(t, &networking.ServiceEntry{Hosts: []string{"pay.example.com"}}),
	}
	a, err := mcp.Encode(in)
	if err != nil {
		t.Fatal(err)
	}
	if a.TypeUrl != "type.googleapis.com/istio.mcp.v1alpha1.Resource" {
		t.Errorf("type URL %s", a.TypeUrl)
	}
	out, err := mcp.Decode(a)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(in, out, protocmp.Transform()); d != "" {
		t.Error(d)
	}
	for range 20 {
		if again, err := mcp.Encode(in); err != nil || !bytes.Equal(again.Value, a.Value) {
			t.Fatalf("equal resources have other bytes (%v)", err)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	named := func(name string) *anypb.Any {
		return body(t, &wire.Resource{Metadata: &wire.Metadata{Name: name}})
	}
	for want, a := range map[string]*anypb.Any{
		"is not an istio.mcp.v1alpha1.Resource":    nil,
		"is not an istio.mcp.v1alpha1.Resource:":   {TypeUrl: "type.googleapis.com/istio.mcp.v1alpha1.Resource", Value: []byte{0xff}},
		"it is not an istio.mcp.v1alpha1.Resource": body(t, &networking.Gateway{}),
		`its name is not "namespace/name"`:         body(t, &wire.Resource{}),
		`is not "namespace/name"`:                  named("pay"),
		`its name is not`:                          named("/pay"),
		`name is not "namespace/name"`:             named("shop/"),
		`not "namespace/name"`:                     named("shop/pay/x"),
	} {
		if _, err := mcp.Decode(a); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", a, err, want)
		}
	}
}

// What other implementations add to the envelope is ignored.
func TestUnknownFieldsAreIgnored(t *testing.T) {
	t.Parallel()
	a, err := mcp.Encode(mcp.Resource{Namespace: "shop", Name: "pay"})
	if err != nil {
		t.Fatal(err)
	}
	a.Value = append(a.Value, 0xa2, 0x06, 2, '{', '}') // field 100, as one of them has it
	if r, err := mcp.Decode(a); err != nil || r.Name != "pay" || !r.Created.IsZero() {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestVia(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]bool{"": false, "a": false, "here": true, "a, here ,b": true, "heresy": false} {
		r := mcp.Resource{Annotations: map[string]string{mcp.ViaAnnotation: list}}
		if r.Via("here") != want || r.Via("") {
			t.Errorf("%q: %v", list, !want)
		}
	}
}

func TestKinds(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, k := range mcp.Kinds() {
		for i, url := range k.TypeURLs() {
			group, version, kind, ok := mcp.ParseTypeURL(url)
			if !ok || group != k.Group || version != k.Versions[i] || kind != k.Name || seen[url] {
				t.Errorf("%s is not the type URL of %+v", url, k)
			}
			seen[url] = true
		}
	}
	for _, url := range []string{"core/v1alpha1/MeshConfig", "networking.istio.io/v1alpha3/ServiceEntry", "security.istio.io/v1beta1/PeerAuthentication"} {
		if !seen[url] {
			t.Errorf("%s is not among them", url)
		}
	}
	for _, bad := range []string{"", "a", "a/b", "a/b/c/d", "/b/c", "a//c", "type.googleapis.com/envoy.config.cluster.v3.Cluster"} {
		if _, _, _, ok := mcp.ParseTypeURL(bad); ok {
			t.Errorf("%q is taken for a type URL", bad)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, r := range []mcp.Resource{{Namespace: "shop", Name: "pay", Created: time.Unix(1, 2)}, {Namespace: "a", Name: "b", Labels: map[string]string{"c": "d"}}} {
		a, err := mcp.Encode(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(a.Value)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := mcp.Decode(&anypb.Any{TypeUrl: "type.googleapis.com/istio.mcp.v1alpha1.Resource", Value: data})
		if err != nil {
			return
		}
		again, err := mcp.Encode(r)
		if err != nil {
			t.Fatalf("what was read can't be written: %v", err)
		}
		back, err := mcp.Decode(again)
		if err != nil {
			t.Fatalf("what was written can't be read: %v", err)
		}
		if d := cmp.Diff(r, back, protocmp.Transform(), cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) })); d != "" {
			t.Error(d)
		}
	})
}
