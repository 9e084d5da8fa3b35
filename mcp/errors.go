package mcp

import "errors"

// Why an envelope can't be read.
var (
	errEnvelope = errors.New("it is not an istio.mcp.v1alpha1.Resource")
	errName     = errors.New(`its name is not "namespace/name"`)
)
