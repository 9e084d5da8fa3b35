// Package multicluster_test drives the hub, the isthmus binary, on real Kubernetes
// API servers: a config cluster with kubeconfig Secrets, and remote clusters behind
// links that can be cut. Proxies are clients that keep state as Envoy does.
//
// A scenario asserts what proxies receive and what the debug endpoints say. It
// waits for conditions, never for time.
package multicluster_test

import (
	"context"
	"os"
	"testing"

	"github.com/isthmus-mesh/isthmus/test/env"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

var servers env.Pool

func TestMain(m *testing.M) {
	os.Exit(envoytest.WithHub(context.Background(), func() int { return servers.Main(m) }))
}
