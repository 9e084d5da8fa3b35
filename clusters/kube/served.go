package kube

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// NotServedField is a field that has no effect here. All others have the effect that the Istio API gives them.
type NotServedField struct {
	Kind string // as in [model.Config]
	// Field is a path of JSON names ("http.match.uri"), meant with all that is below it. Items of lists count as the list.
	// "path=NAME" is one value of an enum.
	Field  string
	Reason string // why, and what to do instead
	// Severity is info for what others than the hub heed.
	Severity model.Severity
	// Fails is what does not work while the field is set, which makes it an error; "" where all else works. The object is in force
	// all the same.
	Fails string
}

func (f NotServedField) finding(of model.ObjectKey) model.Finding {
	out := model.Finding{Code: codeNotServed, Severity: f.Severity, Object: of, Field: f.Field, Message: f.Reason}
	if f.Fails != "" {
		out.Severity, out.Message = model.SeverityError, f.Reason+"; until then "+f.Fails
	}
	return out
}

// The reasons that several fields have.
const (
	useOther          = "it is deprecated: use consecutive5xxErrors or consecutiveGatewayErrors"
	needsCertificates = "the hub hands out no certificates yet: name files on the proxy's machine"
	readAtStart       = "injectors and agents read it when a proxy starts, not the hub"
	readByAgent       = "agents read it, not the hub"
	probedByAgent     = "the agent on the machine probes, as its own configuration says; that there is a probe has entries wait for its word"
)

// severity is how bad it is that a field has no effect, by the reason: what works as meant with the injector and the agent of
// Istio is worth knowing, no more.
func severity(reason string) model.Severity {
	switch reason {
	case readAtStart, readByAgent, probedByAgent:
		return model.SeverityInfo
	}
	return model.SeverityWarning
}

// fails is what does not work where TLS has its certificates by name, by kind.
func fails(kind, reason string) string {
	if reason != needsCertificates {
		return ""
	}
	switch kind {
	case model.ConfigGateway:
		return "the server is left out, and its hosts are not served"
	case model.ConfigSidecar:
		return "connections to the port are closed"
	}
	return "requests and connections that the policy is for fail"
}

// depends reports whether settings of TLS in this mode have certificates of their own. Others do without.
func depends(m protoreflect.Message) bool {
	switch t := m.Interface().(type) {
	case *networking.ServerTLSSettings:
		return t.Mode == networking.ServerTLSSettings_SIMPLE || t.Mode == networking.ServerTLSSettings_MUTUAL || t.Mode == networking.ServerTLSSettings_OPTIONAL_MUTUAL
	case *networking.ClientTLSSettings:
		return t.Mode == networking.ClientTLSSettings_SIMPLE || t.Mode == networking.ClientTLSSettings_MUTUAL
	}
	return false
}

// NotServed lists the fields without effect, by kind in the order of the API.
func NotServed() []NotServedField {
	var out []NotServedField
	add := func(kind, reason string, fields ...string) {
		for _, f := range fields {
			out = append(out, NotServedField{Kind: kind, Field: f, Reason: reason, Severity: severity(reason), Fails: fails(kind, reason)})
		}
	}
	// policy is for fields of a DestinationRule's policies: of all ports and of one, for the host and for a subset.
	policy := func(reason string, fields ...string) {
		for _, f := range fields {
			for _, at := range []string{"trafficPolicy.", "trafficPolicy.portLevelSettings.", "subsets.trafficPolicy.", "subsets.trafficPolicy.portLevelSettings."} {
				add(model.ConfigDestinationRule, reason, at+f)
			}
		}
	}
	add(model.ConfigVirtualService, "Envoy has no such fault, and Istio ignores it too", "http.fault.abort.http2Error", "http.fault.delay.exponentialDelay")
	policy(needsCertificates, "tls.credentialName", "tls.caCertCredentialName")
	policy(useOther, "outlierDetection.consecutiveErrors")
	add(model.ConfigGateway, needsCertificates, "servers.tls.credentialName", "servers.tls.credentialNames", "servers.tls.caCertCredentialName")
	add(model.ConfigGateway, "it is deprecated: the target port of the gateway's own Service counts", "servers.port.targetPort")
	add(model.ConfigGateway, "Istio does not implement it either", "servers.defaultEndpoint")
	add(model.ConfigVirtualService, "Istio does not implement it either: use sourceLabels or sourceNamespace", "tcp.match.sourceSubnet")
	add(model.ConfigSidecar, needsCertificates, "ingress.tls.credentialName", "ingress.tls.credentialNames", "ingress.tls.caCertCredentialName")
	add(model.ConfigSidecar, "it has no effect in Istio either: defaultEndpoint has the workload's port", "ingress.port.targetPort", "egress.port.targetPort")
	add(model.ConfigProxyConfig, readAtStart, "selector", "concurrency", "environmentVariables", "image")
	inbound := "what a workload is sent has the protocol of its port, as in Istio"
	add(model.ConfigSidecar, inbound, "inboundConnectionPool.http.h2UpgradePolicy", "ingress.connectionPool.http.h2UpgradePolicy")
	add(model.ConfigWorkloadGroup, "the address is that of the proxy that registers", "template.address")
	add(model.ConfigWorkloadGroup, probedByAgent,
		"probe.initialDelaySeconds", "probe.timeoutSeconds", "probe.periodSeconds", "probe.successThreshold", "probe.failureThreshold",
		"probe.httpGet", "probe.tcpSocket", "probe.exec", "probe.grpc")
	add(model.ConfigTelemetry, "it chooses waypoints, which are not served: use selector", "targetRef", "targetRefs")
	meshNotServed(add)
	return out
}

