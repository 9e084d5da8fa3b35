// Package envoy_test drives real Envoys with a real hub, the isthmus binary on
// a folder of YAML clusters or on real API servers, and sends real requests
// through them.
package envoy_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/isthmus-mesh/isthmus/test/env"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

var servers env.Pool

func TestMain(m *testing.M) {
	code := envoytest.WithHub(context.Background(), func() int { return servers.Main(m) })
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
