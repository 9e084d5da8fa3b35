package kube_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	networking "istio.io/api/networking/v1alpha3"
	networkingv1beta1 "istio.io/api/networking/v1beta1"
	security "istio.io/api/security/v1beta1"
	telemetry "istio.io/api/telemetry/v1alpha1"
	typev1beta1 "istio.io/api/type/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

func locality(setting string) string {
	return "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: r, namespace: demo}\nspec: {host: a.example, trafficPolicy: {outlierDetection: {}, loadBalancer: {localityLbSetting: " + setting + "}}}"
}

// Incident 69, and what else can't be in force of a locality setting: the rule is not, and the problem says why.
func TestIncident69LocalitySettings(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ setting, problem string }{
		"shares":                    {"{distribute: [{from: r1/z1/*, to: {r1/z1/*: 80, r2: 20}}]}", ""},
		"shares for all":            {"{distribute: [{from: '*', to: {'*': 100}}]}", ""},
		"failover":                  {"{failover: [{from: r1, to: r2}, {from: r2, to: r1}]}", ""},
		"failover, network first":   {"{failover: [{from: r1, to: r2}], failoverPriority: [topology.istio.io/network]}", ""},
		"priority":                  {"{failoverPriority: [topology.kubernetes.io/region, version=v1]}", ""},
		"off":                       {"{enabled: false}", ""},
		"both":                      {"{distribute: [{from: r1, to: {r1: 100}}], failover: [{from: r1, to: r2}]}", "distribute excludes failover"},
		"failover and place labels": {"{failover: [{from: r1, to: r2}], failoverPriority: [topology.kubernetes.io/zone]}", "topology.kubernetes.io/zone and failover exclude each other"},
		"99":                        {"{distribute: [{from: r1, to: {r1: 99}}]}", "make 99, not 100"},
		"no shares":                 {"{distribute: [{from: r1}]}", "make 0, not 100"},
		"sum overflows":             {"{distribute: [{from: r1, to: {r1: 4294967295, r2: 101}}]}", "make 4294967396, not 100"},
		"share of nothing":          {"{distribute: [{from: r1, to: {r1: 100, r2: 0}}]}", `distribute[0].to[r2]: the weight is 0`},
		"to itself":                 {"{failover: [{from: r1, to: r1}]}", "fails over to itself"},
		"to a zone":                 {"{failover: [{from: r1, to: r2/z1}]}", `"r2/z1" is not a region`},
		"to anywhere":               {"{failover: [{from: r1, to: '*'}]}", `"*" is not a region`},
		"to nowhere":                {"{failover: [{from: r1}]}", "both needed"},
		"wildcard within":           {"{distribute: [{from: '*/z1', to: {r1: 100}}]}", `"*/z1" is not a locality`},
		"half a wildcard":           {"{distribute: [{from: r*, to: {r1: 100}}]}", `"r*" is not a locality`},
		"four parts":                {"{distribute: [{from: a/b/c/d, to: {r1: 100}}]}", `"a/b/c/d" is not a locality`},
		"an empty part":             {"{distribute: [{from: a//c, to: {r1: 100}}]}", `"a//c" is not a locality`},
		"no from":                   {"{distribute: [{to: {r1: 100}}]}", `distribute[0].from: "" is not a locality`},
		"overlap":                   {"{distribute: [{from: r1/*, to: {r1: 100}}, {from: r1/z1, to: {r1: 100}}]}", "overlap"},
		"overlap of all":            {"{distribute: [{from: r1, to: {r1: 100}}, {from: '*', to: {r1: 100}}]}", "overlap"},
		"overlapping targets":       {"{distribute: [{from: r1, to: {r1: 50, r1/z1: 50}}]}", "overlap"},
		"names alike":               {"{distribute: [{from: r1, to: {r1: 50, r11: 50}}]}", ""},
		"no label":                  {"{failoverPriority: ['=v']}", `failoverPriority[0]: "=v" names no label`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := load(t, locality(tt.setting))
			ps := s.Problems()[model.ObjectKey{Kind: kube.KindDestinationRule, Namespace: "demo", Name: "r"}]
			rule := row[*model.Config](t, s, "DestinationRule/demo/r")
			if inForce := rule.Spec != nil; inForce != (tt.problem == "") || rule.Refused == inForce {
				t.Errorf("in force: %v, problems %q", inForce, ps)
			}
			if tt.problem == "" && len(ps) > 0 || tt.problem != "" && (len(ps) != 1 || !strings.Contains(ps[0], tt.problem)) {
				t.Errorf("problems %q, want %q", ps, tt.problem)
			}
		})
	}
}

