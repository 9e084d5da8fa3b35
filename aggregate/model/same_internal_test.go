package model

import (
	"reflect"
	"testing"
	"time"

	networking "istio.io/api/networking/v1alpha3"
)

// sameEndpoint lists fields by hand; this notices one that was added, or is not compared.
func TestSameEndpointComparesEveryField(t *testing.T) {
	t.Parallel()
	base := reflect.TypeFor[Endpoint]()
	for i := range base.NumField() {
		f := base.Field(i)
		if f.Name == "Source" {
			continue
		}
		var a, b Endpoint
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
	case reflect.Float64:
		v.SetFloat(0.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Map:
		v.Set(reflect.ValueOf(Labels{"a": "b"}))
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
	rows := []Object{&Service{}, &Endpoints{}, &Workload{}, &Config{}}
	for i, a := range rows {
		for j, b := range rows {
			if got := SameRow(a, b); got != (i == j) {
				t.Errorf("SameRow(%T, %T) = %v", a, b, got)
			}
		}
	}
}

// sameConfig lists fields by hand too.
func TestSameConfigComparesEveryField(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]*Config{
		"Kind": {Kind: "x"}, "Namespace": {Namespace: "x"}, "Name": {Name: "x"}, "NotServed": {NotServed: true},
		"NotServedFields": {NotServedFields: []string{"x"}}, "Created": {Created: time.Unix(1, 0)}, "Spec": {Spec: &networking.Gateway{}},
		"Findings": {Findings: []Finding{{Code: "x"}}}, "Refused": {Refused: true}, "Generation": {Generation: 1},
		"Labels": {Labels: Labels{"x": "y"}}, "Source": {Source: Source{Object: ObjectKey{Name: "x"}}},
	} {
		if SameRow(&Config{}, b) {
			t.Errorf("%s is not compared", name)
		}
	}
	if n := reflect.TypeFor[Config]().NumField(); n != 12 {
		t.Errorf("%d fields: one is not compared here", n)
	}
	one := &Config{Spec: &networking.DestinationRule{Host: "a"}, Source: Source{Revision: "1"}}
	for want, spec := range map[bool]any{true: &networking.DestinationRule{Host: "a"}, false: &networking.DestinationRule{Host: "b"}} {
		if got := SameRow(one, &Config{Spec: spec, Source: Source{Revision: "2"}}); got != want {
			t.Errorf("%v: %v", spec, got)
		}
	}
	gateway := func(port uint16) *Config {
		return &Config{Spec: &NetworkGateway{Network: "n", Addrs: []GatewayAddr{{Port: port}}}}
	}
	if !SameRow(gateway(1), gateway(1)) || SameRow(gateway(1), gateway(2)) || SameRow(gateway(1), one) {
		t.Error("specs of our own are not compared by value")
	}
}
