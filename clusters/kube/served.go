package kube

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// The fields that the hub uses, as paths of JSON names. A field counts with all that is below it; items of lists
// count as the list.
var (
	ruleFields    = slices.Concat([]string{"host", "exportTo", portSettings + "port"}, policyFields("trafficPolicy."), policyFields(portSettings))
	gatewayFields = []string{"selector", "servers.hosts", "servers.name", "servers.port", "servers.tls.mode"}
)

const portSettings = "trafficPolicy.portLevelSettings."

// policyFields are those of the policy of all ports or of one.
func policyFields(prefix string) (out []string) {
	for _, f := range []string{
		"loadBalancer.localityLbSetting",
		"tls.mode", "tls.clientCertificate", "tls.privateKey", "tls.caCertificates", "tls.sni", "tls.subjectAltNames", "tls.insecureSkipVerify",
		"outlierDetection.splitExternalLocalOriginErrors", "outlierDetection.consecutiveLocalOriginFailures",
		"outlierDetection.consecutiveGatewayErrors", "outlierDetection.consecutive5xxErrors", "outlierDetection.interval",
		"outlierDetection.baseEjectionTime", "outlierDetection.maxEjectionPercent", "outlierDetection.minHealthPercent",
		"outlierDetection.outlierDetectionHttpErrorCodes", "outlierDetection.failurePercentageThreshold",
	} {
		out = append(out, prefix+f)
	}
	return out
}

// notServedFields lists the fields that are set and not among the served ones, sorted.
func notServedFields(m protoreflect.Message, served []string) []string {
	var out []string
	walkFields(m, "", func(path string) (descend bool) {
		if slices.Contains(served, path) {
			return false
		}
		if slices.ContainsFunc(served, func(s string) bool { return strings.HasPrefix(s, path+".") }) {
			return true
		}
		out = append(out, path)
		return false
	})
	slices.Sort(out)
	return slices.Compact(out)
}

// walkFields visits the fields that are set, and those of their messages where visit says so.
func walkFields(m protoreflect.Message, prefix string, visit func(path string) (descend bool)) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		path := prefix + f.JSONName()
		if !visit(path) || f.Kind() != protoreflect.MessageKind || f.IsMap() {
			return true
		}
		if !f.IsList() {
			walkFields(v.Message(), path+".", visit)
			return true
		}
		for i := range v.List().Len() {
			walkFields(v.List().Get(i).Message(), path+".", visit)
		}
		return true
	})
}
