package client

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
	"github.com/isthmus-mesh/isthmus/mcp"
)

// objects has one object of each kind that becomes rows, and some that are refused or have something to be said of.
const objects = `
{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: pay, namespace: shop, labels: {a: b}, annotations: {networking.istio.io/exportTo: "*"}}, spec: {hosts: [pay.example.com, p.example.com], location: MESH_INTERNAL, resolution: STATIC, ports: [{name: http, number: 80, protocol: HTTP}, {name: tcp, number: 90, protocol: TCP}], endpoints: [{address: 10.1.0.1, labels: {v: "1"}, serviceAccount: pay, locality: r/z, weight: 3, ports: {http: 8080}}]}}
---
{apiVersion: networking.istio.io/v1, kind: WorkloadEntry, metadata: {name: vm, namespace: shop}, spec: {address: 10.1.0.2, labels: {app: vm}, serviceAccount: vm}}
---
{apiVersion: networking.istio.io/v1, kind: WorkloadGroup, metadata: {name: vms, namespace: shop}, spec: {metadata: {labels: {app: vm}}, template: {serviceAccount: vm, ports: {http: 80}}}}
---
{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: pay, namespace: shop}, spec: {host: pay, trafficPolicy: {connectionPool: {tcp: {connectTimeout: 2s}}}, subsets: [{name: v1, labels: {v: "1"}}]}}
---
{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: pay, namespace: shop}, spec: {hosts: [pay.example.com], http: [{match: [{uri: {prefix: /a}}], route: [{destination: {host: pay.example.com}, weight: 3}], timeout: 1500ms, retries: {attempts: 0}}]}}
---
{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: refused, namespace: shop}, spec: {hosts: ["a b"]}}
---
{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: gw, namespace: shop}, spec: {selector: {istio: gw}, servers: [{hosts: ["*"], port: {name: http, number: 80, protocol: HTTP}}]}}
---
{apiVersion: networking.istio.io/v1, kind: Sidecar, metadata: {name: default, namespace: shop}, spec: {egress: [{hosts: ["./*"]}], outboundTrafficPolicy: {mode: REGISTRY_ONLY}}}
---
{apiVersion: networking.istio.io/v1beta1, kind: ProxyConfig, metadata: {name: pc, namespace: shop}, spec: {concurrency: 2}}
---
{apiVersion: security.istio.io/v1, kind: PeerAuthentication, metadata: {name: default, namespace: shop}, spec: {mtls: {mode: STRICT}, portLevelMtls: {"80": {mode: DISABLE}}, selector: {matchLabels: {a: b}}}}
---
{apiVersion: telemetry.istio.io/v1, kind: Telemetry, metadata: {name: default, namespace: shop}, spec: {accessLogging: [{providers: [{name: envoy}]}]}}
---
{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {name: odd, namespace: shop}, spec: {configPatches: []}}
---
{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {name: deny, namespace: shop}, spec: {}}
`

// decoded gives each of the objects as an API server would, and as an MCP server would.
func decoded(t *testing.T) (fromAPI, fromMCP []kube.Object) {
	t.Helper()
	kinds, _ := newKinds()
	c := &reader{revision: "default", seed: maphash.MakeSeed()}
	for _, text := range strings.Split(objects, "---\n") {
		js, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		o, _, err := kube.DecodeJSON(js)
		if err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		fromAPI = append(fromAPI, o)
		meta, spec := parts(o.Value)
		in := mcp.Resource{Namespace: o.Ref.Namespace, Name: o.Ref.Name, Version: meta.ResourceVersion, Labels: meta.Labels, Annotations: meta.Annotations, Body: &anypb.Any{}}
		if spec != nil {
			if in.Body, err = anypb.New(spec); err != nil {
				t.Fatal(err)
			}
		}
		body, err := mcp.Encode(in)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range kinds {
			if k.Name != o.Ref.Kind {
				continue
			}
			name, it, err := c.read(k, resource{name: o.Ref.Namespace + "/" + o.Ref.Name, body: body}, nil)
			if err != nil || name != o.Ref.Namespace+"/"+o.Ref.Name || it.skip != skipNot {
				t.Fatalf("%s: %q, %+v, %v", o.Ref, name, it, err)
			}
			fromMCP = append(fromMCP, it.object)
		}
	}
	return fromAPI, fromMCP
}

func parts(value any) (metav1.ObjectMeta, proto.Message) {
	switch v := value.(type) {
	case *kube.ServiceEntry:
		return v.Meta, v.Spec
	case *kube.WorkloadEntry:
		return v.Meta, v.Spec
	case *kube.Config:
		return v.Meta, v.Spec
	case *kube.Other:
		return v.Meta, nil
	}
	return metav1.ObjectMeta{}, nil
}

