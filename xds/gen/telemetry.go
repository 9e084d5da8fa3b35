package gen

import (
	"slices"

	telemetryv1 "istio.io/api/telemetry/v1alpha1"

	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// Telemetry objects say by the names of MeshConfig's extensionProviders what proxies report, and to whom. What is said to
// fewer workloads goes before what is said to more; entries of one object go in their order.

// loggingTo is what a provider is told of requests and connections.
type loggingTo struct {
	provider string // legacyLog stands for MeshConfig.accessLogFile
	disabled bool
	filter   string // an expression in CEL; "" for everything
}

// legacyLog is the provider of meshes that name no other. No provider has its name.
const legacyLog = ""

// loggingOf gives what is logged in a direction, in the order of the providers.
func loggingOf(c Class, m *pushcontext.MeshView, d direction) (out []loggingTo) {
	entries := loggingEntries(c, d)
	parents := m.Config.GetDefaultProviders().GetAccessLogging()
	if len(parents) == 0 {
		parents = []string{legacyLog}
	}
	names := parents
	for _, list := range entries {
		if own := providersOf(list); len(own) > 0 {
			names = own
		}
	}
	for _, n := range names {
		if !slices.ContainsFunc(out, func(l loggingTo) bool { return l.provider == n }) {
			out = append(out, loggingTo{provider: n})
		}
	}
	for _, list := range entries {
		for _, e := range list {
			if own := refNames(e.Providers); len(own) > 0 {
				parents = own
			}
			for i := range out {
				if slices.Contains(parents, out[i].provider) {
					out[i].disabled, out[i].filter = e.GetDisabled().GetValue(), e.GetFilter().GetExpression()
				}
			}
		}
	}
	return out
}

// loggingEntries are those for a direction, of each object that has some.
func loggingEntries(c Class, d direction) (out [][]*telemetryv1.AccessLogging) {
	if c.Scope == nil {
		return nil
	}
	for _, t := range c.Scope.Telemetry {
		list := slices.DeleteFunc(slices.Clone(t.Spec.GetAccessLogging()), func(e *telemetryv1.AccessLogging) bool {
			return !forDirection(e.GetMatch().GetMode(), d)
		})
		if len(list) > 0 {
			out = append(out, list)
		}
	}
	return out
}

// forDirection reports whether a mode takes the direction in: the client's side is outbound.
func forDirection(m telemetryv1.WorkloadMode, d direction) bool {
	switch m {
	case telemetryv1.WorkloadMode_CLIENT:
		return d == outbound
	case telemetryv1.WorkloadMode_SERVER:
		return d == inbound
	}
	return true
}

func providersOf(list []*telemetryv1.AccessLogging) (out []string) {
	for _, e := range list {
		out = append(out, refNames(e.Providers)...)
	}
	return out
}

func refNames(list []*telemetryv1.ProviderRef) (out []string) {
	for _, p := range list {
		if p.GetName() != "" {
			out = append(out, p.Name)
		}
	}
	return out
}
