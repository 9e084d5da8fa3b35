package kube

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	networkingv1beta1 "istio.io/api/networking/v1beta1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// groups are those of the kinds that have specs.
var groups = map[string]string{model.ConfigPeerAuthentication: groupSecurity, model.ConfigTelemetry: groupTelemetry}

// specMessage is an empty spec of a kind that is checked; nil for others.
func specMessage(kind string) proto.Message {
	switch kind {
	case model.ConfigMesh:
		return &meshconfig.MeshConfig{}
	case KindServiceEntry:
		return &networking.ServiceEntry{}
	case KindWorkloadEntry:
		return &networking.WorkloadEntry{}
	}
	group := groups[kind]
	if group == "" {
		group = groupNetworking
	}
	if m := configMessage(group, kind); m != nil {
		return m
	}
	return nil
}

// Every field without effect is one that its kind has, is there once, and not below another; each has a reason.
func TestNotServedFieldsExist(t *testing.T) {
	t.Parallel()
	for _, f := range NotServed() {
		m := specMessage(f.Kind)
		if m == nil {
			t.Errorf("there is no kind %s", f.Kind)
			continue
		}
		if f.Reason == "" || notServed[f.Kind][f.Field].Reason != f.Reason {
			t.Errorf("%s %s: no reason, or two", f.Kind, f.Field)
		}
		if !hasField(m.ProtoReflect().Descriptor(), f.Field) {
			t.Errorf("%s has no %s", f.Kind, f.Field)
		}
		for path := f.Field; strings.Contains(path, "."); {
			path = path[:strings.LastIndexByte(path, '.')]
			if _, all := notServed[f.Kind][path]; all {
				t.Errorf("%s %s is below %s", f.Kind, f.Field, path)
			}
		}
	}
}

func hasField(d protoreflect.MessageDescriptor, path string) bool {
	path, value, enum := strings.Cut(path, "=")
	name, rest, below := strings.Cut(path, ".")
	f := d.Fields().ByJSONName(name)
	switch {
	case f == nil:
		return false
	case below:
		if enum {
			rest += "=" + value
		}
		return f.Message() != nil && !f.IsMap() && hasField(f.Message(), rest)
	case enum:
		return f.Enum() != nil && f.Enum().Values().ByName(protoreflect.Name(value)) != nil
	}
	return true
}

// What is set is found in lists and below; values of enums have names; what is not set is not found.
func TestWalkFields(t *testing.T) {
	t.Parallel()
	var got []string
	rule := &networking.DestinationRule{Host: "a", Subsets: []*networking.Subset{{Labels: map[string]string{"a": "b"}}, {Name: "v1"}},
		TrafficPolicy: &networking.TrafficPolicy{Tls: &networking.ClientTLSSettings{Mode: networking.ClientTLSSettings_MUTUAL, CredentialName: "x"}}}
	walkFields(rule.ProtoReflect(), "", func(path string, _ protoreflect.Message) bool {
		got = append(got, path)
		return true
	})
	want := []string{"host", "trafficPolicy", "trafficPolicy.tls", "trafficPolicy.tls.mode", "trafficPolicy.tls.mode=MUTUAL", "trafficPolicy.tls.credentialName",
		"subsets", "subsets.labels", "subsets.name"}
	slices.Sort(want)
	slices.Sort(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	var without []string
	for _, f := range notServedFields(KindDestinationRule, rule.ProtoReflect()) {
		without = append(without, f.Field+": "+f.Reason)
	}
	if d := cmp.Diff([]string{"trafficPolicy.tls.credentialName: " + needsCertificates}, without); d != "" {
		t.Error(d)
	}
}

// A credential by name is an error where certificates are needed, once however many servers have one, and the object is in force;
// where the mode needs none it is a warning. What agents heed is worth knowing, no more.
func TestSeverityOfFieldsWithoutEffect(t *testing.T) {
	t.Parallel()
	server := func(mode networking.ServerTLSSettings_TLSmode) *networking.Server {
		return &networking.Server{Port: &networking.Port{Number: 443, Name: "https", Protocol: "HTTPS"}, Hosts: []string{"a.example"},
			Tls: &networking.ServerTLSSettings{Mode: mode, CredentialName: "c"}}
	}
	client := func(mode networking.ClientTLSSettings_TLSmode) *networking.DestinationRule {
		return &networking.DestinationRule{Host: "a", TrafficPolicy: &networking.TrafficPolicy{Tls: &networking.ClientTLSSettings{Mode: mode, CredentialName: "c"}}}
	}
	ingress := &networking.IstioIngressListener{Port: &networking.SidecarPort{Number: 443}, Tls: &networking.ServerTLSSettings{Mode: networking.ServerTLSSettings_MUTUAL, CredentialName: "c"}}
	for name, tc := range map[string]struct {
		kind string
		spec proto.Message
		want string
	}{
		"gateway": {model.ConfigGateway, &networking.Gateway{Servers: []*networking.Server{server(networking.ServerTLSSettings_PASSTHROUGH), server(networking.ServerTLSSettings_SIMPLE)}},
			"error servers.tls.credentialName: " + needsCertificates + "; until then the server is left out, and its hosts are not served"},
		"gateway that passes on": {model.ConfigGateway, &networking.Gateway{Servers: []*networking.Server{server(networking.ServerTLSSettings_PASSTHROUGH)}}, "warning servers.tls.credentialName: " + needsCertificates},
		"rule":                   {model.ConfigDestinationRule, client(networking.ClientTLSSettings_SIMPLE), "error trafficPolicy.tls.credentialName: " + needsCertificates + "; until then requests and connections that the policy is for fail"},
		"rule of the mesh":       {model.ConfigDestinationRule, client(networking.ClientTLSSettings_ISTIO_MUTUAL), "warning trafficPolicy.tls.credentialName: " + needsCertificates},
		"sidecar": {model.ConfigSidecar, &networking.Sidecar{Ingress: []*networking.IstioIngressListener{ingress}},
			"error ingress.tls.credentialName: " + needsCertificates + "; until then connections to the port are closed"},
		"probe": {model.ConfigWorkloadGroup, &networking.WorkloadGroup{Probe: &networking.ReadinessProbe{TimeoutSeconds: 1}}, "info probe.timeoutSeconds: " + probedByAgent},
		"proxy": {model.ConfigProxyConfig, &networkingv1beta1.ProxyConfig{Image: &networkingv1beta1.ProxyImage{ImageType: "debug"}}, "info image: " + readAtStart},
		"mesh":  {model.ConfigMesh, &meshconfig.MeshConfig{DefaultConfig: &meshconfig.ProxyConfig{DrainDuration: durationpb.New(1)}}, "info defaultConfig.drainDuration: " + readAtStart},
	} {
		var got []string
		var findings []model.Finding
		for _, f := range notServedFields(tc.kind, tc.spec.ProtoReflect()) {
			x := f.finding(model.ObjectKey{Kind: tc.kind})
			findings, got = append(findings, x), append(got, fmt.Sprintf("%s %s", x.Severity, told(x)))
		}
		if d := cmp.Diff([]string{tc.want}, got); d != "" || slices.ContainsFunc(findings, refuses) {
			t.Errorf("%s: refused %v\n%s", name, slices.ContainsFunc(findings, refuses), d)
		}
	}
}
