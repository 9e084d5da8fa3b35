package gen_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// randomly fills a message with whatever its types allow, sense or not. Files are those that there are: which exist on
// a proxy's machine nobody else knows.
func randomly(r *rand.Rand, m protoreflect.Message, depth int) {
	if d, ok := m.Interface().(*durationpb.Duration); ok {
		d.Seconds, d.Nanos = pick[int64](r, 0, 0, 1, 5, -1, 86400, 1<<40, math.MaxInt64), pick[int32](r, 0, 0, 1, 999_999, 500_000_000, -1, 2_000_000_000)
		return
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if r.IntN(3) == 0 || depth > 8 {
			continue
		}
		switch {
		case f.IsMap():
			mm := m.Mutable(f).Map()
			for range r.IntN(3) {
				mm.Set(randomValue(r, f.MapKey(), nil).MapKey(), randomValue(r, f.MapValue(), nil))
			}
		case f.IsList():
			l := m.Mutable(f).List()
			for range r.IntN(3) {
				l.Append(randomValue(r, f, l.NewElement, depth))
			}
		default:
			m.Set(f, randomValue(r, f, func() protoreflect.Value { return m.NewField(f) }, depth))
		}
	}
}

func randomValue(r *rand.Rand, f protoreflect.FieldDescriptor, fresh func() protoreflect.Value, depth ...int) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.MessageKind:
		v := fresh()
		randomly(r, v.Message(), depth[0]+1)
		return v
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(r.IntN(2) == 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(r.IntN(7)))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(pick[int32](r, 0, 1, 2, -1, 50, 100, 101, math.MaxInt32, math.MinInt32))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(pick[uint32](r, 0, 1, 80, 100, 101, 200, 429, 599, 600, math.MaxUint32))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(pick[uint64](r, 0, 1, 1021, 1024, 65537, 5_000_011, math.MaxUint64))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(pick(r, 0, -1, 0.5, 1, 99.9, 100, 101, math.NaN(), math.Inf(1), math.MaxFloat64))
	case protoreflect.StringKind:
		if n := f.Name(); n == "client_certificate" || n == "private_key" || n == "ca_certificates" || n == "ca_crl" {
			return protoreflect.ValueOfString(pick(r, "", map[protoreflect.Name]string{"client_certificate": "/etc/certs/cert-chain.pem", "private_key": "/etc/certs/key.pem"}[n], "/etc/certs/root-cert.pem"))
		}
		return protoreflect.ValueOfString(pick(r, "", "v1", "version", "a b", "é", "*", "a|b", "x_.y", "\x00", "\n", "r1/z1/*", "r1", "topology.kubernetes.io/zone", "tier=gold", "10.0.0.1", "spiffe://a/b", strings.Repeat("long.", 70), "[::1]:80"))
	}
	panic("gen: a kind of field that rules did not have: " + f.Kind().String())
}

// sensible takes out what would be refused for reasons that are not the hub's: a key that is not the certificate's.
func sensible(rule *networking.DestinationRule) {
	policies := []*networking.TrafficPolicy{rule.TrafficPolicy}
	for _, s := range rule.Subsets {
		policies = append(policies, s.TrafficPolicy)
	}
	for _, p := range policies {
		all := []*networking.ClientTLSSettings{p.GetTls()}
		for _, l := range p.GetPortLevelSettings() {
			all = append(all, l.GetTls())
		}
		for _, t := range all {
			if t.GetClientCertificate() != "" || t.GetPrivateKey() != "" {
				t.ClientCertificate, t.PrivateKey = "/etc/certs/cert-chain.pem", "/etc/certs/key.pem"
			}
		}
	}
}

func randomRule(r *rand.Rand) *networking.DestinationRule {
	out := &networking.DestinationRule{}
	randomly(r, out.ProtoReflect(), 0)
	for i, s := range out.Subsets {
		if r.IntN(2) == 0 {
			s.Name = fmt.Sprint("s", i)
		}
		if r.IntN(2) == 0 {
			s.Labels = map[string]string{"version": "v1"}
		}
	}
	sensible(out)
	return out
}