// An object makes the same rows wherever it is from.
func TestRowsAreThoseOfAnAPIServer(t *testing.T) {
	t.Parallel()
	fromAPI, fromMCP := decoded(t)
	if len(fromAPI) != len(fromMCP) || len(fromAPI) < 13 {
		t.Fatalf("%d objects from an API server, %d from an MCP server", len(fromAPI), len(fromMCP))
	}
	rows := func(os []kube.Object) map[model.RowKey]model.Object {
		s := kube.NewStore(kube.Converter{Shard: model.ShardKey{Provider: model.ProviderMCP, Cluster: "up"}})
		s.Apply(os, nil)
		return maps.Collect(s.State().Rows())
	}
	want, got := rows(fromAPI), rows(fromMCP)
	for k, w := range want {
		if g := got[k]; g == nil || !model.SameRow(w, g) { // go-cmp panics on fields that it can't see, whoever has them
			t.Errorf("%v:\n have %s\n want %s", k, text(g), text(w))
		}
	}
	if len(want) != len(got) {
		t.Errorf("%d rows, want %d", len(got), len(want))
	}
}

// text shows a row, for people.
func text(o model.Object) string {
	js, err := json.Marshal(o)
	if err != nil {
		return fmt.Sprintf("%+v", o)
	}
	return string(js)
}

func TestSyntheticEntries(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"{name: synthetic-cart} cart.shop.svc.cluster.local":  true,
		"{name: cart} cart.shop.svc.cluster.local":            false,
		"{name: synthetic-cart} pay.shop.svc.cluster.local":   false,
		"{name: synthetic-cart} cart.other.svc.cluster.local": false,
		"{name: synthetic-cart} cart.example.com":             false,
	} {
		meta, host, _ := strings.Cut(text, "} ")
		js, err := yaml.YAMLToJSON(fmt.Appendf(nil, "{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: %s, namespace: shop}, spec: {hosts: [%s]}}", meta, host))
		if err != nil {
			t.Fatal(err)
		}
		o, _, err := kube.DecodeJSON(js)
		if err != nil {
			t.Fatal(err)
		}
		if synthetic(o) != want {
			t.Errorf("%s: %v, want %v", text, !want, want)
		}
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	b := backoff{least: 500 * time.Millisecond, most: 2 * time.Second}
	var got []time.Duration
	for range 6 {
		got = append(got, b.wait())
	}
	b.reset()
	got = append(got, b.wait())
	ms := time.Millisecond
	if d := cmp.Diff([]time.Duration{500 * ms, 750 * ms, 1125 * ms, 1687500 * time.Microsecond, 2000 * ms, 2000 * ms, 500 * ms}, got); d != "" {
		t.Error(d)
	}
	for range 100 {
		if d := (Options{}).withDefaults().Jitter(time.Second); d < time.Second/2 || d > time.Second {
			t.Fatalf("%v", d)
		}
	}
}

func TestVersionsThatServersAreTold(t *testing.T) {
	t.Parallel()
	f := &feed{origin: "a:1", objects: map[string]*item{"s/a": {version: "7"}, "s/b": {version: "8c1f-h"}, "s/c": {}}}
	for address, want := range map[string]map[string]string{
		"a:1": {"s/a": "", "s/b": "8c1f-h", "s/c": ""}, "b:2": {"s/a": "", "s/b": "", "s/c": ""},
	} {
		if d := cmp.Diff(want, f.versions(address, 1<<20)); d != "" {
			t.Errorf("%s: %s", address, d)
		}
	}
}

// An answer takes the place of an earlier one of its type, so what waits to be sent is bounded.
func TestOutboxIsBounded(t *testing.T) {
	t.Parallel()
	o := newOutbox()
	o.add(request{url: "a"})
	o.add(request{url: "b"})
	for i := range 1000 {
		o.add(request{url: "a", nonce: fmt.Sprint(i)})
	}
	got := o.take()
	if len(got) != 3 || got[2].nonce != "999" || got[0].nonce != "" || len(o.take()) != 0 {
		t.Errorf("%+v", got)
	}
}

// Whatever a server sends, reading it ends, and the rest is not hurt.
func FuzzResource(f *testing.F) {
	kinds, _ := newKinds()
	for i := range kinds {
		f.Add(uint8(i), "shop/pay", "istio.mcp.v1alpha1.Resource", []byte("\x0a\x0a\x0a\x08shop/pay"))
	}
	c := &reader{hub: "here", revision: "default", seed: maphash.MakeSeed()}
	f.Fuzz(func(t *testing.T, at uint8, name, typ string, value []byte) {
		k := kinds[int(at)%len(kinds)]
		r := resource{name: name, body: &anypb.Any{TypeUrl: "type.googleapis.com/" + typ, Value: value}}
		if k.Name == mcp.KindMesh {
			(&run{}).settings(r)
			return
		}
		got, it, err := c.read(k, r, nil)
		if err != nil {
			return
		}
		if ns, n, err := mcp.SplitName(got); err != nil || it.object.Ref.Namespace != ns || it.object.Ref.Name != n || it.object.Ref.Kind != k.Name {
			t.Errorf("%q is %s", got, it.object.Ref)
		}
		s := kube.NewStore(kube.Converter{Shard: model.ShardKey{Provider: model.ProviderMCP, Cluster: "up"}})
		s.Set(it.object)
		name2, again, err := c.read(k, r, map[string]*item{got: it})
		if err != nil || name2 != got || again != it {
			t.Errorf("read again, it is another one: %q %v", name2, err)
		}
	})
}
