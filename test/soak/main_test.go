// Package soak_test holds the hub, the isthmus binary, on real Kubernetes API
// servers, to what must be true however long it runs and whatever clusters do:
// credentials that are rotated over and over under traffic, and clusters that join,
// die and return in random order.
//
// What happens is drawn from a seed, which a failed test tells; these variables
// of the environment change what is drawn:
//
//	ISTHMUS_SOAK_SEED       repeats a run
//	ISTHMUS_SOAK_ROTATIONS  rotations
//	ISTHMUS_SOAK_CLUSTERS   remote clusters
//	ISTHMUS_SOAK_ROUNDS     rounds of random events, each compared with a rebuild
//
// `make soak` runs both tests for long.
package soak_test

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/test/env"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

var servers env.Pool

func TestMain(m *testing.M) {
	os.Exit(envoytest.WithHub(context.Background(), func() int { return servers.Main(m) }))
}

// setting is a number from the environment.
func setting(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv("ISTHMUS_SOAK_" + name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("ISTHMUS_SOAK_%s is %q, want a number from 1 on", name, text)
	}
	return n
}

// chance is what a test draws from. The seed is told if it fails.
func chance(t *testing.T) *rand.Rand {
	t.Helper()
	seed := setting(t, "SEED", int(time.Now().UnixNano()%1e9)+1)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("ISTHMUS_SOAK_SEED=%d repeats what was drawn", seed)
		}
	})
	return rand.New(rand.NewPCG(uint64(seed), 0))
}

// pick draws one of the items.
func pick[T any](r *rand.Rand, items ...T) T { return items[r.IntN(len(items))] }
