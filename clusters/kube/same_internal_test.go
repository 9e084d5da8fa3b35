package kube

import (
	"reflect"
	"testing"

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
