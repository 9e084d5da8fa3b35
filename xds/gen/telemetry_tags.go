package gen

import (
	"cmp"
	"slices"
	"strings"

	tracingv3 "github.com/envoyproxy/go-control-plane/envoy/type/tracing/v3"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// SpanTags say in each span of a proxy whose it is, in the tags "istio.canonical_service" and so on that Istio's dashboards look
// for (enableIstioTags). It is comparable.
type SpanTags struct{ Service, Revision, Mesh, Namespace, Cluster string }

// canonicalService names the service and the revision that a workload's labels say it is of, "" for none.
func canonicalService(l model.Labels) (service, revision string) {
	return firstLabel(l, "service.istio.io/canonical-name", "app.kubernetes.io/name", "app"),
		firstLabel(l, "service.istio.io/canonical-revision", "app.kubernetes.io/version", "version")
}

// NewSpanTags are those of a workload in a mesh.
func NewSpanTags(l model.Labels, workload, mesh, namespace string, cluster model.ClusterID) SpanTags {
	service, revision := canonicalService(l)
	return SpanTags{Service: cmp.Or(service, workload), Revision: revision, Mesh: mesh, Namespace: namespace, Cluster: string(cluster)}
}

// spanTraits tells proxies apart by workload where their spans may do so: only in a mesh that traces.
func spanTraits(m *pushcontext.MeshView) Traits {
	if m.Config.GetEnableTracing() || slices.ContainsFunc(m.Config.GetExtensionProviders(), traces) {
		return TraitSpans
	}
	return 0
}

// traces reports whether a provider may have a tracer (see tracer).
func traces(p *meshconfig.MeshConfig_ExtensionProvider) bool {
	return p.GetOpentelemetry() != nil || p.GetSkywalking() != nil
}

// name is what spans call the service, "" if it is not known.
func (s SpanTags) name(how meshconfig.ProxyConfig_TracingServiceName) string {
	if how == meshconfig.ProxyConfig_CANONICAL_NAME_ONLY || s.Service == "" || s.Namespace == "" {
		return s.Service
	}
	return s.Service + "." + s.Namespace
}

// withOwn adds the tags to those that a mesh names, sorted by name. One that the mesh names itself is the mesh's.
func (s SpanTags) withOwn(tags []*tracingv3.CustomTag) []*tracingv3.CustomTag {
	for _, own := range [...]struct{ name, value string }{
		{"istio.canonical_revision", cmp.Or(s.Revision, "latest")}, {"istio.canonical_service", cmp.Or(s.Service, "unknown")},
		{"istio.cluster_id", cmp.Or(s.Cluster, "unknown")}, {"istio.mesh_id", cmp.Or(s.Mesh, "unknown")}, {"istio.namespace", cmp.Or(s.Namespace, "default")},
	} {
		if !slices.ContainsFunc(tags, func(t *tracingv3.CustomTag) bool { return t.Tag == own.name }) {
			tags = append(tags, &tracingv3.CustomTag{Tag: own.name, Type: literalTag(own.value)})
		}
	}
	slices.SortFunc(tags, func(a, b *tracingv3.CustomTag) int { return strings.Compare(a.Tag, b.Tag) })
	return tags
}
