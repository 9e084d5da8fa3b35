package bootstrap_test

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/testing/protocmp"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/bootstrap"
	"github.com/isthmus-mesh/isthmus/test/golden"
)

func sidecar() bootstrap.Options {
	return bootstrap.Options{
		ID: "web-1.shop", IP: netip.MustParseAddr("10.0.0.7"), Cluster: "east", Hub: "127.0.0.1:15010", AdminPort: 15000,
	}
}

func router() bootstrap.Options {
	o := sidecar()
	o.Type, o.ID, o.Hub, o.Expose = bootstrap.Router, "gateway.edge", "hub.example:15010", true
	o.Network, o.Locality, o.Labels = "net-east", "eu/a", map[string]string{"app": "gateway"}
	o.CertChain, o.Key, o.RootCert = "/etc/certs/chain.pem", "/etc/certs/key.pem", "/etc/certs/root.pem"
	return o
}

func selfDiscovering() bootstrap.Options {
	o := sidecar()
	o.Metadata = map[string]string{"AUTO_REGISTER_GROUP": "web"}
	o.SelfDiscovery, o.Workload, o.Locality, o.Labels = true, "web", "eu/a", map[string]string{"pod-template-hash": "1a"}
	return o
}

func TestGolden(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]bootstrap.Options{"sidecar": sidecar(), "router": router(), "self-discovery": selfDiscovering()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := bootstrap.YAML(o)
			if err != nil {
				t.Fatal(err)
			}
			golden.Compare(t, filepath.Join("testdata", name+".golden.yaml"), string(got))
		})
	}
}

func TestYAMLAndJSONAgree(t *testing.T) {
	t.Parallel()
	want, err := bootstrap.Build(router())
	if err != nil {
		t.Fatal(err)
	}
	asYAML, err := bootstrap.YAML(router())
	if err != nil {
		t.Fatal(err)
	}
	fromYAML, err := yaml.YAMLToJSON(asYAML)
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := bootstrap.JSON(router())
	if err != nil {
		t.Fatal(err)
	}
	for _, raw := range [][]byte{fromYAML, asJSON} {
		got := &bootstrapv3.Bootstrap{}
		if err := protojson.Unmarshal(raw, got); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
}

func TestNode(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		set  func(*bootstrap.Options)
		id   string
		meta map[string]string
	}{
		{"defaults", func(*bootstrap.Options) {}, "sidecar~10.0.0.7~web-1.shop~shop.svc.cluster.local",
			map[string]string{"CLUSTER_ID": "east", "NAMESPACE": "shop", "INSTANCE_IPS": "10.0.0.7", "INTERCEPTION_MODE": "REDIRECT"}},
		{"pod name with dots", func(o *bootstrap.Options) { o.ID = "web.v1.shop" }, "sidecar~10.0.0.7~web.v1.shop~shop.svc.cluster.local",
			map[string]string{"NAMESPACE": "shop"}},
		{"namespace and suffix", func(o *bootstrap.Options) { o.Namespace, o.DomainSuffix = "other", "mesh.test" },
			"sidecar~10.0.0.7~web-1.shop~other.svc.mesh.test", map[string]string{"NAMESPACE": "other"}},
		{"no interception", func(o *bootstrap.Options) { o.Interception = bootstrap.None }, "sidecar~10.0.0.7~web-1.shop~shop.svc.cluster.local",
			map[string]string{"INTERCEPTION_MODE": "NONE"}},
		{"router", func(o *bootstrap.Options) { o.Type, o.Expose = bootstrap.Router, true }, "router~10.0.0.7~web-1.shop~shop.svc.cluster.local",
			map[string]string{"INTERCEPTION_MODE": "", "ISTHMUS_EXPOSE_SERVICES": "true"}},
		{"ipv6", func(o *bootstrap.Options) { o.IP = netip.MustParseAddr("2001:db8::1") }, "sidecar~2001:db8::1~web-1.shop~shop.svc.cluster.local",
			map[string]string{"INSTANCE_IPS": "2001:db8::1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := sidecar()
			tt.set(&o)
			b, err := bootstrap.Build(o)
			if err != nil {
				t.Fatal(err)
			}
			if b.Node.Id != tt.id {
				t.Errorf("id = %q, want %q", b.Node.Id, tt.id)
			}
			for k, want := range tt.meta {
				if got := b.Node.Metadata.Fields[k].GetStringValue(); got != want {
					t.Errorf("%s = %q, want %q", k, got, want)
				}
			}
		})
	}
}

