package main

import (
	"github.com/isthmus-mesh/isthmus/analysis"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/kube/validate"
	"github.com/isthmus-mesh/isthmus/clusters/registries"
)

// findingCode is what findings of a code mean.
type findingCode struct{ code, means string }

// findingCodes are all that there are. The first group is about single objects, the second about objects together.
func findingCodes() []findingCode {
	return []findingCode{
		{codeProblem, "a file or an object can't be read or used"},
		{"Unreadable", "the spec of an object can't be decoded, or is missing"},
		{"TooLarge", "an object would make more endpoints than one may"},
		{"Failed", "an object could not be converted, which is a fault of the program"},
		{validate.CodeRequired, "a field is missing"},
		{validate.CodeHost, "a host is neither a DNS name, nor an address, nor a pattern that may stand there"},
		{validate.CodeName, "a name is not one as Kubernetes has them"},
		{validate.CodePort, "a port is none, or two have one number or name"},
		{validate.CodeProtocol, "a protocol is not known, or does not go with the rest"},
		{validate.CodeAddress, "an address or range of addresses is none"},
		{validate.CodeWeight, "a weight is negative, or all weights together are nothing"},
		{validate.CodeRange, "a number is too large or too small"},
		{validate.CodeDuration, "a duration is negative, or shorter than what counts"},
		{validate.CodeRegex, "a regular expression is not one of RE2"},
		{validate.CodeHeader, "the name of a header can't be one"},
		{validate.CodeLabels, "labels are not ones that Kubernetes allows"},
		{validate.CodeExclusive, "fields exclude each other"},
		{validate.CodeDuplicate, "the same thing is said twice"},
		{validate.CodeUnreachable, "a rule is hidden by an earlier one, or no request can match it"},
		{validate.CodeDeprecated, "a field has a successor"},
		{validate.CodeIneffective, "a setting does nothing where it is"},
		{validate.CodeTooMany, "more is wrong than is told"},
		{validate.CodeExportTo, "a list of namespaces to export to is none"},
		{validate.CodeTLS, "TLS settings do not go together"},
		{validate.CodeLocality, "localities do not go together"},
		{validate.CodeSelector, "a selector selects nothing or too much"},
		{validate.CodeStatus, "a status code is none"},
		{api.CodeValue, "a word, or a form, is none of those that a field may have"},
		{api.CodeUnknownField, "a kind does not have a field; but for `Registry` and `FederatedService` the object is in force without it"},
		{api.CodeBridged, "a registry of a McpBridge is of a kind that is not served"},

		{analysis.CodeNotServed, "a field, or the whole object, has no effect in this version"},
		{analysis.CodeRefused, "an object has an error and is not in force; its last good version may be"},
		{analysis.CodeConflict, "another object is used instead of this one, or of a part of it"},
		{analysis.CodeUnknownHost, "no service has the host"},
		{analysis.CodeUnknownProvider, "MeshConfig has no such provider"},
		{analysis.CodeTooManyServers, "there are more servers with AUTO_PASSTHROUGH in the mesh than are served"},
		{analysis.CodeNotExported, "a service has the host, but is not exported to the namespace, or not to all that the VirtualService is for"},
		{analysis.CodeUnknownPort, "the service has no such port"},
		{analysis.CodeUnknownSubset, "no DestinationRule has such a subset"},
		{analysis.CodeEmptySubset, "no endpoint has the labels of the subset"},
		{analysis.CodeUnknownDelegate, "there is no such VirtualService to delegate to, or it has hosts"},
		{analysis.CodeUnknownGate, "there is no such Gateway"},
		{analysis.CodeHostNotThere, "no server of the Gateway has the host"},
		{analysis.CodeUnclaimed, "there are routes for a host that no service has: sidecars serve it at port 80, and at the ports of services that the VirtualService is for besides"},
		{analysis.CodeNoImport, "a Sidecar imports a host that no service has"},
		{analysis.CodeNoEndpoints, "a ServiceEntry that selects its endpoints, or a FederatedService, has none"},
		{analysis.CodeOtherProtocol, "a source of a FederatedService speaks another protocol than the service"},
		{analysis.CodeSourceEmpty, "a source of a FederatedService gives no endpoint"},
		{analysis.CodeHostElsewhere, "to some proxies the host of a FederatedService means another service"},
		{analysis.CodeNoRoutes, "no VirtualService has routes for a server of a Gateway"},
		{analysis.CodeNoWorkload, "no workload of a service has the labels of a selector"},
		{analysis.CodeRefusedTLS, "workloads demand other TLS than a DestinationRule has proxies speak with them"},
		{analysis.CodeAddressTaken, "an address of a ServiceEntry is that of a Service already"},
		{analysis.CodePortConflict, "two servers can't share a port, a port is the proxy's own, or a Sidecar's ingress listener takes it from services"},
		{registries.CodeNotInForce, "an object declares no registries where it is, or as it is called"},
		{registries.CodeTaken, "another declaration has the registry's name already"},
		{analysis.CodeHostTaken, "another server with TLS has the host at the port already"},
	}
}
