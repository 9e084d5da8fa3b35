package analysis

import (
	"fmt"
	"slices"
	"strings"

	meshconfig "istio.io/api/mesh/v1alpha1"
	telemetry "istio.io/api/telemetry/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// use is what a provider may be named for.
type use struct {
	what   string
	kinds  []string // of providers that can do it, as fields of MeshConfig.extensionProviders
	absent []string // those that could, and are not served
}

var (
	traces  = use{"traced", []string{"opentelemetry", "skywalking"}, []string{"zipkin", "lightstep", "datadog", "stackdriver", "opencensus"}}
	metrics = use{"counted", []string{"prometheus"}, []string{"stackdriver"}}
	logs    = use{"logged", []string{"envoyFileAccessLog", "envoyHttpAls", "envoyTcpAls", "envoyOtelAls"}, []string{"stackdriver"}}
)

// providers tells of names of providers that MeshConfig does not have or that are for something else, and of providers whose
// service is not there.
func (a *analysis) providers() {
	for _, c := range a.pc.Configs {
		switch spec := c.Spec.(type) {
		case *telemetry.Telemetry:
			for i, e := range spec.Tracing {
				a.named(c, fmt.Sprintf("tracing[%d].providers", i), refs(e.Providers), traces)
			}
			for i, e := range spec.Metrics {
				a.named(c, fmt.Sprintf("metrics[%d].providers", i), refs(e.Providers), metrics)
			}
			for i, e := range spec.AccessLogging {
				a.named(c, fmt.Sprintf("accessLogging[%d].providers", i), refs(e.Providers), logs)
			}
		case *meshconfig.MeshConfig:
			d := spec.GetDefaultProviders()
			a.named(c, "defaultProviders.tracing", d.GetTracing(), traces)
			a.named(c, "defaultProviders.metrics", d.GetMetrics(), metrics)
			a.named(c, "defaultProviders.accessLogging", d.GetAccessLogging(), logs)
			a.collectors(c, spec)
		}
	}
}

func refs(list []*telemetry.ProviderRef) (out []string) {
	for _, p := range list {
		out = append(out, p.GetName())
	}
	return out
}

func (a *analysis) named(c *model.Config, field string, names []string, u use) {
	for i, name := range names {
		if name == "" || a.pc.Mesh == nil {
			continue // told of the object itself
		}
		f := model.Finding{Code: CodeIneffective, Severity: model.SeverityWarning, Field: fmt.Sprintf("%s[%d]", field, i)}
		p := a.pc.Mesh.Provider(name)
		switch kind, _ := providerKind(p); {
		case p == nil:
			f.Code, f.Severity = CodeUnknownProvider, model.SeverityError
			f.Message = fmt.Sprintf("MeshConfig has no provider %s among its extensionProviders: mend the name, or add it there", name)
		case slices.Contains(u.kinds, kind):
			continue
		default:
			if slices.Contains(u.absent, kind) {
				f.Code = CodeNotServed
			}
			f.Message = fmt.Sprintf("the provider %s is of the kind %s, with which nothing is %s here: name one of %s", name, kind, u.what, strings.Join(u.kinds, ", "))
		}
		a.add(c.Source, f)
	}
}

// providerKind gives the field of MeshConfig.extensionProviders that a provider is in, and its message.
func providerKind(p *meshconfig.MeshConfig_ExtensionProvider) (string, any) {
	if p == nil {
		return "", nil
	}
	m := p.ProtoReflect()
	f := m.WhichOneof(m.Descriptor().Oneofs().ByName("provider"))
	if f == nil {
		return "none", nil
	}
	return f.JSONName(), m.Get(f).Message().Interface()
}

// collectors tells of services that providers of kinds that are served report to and that are not there.
func (a *analysis) collectors(c *model.Config, m *meshconfig.MeshConfig) {
	for i, p := range m.GetExtensionProviders() {
		kind, message := providerKind(p)
		to, ok := message.(interface {
			GetService() string
			GetPort() uint32
		})
		if !ok || !slices.Contains(slices.Concat(traces.kinds, metrics.kinds, logs.kinds), kind) {
			continue
		}
		a.collector(c, fmt.Sprintf("extensionProviders[%d].%s.", i, kind), to.GetService(), to.GetPort())
	}
}

func (a *analysis) collector(c *model.Config, field, service string, port uint32) {
	_, host, both := strings.Cut(service, "/")
	if !both {
		host = service
	}
	h := a.host(strings.TrimSuffix(host, "."))
	why, _ := a.absent(strings.TrimSuffix(host, "."), "nothing is reported to it; mend the name, or add a Service or ServiceEntry")
	switch {
	case host == "":
		a.add(c.Source, model.Finding{Code: CodeUnknownHost, Severity: model.SeverityWarning, Field: field + "service", Message: "it names no host: nothing is reported to it"})
	case h == nil:
		a.add(c.Source, model.Finding{Code: CodeUnknownHost, Severity: model.SeverityWarning, Field: field + "service",
			Message: fmt.Sprintf("no service has the host %q: %s", host, why)})
	case !slices.ContainsFunc(h.Services, func(s *pushcontext.ServiceView) bool { return port < 1<<16 && has(s.Shape, uint16(port)) }):
		a.add(c.Source, model.Finding{Code: CodeUnknownPort, Severity: model.SeverityWarning, Field: field + "port",
			Message: fmt.Sprintf("the service %s has no port %d: nothing is reported to it; its ports are %s", host, port, portsText(h.Services[0].Shape))})
	}
}

func has(s *pushcontext.ShapeView, port uint16) bool {
	_, ok := s.PortNumbered(port)
	return ok
}
