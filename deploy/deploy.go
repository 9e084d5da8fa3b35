// Package deploy holds the manifests that the hub is installed with.
package deploy

import _ "embed"

//go:embed rbac-remote.yaml
var rbacRemote string

// RBACRemote is what the hub may do in a remote cluster: YAML documents, for the namespace istio-system.
func RBACRemote() string { return rbacRemote }
