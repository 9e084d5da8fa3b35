package kube

import (
	"reflect"
	"testing"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// sameEndpoint lists fields by hand; this notices one that was added, or is not compared.
func TestSameEndpointComparesEveryField(t *testing.T) {
	t.Parallel()
	base := reflect.TypeFor[model.Endpoint]()
	for i := range base.NumField() {
		f := base.Field(i)
		if f.Name == "Source" {
			continue
		}
		var a, b model.Endpoint
		set(t, reflect.ValueOf(&b).Elem().Field(i))
		if sameEndpoint(a, b) {
			t.Errorf("%s is not compared", f.Name)
		}
	}
}

func set(t *testing.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Map:
		v.Set(reflect.ValueOf(model.Labels{"a": "b"}))
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).Kind() == reflect.String {
				v.Field(i).SetString("x")
				return
			}
		}
		t.Fatalf("no string in %s", v.Type())
	default:
		t.Fatalf("kind %s", v.Kind())
	}
}

func TestSameRowTellsKindsApart(t *testing.T) {
	t.Parallel()
	rows := []model.Object{&model.Service{}, &model.Endpoints{}, &model.Workload{}, &model.Config{}}
	for i, a := range rows {
		for j, b := range rows {
			if got := sameRow(a, b); got != (i == j) {
				t.Errorf("sameRow(%T, %T) = %v", a, b, got)
			}
		}
	}
}

// sameConfig lists fields by hand too.
func TestSameConfigComparesEveryField(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]*model.Config{
		"Kind": {Kind: "x"}, "Namespace": {Namespace: "x"}, "Name": {Name: "x"}, "NotServed": {NotServed: true},
		"NotServedFields": {NotServedFields: []string{"x"}}, "Created": {Created: time.Unix(1, 0)}, "Spec": {Spec: &networking.Gateway{}},
		"Findings": {Findings: []model.Finding{{Code: "x"}}}, "Refused": {Refused: true}, "Generation": {Generation: 1},
		"Labels": {Labels: model.Labels{"x": "y"}}, "Source": {Source: model.Source{Object: model.ObjectKey{Name: "x"}}},
	} {
		if sameRow(&model.Config{}, b) {
			t.Errorf("%s is not compared", name)
		}
	}
	if n := reflect.TypeFor[model.Config]().NumField(); n != 12 {
		t.Errorf("%d fields: one is not compared here", n)
	}
	one := &model.Config{Spec: &networking.DestinationRule{Host: "a"}, Source: model.Source{Revision: "1"}}
	for want, spec := range map[bool]any{true: &networking.DestinationRule{Host: "a"}, false: &networking.DestinationRule{Host: "b"}} {
		if got := sameRow(one, &model.Config{Spec: spec, Source: model.Source{Revision: "2"}}); got != want {
			t.Errorf("%v: %v", spec, got)
		}
	}
	gateway := func(port uint16) *model.Config {
		return &model.Config{Spec: &model.NetworkGateway{Network: "n", Addrs: []model.GatewayAddr{{Port: port}}}}
	}
	if !sameRow(gateway(1), gateway(1)) || sameRow(gateway(1), gateway(2)) || sameRow(gateway(1), one) {
		t.Error("specs of our own are not compared by value")
	}
}
