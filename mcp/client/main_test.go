package client_test

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) { os.Exit(servers.Main(m)) }
