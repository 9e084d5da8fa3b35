// Package deploy holds the manifests that the hub is installed with.
package deploy

import _ "embed"

//go:embed rbac-remote.yaml
var rbacRemote string

//go:embed rbac-config.yaml
var rbacConfig string

//go:embed rbac-mcs.yaml
var rbacMCS string

// RBACRemote is what the hub may do in a remote cluster: YAML documents, for the namespace istio-system. Config says
// that it reads Istio's configuration there, mcs that it follows the Multi-Cluster Services API.
func RBACRemote(config, mcs bool) string {
	text := rbacRemote
	if config {
		text += "---\n" + rbacConfig
	}
	if mcs {
		text += "---\n" + rbacMCS
	}
	return text
}
