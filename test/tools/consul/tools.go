//go:build tools

// Package tools pins Consul for the tests. test/tools/setup builds it from
// this module, so that the project's own go.mod knows nothing of it.
package tools

import _ "github.com/hashicorp/consul"
