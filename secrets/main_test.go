package secrets_test

import (
	"os"
	"testing"

	"github.com/isthmus-mesh/isthmus/test/env"
)

// servers are the real API servers of this package's tests.
var servers env.Pool

func TestMain(m *testing.M) { os.Exit(servers.Main(m)) }
