package kube

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

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
		if f.Reason == "" || notServed[f.Kind][f.Field] != f.Reason {
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
	walkFields(rule.ProtoReflect(), "", func(path string) bool {
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
