package debug_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// TestNamesOfAProxy: the table of names that a proxy would get.
func TestNamesOfAProxy(t *testing.T) {
	t.Parallel()
	w := serve(options(), local("/debug/ndsz?proxyID=gateway-1.edge"))
	var got struct{ Table map[string]gen.NameInfo }
	if err := json.Unmarshal(w.Body.Bytes(), &got); w.Code != http.StatusOK || err != nil || len(got.Table) == 0 {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	if bad := serve(options(), local("/debug/ndsz")); bad.Code != http.StatusBadRequest {
		t.Errorf("without a proxy: %d %s", bad.Code, bad.Body)
	}
}
