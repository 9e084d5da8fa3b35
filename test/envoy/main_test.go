// Package envoy_test drives real Envoys with a real hub, the isthmus binary on
// a folder of YAML clusters, and sends real requests through them.
package envoy_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

func TestMain(m *testing.M) {
	code := envoytest.WithHub(context.Background(), m.Run)
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
