package lastgood

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"reflect"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
)

// shape identifies what the model's rows can say. A field that an earlier program did not know would silently be zero
// in the rows that it has kept.
func shape() string {
	h := sha256.New()
	seen := map[reflect.Type]bool{}
	for _, o := range []any{model.Service{}, model.Endpoints{}, model.Workload{}, model.Config{}, model.NetworkGateway{}, model.ResolvedHost{}, api.RegistrySpec{}, api.FederatedServiceSpec{}, api.McpBridgeSpec{}} {
		describe(h, reflect.TypeOf(o), seen)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// describe writes the fields of a type and of all that they hold.
func describe(w io.Writer, t reflect.Type, seen map[reflect.Type]bool) {
	if seen[t] {
		return
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		describe(w, t.Elem(), seen)
	case reflect.Map:
		describe(w, t.Key(), seen)
		describe(w, t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() {
				fmt.Fprintln(w, t, f.Name, f.Type)
				describe(w, f.Type, seen)
			}
		}
	}
}
