package analysis

import (
	"cmp"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// Codes of findings about objects together; those of single objects are in clusters/kube/validate. They are stable.
const (
	CodeNotServed       = "NotServed"       // a field, or the whole object, has no effect in this version
	CodeRefused         = "Refused"         // an older version of the object is in force
	CodeConflict        = "Conflict"        // another object is used instead of it, or of a part of it
	CodeUnknownHost     = "UnknownHost"     // no service has the host
	CodeTooManyServers  = "TooManyServers"  // there are more servers of Gateways than are served
	CodeNotExported     = "NotExported"     // a service has the host, but is not exported to the namespace
	CodeUnknownPort     = "UnknownPort"     // the service has no such port
	CodeUnknownSubset   = "UnknownSubset"   // no DestinationRule has such a subset
	CodeEmptySubset     = "EmptySubset"     // no endpoint has the labels of the subset
	CodeUnknownDelegate = "UnknownDelegate" // there is no such VirtualService to delegate to
	CodeUnknownGate     = "UnknownGateway"  // there is no such Gateway
	CodeHostNotThere    = "HostNotOnGateway"
	CodeUnclaimed       = "HostOfNoService" // routes for a host that no service has: sidecars serve it at port 80
	CodeUnknownProvider = "UnknownProvider" // MeshConfig has no such provider
	CodeNoImport        = "ImportsNothing"  // a Sidecar imports a host that no service has
	CodeNoEndpoints     = "NoEndpoints"     // a ServiceEntry with endpoints to be selected, or a FederatedService, has none
	CodeOtherProtocol   = "OtherProtocol"   // a source of a FederatedService speaks another protocol than the service
	CodeSourceEmpty     = "SourceEmpty"     // a source of a FederatedService gives no endpoint
	CodeHostElsewhere   = "HostElsewhere"   // to some proxies the host of a FederatedService means another service
	CodeIneffective     = "Ineffective"     // the field does nothing beside others that there are
	CodeNoRoutes        = "NoRoutes"        // a server of a Gateway for which no VirtualService has routes
	CodePortConflict    = "PortConflict"    // two servers can't share a port
	CodeNoWorkload      = "NoWorkload"      // no workload of a service has the labels of a selector
	CodeRefusedTLS      = "RefusedTLS"      // workloads demand other TLS than the rule has proxies speak
	CodeAddressTaken    = "AddressTaken"    // a Service has the address of a ServiceEntry
	CodeHostTaken       = "HostTaken"       // another server with TLS has the host at the port
)

// Finding is something about one object, and where the object is from.
type Finding struct {
	model.Finding
	Source model.Source
}

// Findings gives all findings of a snapshot, by object, those of one object by severity.
func Findings(pc *pushcontext.PushContext) []Finding {
	return (&analysis{pc: pc}).all()
}

// Offline gives the findings of a snapshot that was made without any foreign registry: what these alone could have is no error.
func Offline(pc *pushcontext.PushContext) []Finding {
	return (&analysis{pc: pc, offline: true}).all()
}

func (a *analysis) all() []Finding {
	for _, look := range []func(){a.objects, a.conflicts, a.virtualServices, a.destinationRules, a.gateways, a.sidecars, a.selectors, a.addresses, a.providers, a.services, a.federated} {
		look()
	}
	slices.SortFunc(a.found, compare)
	return slices.CompactFunc(a.found, func(x, y Finding) bool { return compare(x, y) == 0 })
}

func compare(x, y Finding) int {
	return cmp.Or(
		strings.Compare(x.Object.Kind, y.Object.Kind), strings.Compare(x.Object.Namespace, y.Object.Namespace), strings.Compare(x.Object.Name, y.Object.Name),
		x.Source.Shard.Compare(y.Source.Shard), cmp.Compare(y.Severity, x.Severity), strings.Compare(x.Field, y.Field), strings.Compare(x.Code, y.Code), strings.Compare(x.Message, y.Message),
	)
}

// analysis collects the findings of one snapshot.
type analysis struct {
	pc       *pushcontext.PushContext
	offline  bool // foreign registries are not read
	guesses  int  // how often another host was looked for
	found    []Finding
	unread   []unread // foreign registries of which nothing is known; made once they are looked for
	looked   bool
	capitals map[string]*pushcontext.HostView // hosts that have some, by their name in lower case; made once one is asked for
	byName   map[string][]*model.Config       // objects by "kind/namespace/name"; made once one is asked for
}

// host gives the services of a host as objects name it: case does not count.
func (a *analysis) host(name string) *pushcontext.HostView {
	lower := strings.ToLower(name)
	if h := cmp.Or(a.pc.Host(name), a.pc.Host(lower)); h != nil {
		return h
	}
	if a.capitals == nil {
		a.capitals = map[string]*pushcontext.HostView{}
		for host, h := range a.pc.Hosts() {
			if lower := strings.ToLower(host); lower != host {
				a.capitals[lower] = h
			}
		}
	}
	return a.capitals[lower]
}

func (a *analysis) add(of model.Source, f model.Finding) {
	f.Object = of.Object
	a.found = append(a.found, Finding{Finding: f, Source: of})
}

// objects tells what is known of objects on their own.
func (a *analysis) objects() {
	for _, c := range a.pc.Configs {
		for _, f := range c.Findings {
			a.add(c.Source, f)
		}
		if c.Refused {
			message := "it has an error and is not in force: mend it"
			if c.Spec != nil {
				message = "it has an error; the version before it stays in force until it is mended"
			}
			a.add(c.Source, model.Finding{Code: CodeRefused, Severity: model.SeverityError, Message: message})
		}
		if c.NotServed {
			a.add(c.Source, model.Finding{Code: CodeNotServed, Severity: model.SeverityWarning, Message: "objects of this kind have no effect in this version, or not as this one is written"})
		}
		for _, field := range c.NotServedFields {
			if slices.ContainsFunc(c.Findings, func(f model.Finding) bool { return f.Code == CodeNotServed && f.Field == field }) {
				continue // told, with the reason
			}
			a.add(c.Source, model.Finding{Code: CodeNotServed, Severity: model.SeverityWarning, Field: field, Message: "the field has no effect in this version"})
		}
	}
}

// conflicts tells who lost, and to whom.
func (a *analysis) conflicts() {
	tell := func(list []pushcontext.Conflict) {
		for _, c := range list {
			if strings.HasSuffix(c.At, ".delegate") {
				a.delegate(c)
				continue
			}
			a.add(c.Loser, model.Finding{Code: CodeConflict, Severity: model.SeverityWarning, Field: c.At, Message: conflictText(c)})
		}
	}
	tell(a.pc.Conflicts)
	for s := range a.pc.Services() {
		tell(s.Shape.Conflicts)
	}
}

// conflictText says what of an object is not used, and what is instead. Of services it is a part: they are one together.
func conflictText(c pushcontext.Conflict) string {
	winner := c.Winner.Object.String() + " of " + c.Winner.Shard.String()
	switch c.Field {
	case "ports", "resolution", "exportTo", "location":
		return winner + " is for the same host, and counts where they differ: " + c.Field + ": " + c.Detail
	}
	if c.Winner.Object == (model.ObjectKey{}) {
		return c.Detail
	}
	return c.Detail + "; " + winner + " is used"
}

// services tells of ServiceEntries that wait for endpoints.
func (a *analysis) services() {
	for s := range a.pc.Services() {
		if s.Shape.Native || s.Shape.Federation != nil || s.Shape.Resolution != model.ClientSideLB || len(s.Endpoints) > 0 {
			continue
		}
		for _, c := range s.Shape.Contributions {
			if c.Won && !a.reachesNothing(c.Source) {
				a.add(c.Source, model.Finding{Code: CodeNoEndpoints, Severity: model.SeverityWarning, Message: s.Shape.Key.Host + " has no endpoints: no workload of the namespace " +
					s.Shape.Key.Namespace + " has the labels of workloadSelector, or none of them can be used ('isthmus service explain' says why)"})
			}
		}
	}
}

// codeRequired is clusters/kube/validate's code of what is missing.
const codeRequired = "Required"

// reachesNothing reports whether it is said of a ServiceEntry already that it has neither endpoints nor a selector.
func (a *analysis) reachesNothing(of model.Source) bool {
	return slices.ContainsFunc(a.objectsNamed(of.Object.Kind, of.Object.Namespace+"/"+of.Object.Name), func(c *model.Config) bool {
		return c.Source.Shard == of.Shard && slices.ContainsFunc(c.Findings, func(f model.Finding) bool { return f.Code == codeRequired && f.Field == "resolution" })
	})
}
