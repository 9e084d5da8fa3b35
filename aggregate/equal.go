package aggregate

import (
	"maps"
	"slices"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// sameShape reports whether a shape made under the same settings with shared endpoint pointers has
// the content of its predecessor.
func sameShape(a, b *pushcontext.ShapeView) bool {
	return a.Mesh == b.Mesh && samePorts(a.Inline, b.Inline) && sameDefinition(a, b)
}

// sameShapeContent is sameShape for shapes that share nothing.
func sameShapeContent(a, b *pushcontext.ShapeView) bool {
	return samePortContent(a.Inline, b.Inline) && sameDefinition(a, b)
}

// sameDefinition compares all but endpoints and settings. Revisions of sources do not count.
func sameDefinition(a, b *pushcontext.ShapeView) bool {
	return a.Key == b.Key && a.Name == b.Name && a.Resolution == b.Resolution && a.External == b.External &&
		a.Traffic == b.Traffic && a.NodeLocal == b.NodeLocal && a.PublishNotReady == b.PublishNotReady && a.Persistent == b.Persistent && a.OwnPorts == b.OwnPorts &&
		a.Created.Equal(b.Created) && a.Native == b.Native && a.MeshAddresses == b.MeshAddresses && a.AutoAddresses == b.AutoAddresses && a.Networks.Equal(b.Networks) && slices.EqualFunc(a.Policies, b.Policies, samePolicy) && slices.EqualFunc(a.VirtualServices, b.VirtualServices, sameRoute) &&
		slices.Equal(a.Ports, b.Ports) && slices.Equal(a.MutualPorts, b.MutualPorts) && a.Alias == b.Alias && sameAliases(a.Aliases, b.Aliases) && a.Export.Equal(b.Export) && slices.Equal(a.ServiceAccounts, b.ServiceAccounts) &&
		maps.EqualFunc(a.Addresses, b.Addresses, slices.Equal) && a.Federation.Equal(b.Federation) &&
		slices.EqualFunc(a.Contributions, b.Contributions, sameContribution) && slices.EqualFunc(a.Conflicts, b.Conflicts, sameConflict)
}

func sameContribution(a, b pushcontext.Contribution) bool {
	return a.Won == b.Won && a.Generation == b.Generation && sameSource(&a.Source, &b.Source)
}

func sameConflict(a, b pushcontext.Conflict) bool {
	return a.Field == b.Field && a.Detail == b.Detail && a.At == b.At && sameSource(&a.Winner, &b.Winner) && sameSource(&a.Loser, &b.Loser)
}

// sameEndpoints reports whether two views list the same endpoints, by pointer: equal ones share it.
func sameEndpoints(a, b *pushcontext.ServiceView) bool {
	return samePorts(a.Endpoints, b.Endpoints) && a.Networks.Equal(b.Networks) && slices.Equal(a.Demoted, b.Demoted) && slices.EqualFunc(a.LeftOut, b.LeftOut, sameLeftOut) &&
		pushcontext.SameStates(a.Sources, b.Sources)
}

// sameServed reports whether two views differ in nothing that a proxy is sent.
func sameServed(a, b *pushcontext.ServiceView) bool {
	return a.Shape == b.Shape && samePorts(a.Endpoints, b.Endpoints) && a.Networks.Equal(b.Networks) && slices.Equal(a.Demoted, b.Demoted)
}

func samePorts(a, b []pushcontext.PortEndpoints) bool {
	return equalPorts(a, b, func(a, b *model.Endpoint) bool { return a == b })
}

func samePortContent(a, b []pushcontext.PortEndpoints) bool {
	return equalPorts(a, b, func(a, b *model.Endpoint) bool {
		return a.Addr == b.Addr && candidate{ep: a, port: a.PortName, part: a.Part, network: a.Network, mtls: a.MTLS, mtlsBy: a.MTLSSource, other: a.OtherMTLS, source: a.Source}.equal(b)
	})
}

func equalPorts(a, b []pushcontext.PortEndpoints, same func(a, b *model.Endpoint) bool) bool {
	return slices.EqualFunc(a, b, func(a, b pushcontext.PortEndpoints) bool {
		return a.Port == b.Port && slices.EqualFunc(a.Localities, b.Localities, func(a, b pushcontext.LocalityEndpoints) bool {
			return a.Locality == b.Locality && slices.EqualFunc(a.Endpoints, b.Endpoints, same)
		})
	})
}

func sameLeftOut(a, b model.LeftOut) bool {
	return a.Addr == b.Addr && a.Port == b.Port && a.Reason == b.Reason && a.Detail == b.Detail && sameSource(&a.Source, &b.Source)
}