// Versions of one kind are one kind.
func TestEveryVersionIsOneKind(t *testing.T) {
	t.Parallel()
	for _, v := range []string{"v1alpha3", "v1beta1", "v1"} {
		s := load(t, strings.Replace(locality("{}"), "/v1\n", "/"+v+"\n", 1))
		row[*model.Config](t, s, "DestinationRule/demo/r")
	}
	for kind, spec := range map[string]string{"VirtualService": "{hosts: [a.example], http: [{redirect: {uri: /x}}]}", "Sidecar": "{egress: [{hosts: [./*]}]}",
		"WorkloadGroup": "{template: {serviceAccount: x}}", "Gateway": "{servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [a.example]}]}"} {
		for _, v := range []string{"v1alpha3", "v1beta1", "v1"} {
			s := load(t, "apiVersion: networking.istio.io/"+v+"\nkind: "+kind+"\nmetadata: {name: x, namespace: demo}\nspec: "+spec)
			if r := row[*model.Config](t, s, kind+"/demo/x"); r.Kind != kind || r.Spec == nil || r.NotServed {
				t.Errorf("%s %s: %+v", kind, v, r)
			}
		}
	}
	for _, v := range []string{"v1beta1", "v1"} {
		s := load(t, "apiVersion: security.istio.io/"+v+"\nkind: PeerAuthentication\nmetadata: {name: p, namespace: demo}\nspec: {mtls: {mode: STRICT}}")
		pa := row[*model.Config](t, s, "PeerAuthentication/demo/p").Spec.(*security.PeerAuthentication)
		if pa.Mtls.Mode != security.PeerAuthentication_MutualTLS_STRICT {
			t.Errorf("%s: %v", v, pa)
		}
	}
}

// What is in a row is a copy: the object is as its source has it.
func TestSpecIsACopy(t *testing.T) {
	t.Parallel()
	spec := &networking.DestinationRule{Host: "Reviews", ExportTo: []string{"."}}
	before := proto.CloneOf(spec)
	o, _ := kube.NewObject(kube.KindDestinationRule, &kube.Config{Meta: metav1.ObjectMeta{Name: "r", Namespace: "demo"}, Spec: spec})
	s := newStore()
	s.Set(o)
	if !proto.Equal(before, spec) {
		t.Errorf("the object became %v", spec)
	}
	if got := row[*model.Config](t, s, "DestinationRule/demo/r").Spec.(*networking.DestinationRule); got.Host != "reviews.demo.svc.cluster.local" || !slices.Equal(got.ExportTo, spec.ExportTo) {
		t.Errorf("the row has %v", got)
	}
}

// TestNotesOnObjects: what is accepted and has no effect is said.
func TestNotesOnObjects(t *testing.T) {
	t.Parallel()
	auth := func(namespace, selector string) string {
		return "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: p, namespace: " + namespace + "}\nspec: {mtls: {mode: STRICT}" + selector + "}"
	}
	gateway := func(label string) string {
		return "apiVersion: v1\nkind: Service\nmetadata: {name: gw, namespace: istio-system, labels: {topology.istio.io/network: n2, networking.istio.io/gatewayPort: \"" +
			label + "\"}}\nspec: {type: LoadBalancer, ports: [{port: 15021}, {name: tls, port: 15443}]}"
	}
	const selector = ", selector: {matchLabels: {a: b}}"
	for yaml, want := range map[string]string{
		auth("istio-system", selector): "no effect while istio-system is the mesh's root namespace",
		auth("istio-system", ""):       "",
		auth("demo", selector):         "",
		gateway("15443"):               "",
		gateway(""):                    "",
		gateway("70000"):               `label networking.istio.io/gatewayPort: "70000" is not a port of it`,
		gateway("443"):                 `label networking.istio.io/gatewayPort: "443" is not a port of it`,
	} {
		s := kube.NewStore(kube.Converter{Shard: shard, TrustDomain: "td", SystemNamespace: "istio-system"})
		s.Apply(objects(t, yaml), nil)
		got := fmt.Sprint(s.Problems())
		if want == "" && got != "map[]" || !strings.Contains(got, want) {
			t.Errorf("%s\nproblems %s, want %q", yaml, got, want)
		}
	}
}

