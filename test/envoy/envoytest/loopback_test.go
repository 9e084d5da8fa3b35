package envoytest_test

import (
	"testing"

	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

func TestLoopbackBlocksAreDistinct(t *testing.T) {
	t.Parallel()
	a, b := envoytest.StartLoopback(t), envoytest.StartLoopback(t)
	if a.Prefix == b.Prefix {
		t.Fatalf("both got %s", a.Prefix)
	}
	for _, l := range []*envoytest.Loopback{a, b} {
		if !l.Prefix.Contains(l.Addr(9, 1)) || !l.Addr(9, 1).IsLoopback() {
			t.Errorf("%s is not of %s", l.Addr(9, 1), l.Prefix)
		}
		// The same port on each.
		envoytest.StartBackend(t, envoytest.BackendOptions{Addr: l.At(9, 1, 9100)})
	}
}

func TestLoopbackCanBeReleased(t *testing.T) {
	t.Parallel()
	for range 300 { // more than there are blocks
		l, err := envoytest.ClaimLoopback(1)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