func TestErrorsNameTheOption(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		set  func(*bootstrap.Options)
		want string
	}{
		"no id":             {func(o *bootstrap.Options) { o.ID = "" }, "POD.NAMESPACE"},
		"no namespace":      {func(o *bootstrap.Options) { o.ID = "web" }, "POD.NAMESPACE"},
		"tilde":             {func(o *bootstrap.Options) { o.ID = "a~b.c" }, "POD.NAMESPACE"},
		"type":              {func(o *bootstrap.Options) { o.Type = "waypoint" }, `type "waypoint"`},
		"interception":      {func(o *bootstrap.Options) { o.Interception = "none" }, "interception"},
		"no ip":             {func(o *bootstrap.Options) { o.IP = netip.Addr{} }, "ip"},
		"zone":              {func(o *bootstrap.Options) { o.IP = netip.MustParseAddr("fe80::1%a~b") }, "zone"},
		"odd namespace":     {func(o *bootstrap.Options) { o.Namespace = "a~b" }, "namespace"},
		"no cluster":        {func(o *bootstrap.Options) { o.Cluster = "" }, "cluster"},
		"no hub":            {func(o *bootstrap.Options) { o.Hub = "" }, "HOST:PORT"},
		"hub without port":  {func(o *bootstrap.Options) { o.Hub = "hub.example" }, "HOST:PORT"},
		"hub port":          {func(o *bootstrap.Options) { o.Hub = "hub.example:x" }, "port"},
		"hub port too high": {func(o *bootstrap.Options) { o.Hub = "hub.example:70000" }, "port"},
		"a key alone":       {func(o *bootstrap.Options) { o.Key = "key.pem" }, "certificate chain"},
		"no root":           {func(o *bootstrap.Options) { o.CertChain, o.Key = "chain.pem", "key.pem" }, "root certificate"},
		"metadata key":      {func(o *bootstrap.Options) { o.Metadata = map[string]string{"": "x"} }, "no key"},
		"metadata twice":    {func(o *bootstrap.Options) { o.Metadata = map[string]string{"CLUSTER_ID": "x"} }, "CLUSTER_ID"},
		"metadata labels":   {func(o *bootstrap.Options) { o.Metadata = map[string]string{"LABELS": "x"} }, "LABELS"},
		"exposing sidecar":  {func(o *bootstrap.Options) { o.Expose = true }, "router"},
		"peers of nowhere":  {func(o *bootstrap.Options) { o.SelfDiscovery = true }, "locality"},
		"peers of a router": {func(o *bootstrap.Options) { o.SelfDiscovery, o.Locality, o.Type = true, "eu/a", bootstrap.Router }, "sidecar"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := sidecar()
			tt.set(&o)
			if _, err := bootstrap.Build(o); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("err = %v, want one that mentions %q", err, tt.want)
			}
		})
	}
}

func TestStateOfTheWorldAndNoAdmin(t *testing.T) {
	t.Parallel()
	o := sidecar()
	o.SotW, o.AdminPort = true, 0
	b, err := bootstrap.Build(o)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.DynamicResources.AdsConfig.ApiType; got != corev3.ApiConfigSource_GRPC {
		t.Errorf("api type = %v", got)
	}
	if b.Admin != nil {
		t.Errorf("admin = %v, want none", b.Admin)
	}
}

// FuzzBuild: options are refused, or make a bootstrap that Envoy's own rules accept and whose node id
// has its four parts.
func FuzzBuild(f *testing.F) {
	f.Add("web-1.shop", "10.0.0.7", "east", "127.0.0.1:15010", "eu/a/1")
	f.Add("a.b", "::1", "c", "[::1]:1", "/")
	f.Add("a.~", "10.0.0.1", "c", "h:99999", "")
	f.Fuzz(func(t *testing.T, id, ip, cluster, hub, locality string) {
		addr, _ := netip.ParseAddr(ip)
		b, err := bootstrap.Build(bootstrap.Options{ID: id, IP: addr, Cluster: cluster, Hub: hub, Locality: locality})
		if err != nil {
			return
		}
		if n := strings.Count(b.Node.Id, "~"); n != 3 {
			t.Errorf("node id %q has %d parts", b.Node.Id, n+1)
		}
		if err := b.ValidateAll(); err != nil {
			t.Error(err)
		}
	})
}