// A rule that says the same is not given again; one whose spec differs is.
func TestConfigChanges(t *testing.T) {
	t.Parallel()
	s := load(t, locality("{enabled: true}"))
	if got := keysOf(s.Apply(objects(t, locality("{enabled: true}")+"\n# touched"), nil)); len(got) > 0 {
		t.Errorf("unchanged: %v", got)
	}
	if got := keysOf(s.Apply(objects(t, locality("{enabled: false}")), nil)); len(got) != 1 {
		t.Errorf("changed: %v", got)
	}
}

// FuzzConfig: any message that the wire can carry converts without a panic, and what is in force is within
// the limits that it was checked for.
func FuzzConfig(f *testing.F) {
	for _, m := range []proto.Message{
		&networking.DestinationRule{Host: "a", ExportTo: []string{"."}, TrafficPolicy: &networking.TrafficPolicy{
			OutlierDetection: &networking.OutlierDetection{MaxEjectionPercent: 200, Interval: durationpb.New(1)},
			LoadBalancer: &networking.LoadBalancerSettings{LocalityLbSetting: &networking.LocalityLoadBalancerSetting{
				Distribute: []*networking.LocalityLoadBalancerSetting_Distribute{{From: "*", To: map[string]uint32{"a": 100}}}}},
			PortLevelSettings: []*networking.TrafficPolicy_PortTrafficPolicy{{Port: &networking.PortSelector{Number: 80}}}}},
		&security.PeerAuthentication{Selector: &typev1beta1.WorkloadSelector{MatchLabels: map[string]string{"a": "b"}},
			PortLevelMtls: map[uint32]*security.PeerAuthentication_MutualTLS{80: {Mode: 7}}},
		&networking.Gateway{Servers: []*networking.Server{{Port: &networking.Port{Number: 15443, Protocol: "TLS"}, Hosts: []string{"*"},
			Tls: &networking.ServerTLSSettings{Mode: networking.ServerTLSSettings_AUTO_PASSTHROUGH}}}},
	} {
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, m := range goldenSpecs(f) {
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for kind, spec := range map[string]proto.Message{kube.KindDestinationRule: &networking.DestinationRule{},
			kube.KindPeerAuthentication: &security.PeerAuthentication{}, kube.KindGateway: &networking.Gateway{},
			kube.KindVirtualService: &networking.VirtualService{}, kube.KindSidecar: &networking.Sidecar{}, kube.KindWorkloadGroup: &networking.WorkloadGroup{},
			kube.KindProxyConfig: &networkingv1beta1.ProxyConfig{}, kube.KindTelemetry: &telemetry.Telemetry{}} {
			if proto.Unmarshal(data, spec) != nil {
				continue
			}
			o, _ := kube.NewObject(kind, &kube.Config{Meta: metav1.ObjectMeta{Name: "x", Namespace: "demo"}, Spec: spec})
			s := newStore()
			s.Set(o)
			noPanics(t, s)
			for _, r := range s.State().Rows() {
				if err := withinLimits(r.(*model.Config).Spec); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// goldenSpecs are the specs of the objects in testdata.
func goldenSpecs(t testing.TB) (out []proto.Message) {
	t.Helper()
	for _, name := range []string{"rules", "configs", "refused"} {
		text, err := os.ReadFile("testdata/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects(t, string(text)) {
			if c, ok := o.Value.(*kube.Config); ok {
				out = append(out, c.Spec)
			}
		}
	}
	return out
}

func withinLimits(spec any) error {
	switch m := spec.(type) {
	case *networking.DestinationRule:
		if n := m.GetTrafficPolicy().GetOutlierDetection().GetMaxEjectionPercent(); n < 0 || n > 100 || m.Host == "" {
			return fmt.Errorf("host %q, %d%%", m.Host, n)
		}
		for _, d := range m.GetTrafficPolicy().GetLoadBalancer().GetLocalityLbSetting().GetDistribute() {
			sum := 0
			for _, n := range d.To {
				sum += int(n)
			}
			if sum != 100 {
				return fmt.Errorf("shares make %d", sum)
			}
		}
	case *security.PeerAuthentication:
		for port, m := range m.PortLevelMtls {
			if port == 0 || port > 65535 || m.GetMode() > security.PeerAuthentication_MutualTLS_STRICT || m.GetMode() < 0 {
				return fmt.Errorf("port %d mode %d", port, m.GetMode())
			}
		}
	case *networking.Gateway:
		for _, s := range m.Servers {
			if n := s.GetPort().GetNumber(); n == 0 || n > 65535 || len(s.Hosts) == 0 {
				return fmt.Errorf("server %v", s)
			}
		}
	}
	return nil
}
