package main

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	networkingv1beta1 "istio.io/api/networking/v1beta1"
	telemetry "istio.io/api/telemetry/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

// specs are the messages of the kinds of the traffic API.
func specs() map[string]proto.Message {
	return map[string]proto.Message{
		model.ConfigVirtualService: &networking.VirtualService{}, model.ConfigDestinationRule: &networking.DestinationRule{}, model.ConfigGateway: &networking.Gateway{},
		model.ConfigServiceEntry: &networking.ServiceEntry{}, model.ConfigWorkloadEntry: &networking.WorkloadEntry{}, model.ConfigWorkloadGroup: &networking.WorkloadGroup{},
		model.ConfigSidecar: &networking.Sidecar{}, model.ConfigProxyConfig: &networkingv1beta1.ProxyConfig{}, model.ConfigTelemetry: &telemetry.Telemetry{},
		model.ConfigMesh: &meshconfig.MeshConfig{},
	}
}

// shownBy are the fields whose effect is not in what proxies are sent after a folder was read, and the tests that show it.
func shownBy() map[string]string {
	return map[string]string{
		"Gateway servers.name": "TestFindings", "Sidecar ingress.port.name": "TestFindings", "Sidecar egress.port.name": "TestFindings", // each is there once, and says no more
		"Sidecar ingress.tls.httpsRedirect": "TestFindings", "Sidecar ingress.tls.subjectAltNames": "TestFindings", "Sidecar ingress.tls.tlsCertificates": "TestFindings", "Gateway servers.tls.tlsCertificates.caCertificates": "TestFindings", // refused, as by Istio, or without caCertificates beside it
		"Gateway servers.port.protocol": "TestGatewaysShareSockets",
		"MeshConfig discoverySelectors": "TestDiscoverySelectors",
		"MeshConfig configSources":      "TestConfigSourcesAreFollowed",
		"MeshConfig serviceSettings":    "TestMergeClusterLocalSettings",
		"ServiceEntry ports.name":       "TestIncident57Ports",
		"WorkloadGroup metadata":        "TestComesAndGoes", "WorkloadGroup template": "TestComesAndGoes",
	}
}

