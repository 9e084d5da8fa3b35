package analysis

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// Federated gives the service that a FederatedService makes; nil if the object is not in force.
func Federated(pc *pushcontext.PushContext, c *model.Config) *pushcontext.ServiceView {
	spec, ok := c.Spec.(*api.FederatedServiceSpec)
	if !ok {
		return nil
	}
	h := pc.Host(strings.TrimSuffix(spec.Host, "."))
	if h == nil {
		return nil
	}
	for _, v := range h.Services {
		if f := v.Shape.Federation; f != nil && f.Source.Shard == c.Source.Shard && f.Source.Object == c.Source.Object {
			return v
		}
	}
	return nil
}

// FederatedStatus gives what the hub makes of a FederatedService. Conditions have no times.
func FederatedStatus(pc *pushcontext.PushContext, c *model.Config) api.FederatedServiceStatus {
	out := api.FederatedServiceStatus{ObservedGeneration: c.Generation}
	v := Federated(pc, c)
	accepted := metav1.Condition{Type: "Accepted", Status: metav1.ConditionTrue, Reason: "Accepted", ObservedGeneration: c.Generation}
	switch {
	case c.Refused:
		accepted.Status, accepted.Reason, accepted.Message = metav1.ConditionFalse, "Invalid", refusal(c)
	case v == nil:
		accepted.Status, accepted.Reason, accepted.Message = metav1.ConditionFalse, "Conflict", unused(pc, c)
	}
	out.Conditions = []metav1.Condition{accepted}
	if v == nil {
		return out
	}
	out.Sources = Sources(pc, v)
	return out
}

func refusal(c *model.Config) string {
	for _, f := range c.Findings {
		if f.Severity == model.SeverityError {
			return strings.TrimPrefix(f.Field+": "+f.Message, ": ")
		}
	}
	return "it has an error"
}

// unused says what is in force in the place of an object.
func unused(pc *pushcontext.PushContext, c *model.Config) string {
	for _, x := range pc.Conflicts {
		if x.Loser.Shard == c.Source.Shard && x.Loser.Object == c.Source.Object {
			return x.Detail + ": " + x.Winner.Object.String() + " of " + x.Winner.Shard.String()
		}
	}
	return "it is not in force"
}

// Sources gives the state of each source of a FederatedService's service; nil of another service.
func Sources(pc *pushcontext.PushContext, v *pushcontext.ServiceView) []api.SourceStatus {
	f := v.Shape.Federation
	if f == nil {
		return nil
	}
	out := make([]api.SourceStatus, len(f.Sources))
	stale := make([][]string, len(out))
	for i, s := range f.Sources {
		out[i] = api.SourceStatus{Name: s.Name, Priority: s.Priority}
	}
	for e, healthy := range instances(v) {
		if s := int(e.Part) - 1; s >= 0 && s < len(out) {
			out[s].Endpoints++
			if healthy {
				out[s].Healthy++
			}
			if e.Source == nil || !outOfContact(pc, e.Source.Shard) {
				continue
			}
			if note := e.Source.Shard.String() + " is out of contact: its endpoints are those that were known last"; !slices.Contains(stale[s], note) {
				stale[s] = append(stale[s], note)
			}
		}
	}
	for i := range out {
		if out[i].Endpoints == 0 {
			stale[i] = lacking(pc, &f.Sources[i])
		}
		out[i].Reason = reasonOf(&out[i], v.Sources[i], stale[i])
	}
	return out
}

// reasonOf says why a source gives nothing, or nothing that can be relied on; notes say more of registries.
func reasonOf(s *api.SourceStatus, state pushcontext.SourceState, notes []string) string {
	var out []string
	switch {
	case state.Reason != "":
		out = append(out, strings.TrimSuffix(string(state.Reason)+": "+state.Detail, ": "))
	case s.Healthy == 0:
		out = append(out, string(model.ReasonUnready)+": none of its endpoints is healthy")
	}
	slices.Sort(notes)
	return strings.Join(append(out, notes...), "; ")
}

func outOfContact(pc *pushcontext.PushContext, k model.ShardKey) bool {
	return slices.ContainsFunc(pc.Shards, func(s pushcontext.ShardInfo) bool { return s.Key == k && s.Status.State == model.StateStale })
}

// instances yields one endpoint for each address of a service, and whether it is healthy behind some port.
func instances(v *pushcontext.ServiceView) map[*model.Endpoint]bool {
	type place struct {
		cluster model.ClusterID
		at      string
		part    uint16
	}
	first, out := map[place]*model.Endpoint{}, map[*model.Endpoint]bool{}
	for _, p := range v.Endpoints {
		for _, l := range p.Localities {
			for _, e := range l.Endpoints {
				k := place{e.Addr.Cluster, e.Addr.Host, e.Part}
				switch a := e.Addr.AddrPort.Addr(); {
				case a.IsValid():
					k.at = a.String()
				case k.at == "": // only its gateway has an address
					k.at = e.Workload.String()
				}
				if first[k] == nil {
					first[k] = e
				}
				out[first[k]] = out[first[k]] || e.Health == model.Healthy
			}
		}
	}
	return out
}