// clustersUnder gives the clusters of a service of any resolution under a rule, as several proxies see them.
func clustersUnder(t testing.TB, rule *networking.DestinationRule, host string, resolution model.Resolution) []*clusterv3.Cluster {
	t.Helper()
	s := svc{host: host, ns: "shop", ports: []model.Port{httpPort(80), tcpPort(100)}, resolution: resolution,
		endpoints: []*model.Endpoint{ep("c1", "http", "10.0.0.1:80", mtls, version("v1"), at("r1/z1"))}}
	if resolution.IsDNS() {
		s.endpoints[0] = ep("c1", "http", "a.example.com:80", version("v1"), at("r1/z1"))
	}
	if resolution != model.ClientSideLB {
		s.inline = s.endpoints
	}
	v := underRules(s, &pushcontext.DestinationPolicy{Namespace: "shop", Host: host, Export: pushcontext.Export{Public: true}, Spec: rule}).view(newMesh())
	var out []*clusterv3.Cluster
	class := sidecar("c1", "shop", secured, inZone("r1/z1"), func(c *gen.Class) { c.IPv6 = true })
	for _, r := range build(t, gen.Clusters{}, v.Shape, class) {
		out = append(out, decode(t, r).(*clusterv3.Cluster))
	}
	for _, r := range build(t, gen.Endpoints{}, v, class) {
		checkMessage(t, r.name, decode(t, r))
	}
	return out
}

// checkMessage asks for all that Envoy asks of a message and of those that are packed in it.
func checkMessage(t testing.TB, name string, m proto.Message) {
	t.Helper()
	if v, ok := m.(interface{ ValidateAll() error }); ok {
		if err := v.ValidateAll(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	var walk func(protoreflect.Message)
	walk = func(m protoreflect.Message) {
		if a, ok := m.Interface().(*anypb.Any); ok {
			inner, err := a.UnmarshalNew()
			if err != nil {
				t.Fatal(err)
			}
			checkMessage(t, name, inner)
			return
		}
		m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			switch {
			case f.IsMap() && f.MapValue().Message() != nil:
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool { walk(v.Message()); return true })
			case f.IsMap():
			case f.IsList() && f.Message() != nil:
				for i := range v.List().Len() {
					walk(v.List().Get(i).Message())
				}
			case f.Message() != nil && !f.IsList():
				walk(v.Message())
			}
			return true
		})
	}
	walk(m.ProtoReflect())
}

func anyResolution(r *rand.Rand) model.Resolution {
	return pick(r, model.ClientSideLB, model.ClientSideLB, model.Passthrough, model.DNSLB, model.DNSRoundRobin, model.DynamicDNS)
}

// Whatever a DestinationRule says, its clusters are such as Envoy asks for.
func TestClustersOfRandomRulesAreValid(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 5))
	subsets := 0
	for range 2000 {
		for _, c := range clustersUnder(t, randomRule(r), "cart.shop.svc.cluster.local", anyResolution(r)) {
			checkMessage(t, c.Name, c)
			if !strings.Contains(c.Name, "||") {
				subsets++
			}
		}
	}
	if subsets < 500 {
		t.Errorf("only %d clusters are of subsets", subsets)
	}
}

func FuzzDestinationRule(f *testing.F) {
	r := rand.New(rand.NewPCG(6, 6))
	for range 20 {
		raw, err := proto.Marshal(randomRule(r))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		rule := &networking.DestinationRule{}
		if proto.Unmarshal(raw, rule) != nil {
			return
		}
		for _, c := range clustersUnder(t, rule, "cart.shop.svc.cluster.local", model.ClientSideLB) {
			checkMessage(t, c.Name, c)
		}
	})
}

// A stock Envoy takes the clusters of random rules.
func TestEnvoyAcceptsClustersOfRandomRules(t *testing.T) {
	t.Parallel()
	envoy := os.Getenv("ISTHMUS_ENVOY")
	if envoy == "" {
		t.Skip("ISTHMUS_ENVOY does not name an Envoy binary: clusters are not validated by a real proxy here")
	}
	r := rand.New(rand.NewPCG(7, 7))
	files := mounted(t)
	var clusters []*clusterv3.Cluster
	for i := range 400 {
		clusters = append(clusters, clustersUnder(t, randomRule(r), fmt.Sprintf("s%d.shop.svc.cluster.local", i), anyResolution(r))...)
	}
	why := func(list []*clusterv3.Cluster) string {
		b := &bootstrapv3.Bootstrap{Node: &corev3.Node{Id: "test", Cluster: "test"}, StaticResources: &bootstrapv3.Bootstrap_StaticResources{Clusters: slices.Concat(list, []*clusterv3.Cluster{staticCluster("xds")})},
			DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{AdsConfig: adsConfig()}}
		raw, err := protojson.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "bootstrap.json")
		if err := os.WriteFile(path, []byte(files.Replace(string(raw))), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), envoy, "--mode", "validate", "-c", path, "-l", "error", "--disable-hot-restart").CombinedOutput(); err != nil {
			return err.Error() + "\n" + string(out)
		}
		return ""
	}
	for len(clusters) > 0 && why(clusters) != "" { // halves until one is found
		bad := clusters
		for len(bad) > 1 {
			half := bad[:len(bad)/2]
			if why(half) == "" {
				half = bad[len(bad)/2:]
			}
			bad = half
		}
		t.Fatalf("%s\n%s", why(bad), text(t, bad[0]))
	}
}
