package main

import (
	"os"
	"testing"

	"github.com/isthmus-mesh/isthmus/test/env"
)

var servers env.Pool

// asCommand in the environment makes the test binary be the isthmus command.
const asCommand = "ISTHMUS_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	os.Exit(servers.Main(m))
}
