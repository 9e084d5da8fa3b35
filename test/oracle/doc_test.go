// Package oracle_test compares three answers to the question where a request goes: what generated configuration means by
// Istio's documentation, what xds/evaluate works out of the resources that a proxy is sent, and what a real Envoy with these
// resources does. Configurations and requests are random, and all from one seed, which a failure prints.
package oracle_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

var (
	seed   = flag.Uint64("seed", 0, "of the configurations and requests; 0 is one of its own for each run")
	rounds = flag.Int("rounds", 180, "configurations to try, in each test")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