// lacking says which of the registries that a source takes are out of contact, have said nothing yet, or are not there.
func lacking(pc *pushcontext.PushContext, s *pushcontext.FederationSource) (out []string) {
	for _, shard := range pc.Shards {
		switch {
		case shard.Key.Provider.OfHub() || !s.Takes(shard.Key):
		case !shard.Synced:
			out = append(out, shard.Key.String()+" has not been read yet")
		case shard.Status.State == model.StateStale:
			out = append(out, shard.Key.String()+" is out of contact")
		}
	}
	for _, p := range s.Registries {
		if !slices.ContainsFunc(pc.Shards, func(shard pushcontext.ShardInfo) bool { return pushcontext.RegistryMatches(p, shard.Key) }) {
			out = append(out, "there is no registry "+p)
		}
	}
	return out
}

// federated tells of FederatedServices that do not give what they seem to.
func (a *analysis) federated() {
	for _, c := range a.pc.Configs {
		if c.Kind != model.ConfigFederatedService {
			continue
		}
		v := Federated(a.pc, c)
		if v == nil {
			continue // what is in force in its place is a conflict
		}
		for i := range v.Sources {
			a.source(c.Source, v, i)
		}
		if len(v.Endpoints) == 0 {
			a.add(c.Source, model.Finding{Code: CodeNoEndpoints, Severity: model.SeverityWarning, Field: "sources",
				Message: fmt.Sprintf("no source of %s gives an endpoint: requests to it fail with 503", v.Shape.Key.Host)})
		}
		a.elsewhere(c.Source, v)
		a.ineffective(v)
	}
}

// source tells what a source lacks.
func (a *analysis) source(of model.Source, v *pushcontext.ServiceView, i int) {
	s, field := v.Sources[i], fmt.Sprintf("sources[%d]", i)
	tell := func(code string, severity model.Severity, at, message string) {
		a.add(of, model.Finding{Code: code, Severity: severity, Field: field + at, Message: message})
	}
	for _, p := range s.Unmapped {
		tell(CodeUnknownPort, model.SeverityWarning, ".ports", fmt.Sprintf("%s has no port for %s: name one under %q", v.Shape.Federation.Sources[i].Name, p, p))
	}
	for _, p := range s.Unlike {
		tell(CodeOtherProtocol, model.SeverityWarning, ".ports", fmt.Sprintf("%s says another protocol for %s than the service does: proxies speak the service's with it; "+
			"map a port that does under %q, or write there the protocol that it really speaks", v.Shape.Federation.Sources[i].Name, p, p))
	}
	switch s.Reason {
	case "", model.ReasonNoPort:
	case model.ReasonNoService:
		tell(CodeUnknownHost, model.SeverityWarning, ".host", s.Detail+a.unreadOf(&v.Shape.Federation.Sources[i]))
	case model.ReasonHidden:
		tell(CodeNotExported, model.SeverityError, ".host", s.Detail)
	case model.ReasonNoEndpoints:
		tell(CodeSourceEmpty, model.SeverityInfo, "", s.Detail)
	case model.ReasonZeroWeight: // as it is written
	default:
		tell(CodeSourceEmpty, model.SeverityWarning, "", strings.TrimPrefix(s.Detail+" ("+string(s.Reason)+")", " "))
	}
}

// unreadOf says which registries that may have a source have not been read.
func (a *analysis) unreadOf(s *pushcontext.FederationSource) string {
	names := slices.DeleteFunc(slices.Clone(s.Registries), a.read)
	if len(s.Registries) == 0 && a.mayBeOf(s.Host) != "" {
		names = []string{a.mayBeOf(s.Host)}
	}
	if len(names) == 0 {
		return ""
	}
	return ": " + a.mayBe(strings.Join(names, " or "))
}

// elsewhere tells of readers to whom the host means another service.
func (a *analysis) elsewhere(of model.Source, v *pushcontext.ServiceView) {
	tell := func(format string, args ...any) {
		a.add(of, model.Finding{Code: CodeHostElsewhere, Severity: model.SeverityWarning, Field: "host", Message: fmt.Sprintf(format, args...)})
	}
	for _, other := range a.pc.Host(v.Shape.Key.Host).Services {
		k := other.Shape.Key
		switch {
		case other == v:
			return // the rest comes after it
		case k.Cluster != "":
			tell("proxies of %s reach the service of their own cluster by the host %s, which is kept to it", k.Cluster, k.Host)
		default:
			tell("proxies of other namespaces reach the service of the namespace %s by the host %s", k.Namespace, k.Host)
		}
	}
}

// ineffective tells of fields of DestinationRules that shares of sources, or their order, leave nothing to.
func (a *analysis) ineffective(v *pushcontext.ServiceView) {
	if v.Shape.Federation.Policy == pushcontext.FederateUnion {
		return
	}
	for _, p := range v.Shape.Policies {
		t := p.Spec.GetTrafficPolicy()
		tell := func(field, why string) {
			a.add(p.Source, model.Finding{Code: CodeIneffective, Severity: model.SeverityInfo, Field: "trafficPolicy." + field,
				Message: fmt.Sprintf("it does nothing for %s: %s", v.Shape.Key.Host, why)})
		}
		if v.Shape.Federation.Policy == pushcontext.FederateWeighted && len(t.GetLoadBalancer().GetLocalityLbSetting().GetDistribute()) > 0 {
			tell("loadBalancer.localityLbSetting.distribute", "the weights of its sources decide")
		}
		if t.GetOutlierDetection().GetMinHealthPercent() > 0 {
			tell("outlierDetection.minHealthPercent", "proxies are sent all endpoints, to know when a source has too few that are healthy")
		}
	}
}