// TestEveryFieldHasAnEffect: each field of the traffic API and of MeshConfig changes what some proxy is sent, or is shown by another
// test, or is listed as one without effect; of none more than one holds. The cases are testdata/fields/KIND-*.yaml: the fields of the
// first object are taken away one by one, and something must differ each time. Behind "# mesh" are the mesh's settings.
func TestEveryFieldHasAnEffect(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/fields/*-*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	all := &effects{shown: map[string]bool{}, set: map[string]bool{}}
	t.Run("cases", func(t *testing.T) {
		for _, f := range files {
			kind, _, _ := strings.Cut(filepath.Base(f), "-")
			t.Run(strings.TrimSuffix(filepath.Base(f), ".yaml"), func(t *testing.T) {
				t.Parallel()
				all.try(t, kind, f)
			})
		}
	})
	without := map[string]string{}
	for _, f := range kube.NotServed() {
		without[f.Kind+" "+f.Field] = f.Reason
	}
	elsewhere, used := shownBy(), map[string]bool{}
	for _, kind := range slices.Sorted(maps.Keys(specs())) {
		for _, path := range leaves(specs()[kind].ProtoReflect().Descriptor(), kind+" ", without) {
			by := covering(elsewhere, path)
			used[by] = true
			switch {
			case all.shown[path] && by == path:
				t.Errorf("%s: shown here, and by %s", path, elsewhere[path])
			case all.shown[path], by != "":
			case all.set[path]:
				t.Errorf("%s: taken away, nothing differs", path)
			default:
				t.Errorf("%s: no case has it", path)
			}
		}
	}
	tests := everyTest(t)
	for path, name := range elsewhere {
		if !used[path] {
			t.Errorf("%s: there is no such field, or it is one without effect", path)
		}
		if !tests[name] {
			t.Errorf("%s: there is no test %s", path, name)
		}
	}
	for path := range all.shown {
		if all.shown[path] && covering(without, path) != "" {
			t.Errorf("%s has an effect: it is not to be listed as one without", path)
		}
	}
}

// covering gives the entry that a path is, or is below; "" for none.
func covering(entries map[string]string, path string) string {
	for p := path; ; {
		if _, ok := entries[p]; ok {
			return p
		}
		i := strings.LastIndexByte(p, '.')
		if i < 0 {
			return ""
		}
		p = p[:i]
	}
}

// leaves are the paths of the fields that have no fields of their own, but those without effect and what is below them.
func leaves(d protoreflect.MessageDescriptor, prefix string, without map[string]string) (out []string) {
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		path := prefix + f.JSONName()
		switch _, no := without[path]; {
		case no:
		case isLeaf(f):
			out = append(out, path)
		default:
			out = append(out, leaves(f.Message(), path+".", without)...)
		}
	}
	return out
}

func isLeaf(f protoreflect.FieldDescriptor) bool {
	return f.IsMap() || f.Message() == nil || f.Message().FullName().Parent() == "google.protobuf" || f.Message().Fields().Len() == 0
}

// effects are the fields that the cases have, and those of which something is seen.
type effects struct {
	mu         sync.Mutex
	shown, set map[string]bool // by kind and path; guarded by mu
}

func (e *effects) note(path string, differs bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.set[path] = true
	e.shown[path] = e.shown[path] || differs
}

func (e *effects) known(path string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.shown[path]
}

// try takes each field of a case away; what can't go away gets another value.
func (e *effects) try(t *testing.T, kind, file string) {
	c, m := readCase(t, kind, file)
	base := c.sent(t, m, true)
	for i, path := range sites(m.ProtoReflect(), kind+" ", nil) {
		if e.known(path) {
			continue
		}
		sent := ""
		for _, edit := range []func(protoreflect.Message, protoreflect.FieldDescriptor){protoreflect.Message.Clear, otherwise(path)} {
			x, n := proto.Clone(m), i
			sites(x.ProtoReflect(), kind+" ", func(m protoreflect.Message, f protoreflect.FieldDescriptor) {
				if n == 0 {
					edit(m, f)
				}
				n--
			})
			if sent = c.sent(t, x, false); sent != refusedObject {
				break
			}
		}
		e.note(path, sent != base && sent != refusedObject)
	}
}

// sites are the fields that are set, in order, but those with fields of their own; visit, which may be nil, is called for each.
func sites(m protoreflect.Message, prefix string, visit func(protoreflect.Message, protoreflect.FieldDescriptor)) (out []string) {
	for i := range m.Descriptor().Fields().Len() {
		f := m.Descriptor().Fields().Get(i)
		below := func(m protoreflect.Message) { out = append(out, sites(m, prefix+f.JSONName()+".", visit)...) }
		switch {
		case !m.Has(f):
		case isLeaf(f):
			if out = append(out, prefix+f.JSONName()); visit != nil {
				visit(m, f)
			}
		case f.IsList():
			for i := range m.Get(f).List().Len() {
				below(m.Get(f).List().Get(i).Message())
			}
		default:
			below(m.Get(f).Message())
		}
	}
	return out
}

// otherValues are other values for fields that must be there and that not every value goes for, by the end of the path.
func otherValues() map[string]string {
	return map[string]string{
		"distribute.from": "r2/*", "distribute.to": `{"r1/*": 70, "r2/*": 30}`, "grpcStatus": "NOT_FOUND", "endpoints.address": "10.9.0.9", "fixedDelay": "7s",
		"warmup.duration": "8s", "bytes": "AAED", "tls.mode": "OPTIONAL_MUTUAL", "useSourceIp": "false", "outboundTrafficPolicy.mode": "ALLOW_ANY", "tunnel.targetPort": "98", "http2KeepAlive.interval": "19s", "http2KeepAlive.timeout": "19s", "maglev.tableSize": "103", "sniHosts": "[web.example]",
	}
}

// otherwise gives a field another value of its kind.
func otherwise(path string) func(protoreflect.Message, protoreflect.FieldDescriptor) {
	return func(m protoreflect.Message, f protoreflect.FieldDescriptor) {
		for end, text := range otherValues() {
			if strings.HasSuffix(path, end) {
				raw, err := yaml.YAMLToJSON([]byte(f.JSONName() + ": " + text))
				x := m.New()
				if err == nil {
					err = protojson.Unmarshal(raw, x.Interface())
				}
				if err != nil {
					panic(err)
				}
				m.Set(f, x.Get(f))
				return
			}
		}
		switch v := m.Get(f); {
		case f.IsMap(), f.Message() != nil:
		case f.IsList():
			v.List().Set(0, another(v.List().Get(0)))
		default:
			m.Set(f, another(v))
		}
	}
}

func another(v protoreflect.Value) protoreflect.Value {
	switch x := v.Interface().(type) {
	case string:
		return protoreflect.ValueOfString(x + "x")
	case uint32:
		return protoreflect.ValueOfUint32(x + 1)
	case int32:
		return protoreflect.ValueOfInt32(x + 1)
	}
	return v
}

// fieldCase is an object among others.
type fieldCase struct {
	object map[string]any // nil for the settings of the mesh
	rest   string
	mesh   string
}

func readCase(t *testing.T, kind, file string) (*fieldCase, proto.Message) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c, first := &fieldCase{}, ""
	first, c.rest, _ = strings.Cut(string(text), "\n---\n")
	c.rest, c.mesh, _ = strings.Cut(c.rest, "# mesh\n")
	spec := map[string]any{}
	if err := yaml.Unmarshal([]byte(first), &spec); err != nil {
		t.Fatal(err)
	}
	if kind != model.ConfigMesh {
		c.object, spec = spec, spec["spec"].(map[string]any)
	}
	m := proto.Clone(specs()[kind])
	if err := protojson.Unmarshal(encoded(spec), m); err != nil {
		t.Fatal(err)
	}
	return c, m
}

// sent is all that the proxies of the world are sent if the object has the spec; sound says that nothing may be wrong then.
func (c *fieldCase) sent(t *testing.T, spec proto.Message, sound bool) string {
	t.Helper()
	js, err := protojson.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"rest.yaml": []byte(c.rest), "mesh.yaml": []byte(c.mesh)}
	if c.object == nil {
		files["mesh.yaml"] = js
	} else {
		object := maps.Clone(c.object)
		var v any
		if err := yaml.Unmarshal(js, &v); err != nil {
			t.Fatal(err)
		}
		object["spec"] = v
		files["object.yaml"] = encoded(object)
	}
	dir := t.TempDir()
	for _, name := range []string{"world.yaml", "networks.yaml"} {
		if files[name], err = os.ReadFile("testdata/fields/" + name); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return allSent(t, dir, sound)
}

// refusedObject stands for what would be sent of an object that is refused.
const refusedObject = "refused"

func allSent(t *testing.T, dir string, sound bool) string {
	t.Helper()
	o := offlineOptions{timeout: 30 * time.Second, domain: "cluster.local", systemNamespace: "istio-system", vhds: true, kube: kubeOptions{configFrom: fromPrimary}}
	read, err := o.load(t.Context(), []string{dir}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range read.findings() {
		if sound && f.Severity == model.SeverityError.String() {
			t.Errorf("%+v", f)
		}
	}
	if !sound && slices.ContainsFunc(read.pc.Configs, func(c *model.Config) bool { return c.Refused }) {
		return refusedObject
	}
	var b strings.Builder
	for _, p := range worldProxies(read) {
		list, err := p.render(read, slices.Collect(maps.Values(typeURLs()))...)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list {
			if r.Body == nil && sound {
				t.Errorf("%s %s can't be built", r.Short, r.Name)
			}
			fmt.Fprintf(&b, "%s %s %s\n%s\n", p.id, r.Short, r.Name, r.Body)
		}
	}
	return b.String()
}

// worldProxies are proxies of every sort: a client and servers, with interception and without, gateways, and Istio's own build.
func worldProxies(read *offline) (out []*proxyNode) {
	meta := map[string]string{"DNS_CAPTURE": "true"}
	for _, side := range []string{"CLIENT", "SERVER"} {
		for _, f := range []string{"CERT_CHAIN", "KEY", "ROOT_CERT"} {
			meta["TLS_"+side+"_"+f] = "/certs/" + f
		}
	}
	without := maps.Clone(meta)
	without["INTERCEPTION_MODE"] = "NONE"
	asRouter := func(n *corev3.Node) { n.Id = strings.Replace(n.Id, "sidecar~", "router~", 1) }
	asIstio := func(n *corev3.Node) {
		for _, name := range []string{"istio.metadata_exchange", "istio.alpn", "istio.stats", "envoy.filters.http.peer_metadata"} {
			n.Extensions = append(n.Extensions, &corev3.Extension{Name: name})
		}
	}
	for _, x := range []struct {
		id   string
		meta map[string]string
		edit func(*corev3.Node)
	}{
		{"web-1.shop", meta, func(*corev3.Node) {}}, {"web-1.shop", meta, asIstio}, {"cart-v1.shop", meta, func(*corev3.Node) {}}, {"cart-v2.shop", without, func(*corev3.Node) {}},
		{"other-1.bank", meta, func(*corev3.Node) {}}, {"gateway-1.edge", meta, asRouter}, {"other-1.bank", meta, asRouter},
	} {
		o := proxyOptions{proxy: x.id, metadata: x.meta}
		if p, err := o.find(read); err == nil {
			x.edit(p.node)
			out = append(out, p)
		}
	}
	return out
}

// everyTest are the tests of the repository.
func everyTest(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for line := range strings.SplitSeq(string(text), "\n") {
			if name, ok := strings.CutPrefix(line, "func Test"); ok {
				name, _, _ = strings.Cut(name, "(")
				out["Test"+name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