// meshNotServed adds the fields of MeshConfig.
func meshNotServed(add func(kind, reason string, fields ...string)) {
	mesh := func(reason string, fields ...string) { add(model.ConfigMesh, reason, fields...) }
	mesh("Ingress objects are not served yet", "ingressClass", "ingressService", "ingressControllerMode", "ingressSelector")
	mesh("Envoy refuses listeners while the service is not there, which would cut off all traffic: use opentelemetry", "extensionProviders.zipkin", "extensionProviders.datadog")
	mesh("current Envoys do not have it: use opentelemetry", "extensionProviders.lightstep", "extensionProviders.stackdriver", "extensionProviders.opencensus")
	mesh("spans are sampled as MeshConfig and Telemetry say", "extensionProviders.opentelemetry.dynatraceSampler")
	mesh("spans have what resourceDetectors find: set OTEL_RESOURCE_ATTRIBUTES for the proxy", "extensionProviders.opentelemetry.serviceAttributeEnrichment")
	mesh("AuthorizationPolicies are not served yet", "extensionProviders.envoyExtAuthzHttp", "extensionProviders.envoyExtAuthzGrpc")
	mesh("the hub hands out no certificates yet", "certificates", "ca", "caCertificates", "extensionProviders.sds")
	mesh("peers of every trust domain that the root certificates vouch for are accepted", "trustDomainAliases")
	mesh("servers are verified unless a DestinationRule says insecureSkipVerify", "verifyCertificateAtClient")
	mesh("mutual TLS of the mesh does not look at them, as in Istio", "meshMTLS.ecdhCurves")
	mesh("retries of inbound requests have one endpoint", "defaultInboundHttpRetryPolicy.retryIgnorePreviousHosts")
	mesh(useOther, "defaultTrafficPolicy.outlierDetection.consecutiveErrors")
	mesh("ambient mode is not served", "hboneIdleTimeout", "serviceScopeConfigs")
	mesh("an MCP server is asked for all kinds", "configSources.subscribedResources")
	mesh("authorities are named in caCertificates, and revocation lists are not read", "configSources.tlsSettings.credentialName", "configSources.tlsSettings.caCertCredentialName", "configSources.tlsSettings.caCrl")
	mesh(readByAgent, "enablePrometheusMerge")
	mesh(readAtStart, atStart()...)
	mesh("it counts as ALLOW_ANY", "outboundTrafficPolicy.mode=ALLOW_ANY_DYNAMIC_DNS")
	mesh("what no service has is passed through as it is: add a ServiceEntry, and a DestinationRule with its tls", "outboundTrafficPolicy.tls")
	mesh("exportTo, defaultServiceExportTo and Sidecars say who sees a ServiceEntry", "serviceEntryVisibility")
}

// atStart are the fields of MeshConfig.defaultConfig that only agents read: all but what listeners are made of.
func atStart() (out []string) {
	fields := (&meshconfig.ProxyConfig{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		switch f := fields.Get(i); f.JSONName() {
		case "tracing", "tracingServiceName", "gatewayTopology":
		default:
			out = append(out, "defaultConfig."+f.JSONName())
		}
	}
	tracing := (&meshconfig.Tracing{}).ProtoReflect().Descriptor().Fields()
	for i := range tracing.Len() {
		switch f := tracing.Get(i); f.JSONName() {
		case "customTags", "maxPathTagLength", "sampling", "enableIstioTags":
		default:
			out = append(out, "defaultConfig.tracing."+f.JSONName())
		}
	}
	slices.Sort(out)
	return out
}

// notServed is NotServed by kind and field.
var notServed = func() map[string]map[string]NotServedField {
	out := map[string]map[string]NotServedField{}
	for _, f := range NotServed() {
		if out[f.Kind] == nil {
			out[f.Kind] = map[string]NotServedField{}
		}
		out[f.Kind][f.Field] = f
	}
	return out
}()

// notServedFields lists the fields that are set and have no effect, sorted. One that is there several times is told as the worst
// of them.
func notServedFields(kind string, m protoreflect.Message) []NotServedField {
	var out []NotServedField
	without := notServed[kind]
	if len(without) == 0 {
		return nil
	}
	walkFields(m, "", func(path string, in protoreflect.Message) (descend bool) {
		f, found := without[path]
		if found {
			if !depends(in) {
				f.Fails = ""
			}
			out = append(out, f)
		}
		return !found
	})
	slices.SortFunc(out, func(a, b NotServedField) int {
		return cmp.Or(strings.Compare(a.Field, b.Field), strings.Compare(b.Fails, a.Fails))
	})
	return slices.CompactFunc(out, func(a, b NotServedField) bool { return a.Field == b.Field })
}

// walkFields visits the fields that are set with the message that they are in, and those of their messages where visit says so. A value of an enum is
// visited as "path=NAME" besides.
func walkFields(m protoreflect.Message, prefix string, visit func(path string, in protoreflect.Message) (descend bool)) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		path := prefix + f.JSONName()
		switch descend := visit(path, m); {
		case !descend || f.IsMap():
		case f.Kind() == protoreflect.EnumKind && !f.IsList():
			if value := f.Enum().Values().ByNumber(v.Enum()); value != nil {
				visit(path+"="+string(value.Name()), m)
			}
		case f.Kind() != protoreflect.MessageKind:
		case f.IsList():
			for i := range v.List().Len() {
				walkFields(v.List().Get(i).Message(), path+".", visit)
			}
		default:
			walkFields(v.Message(), path+".", visit)
		}
		return true
	})
}
