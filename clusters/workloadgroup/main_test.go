package workloadgroup_test

import (
	"os"
	"testing"

	"github.com/isthmus-mesh/isthmus/test/env"
)

var servers env.Pool

func TestMain(m *testing.M) { os.Exit(servers.Main(m)) }
