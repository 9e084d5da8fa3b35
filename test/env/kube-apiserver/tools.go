//go:build tools

// Package tools pins kube-apiserver for the tests. test/tools/setup builds it
// from this module, so that the project's own go.mod knows nothing of it.
package tools

import _ "k8s.io/kubernetes/cmd/kube-apiserver"
