package gen

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// tlsMode is how proxies secure connections to a service port.
type tlsMode uint8

const (
	tlsOff    tlsMode = iota // cleartext
	tlsAuto                  // mutual TLS with endpoints that speak it, cleartext with others
	tlsMutual                // mutual TLS with every endpoint
	tlsOwn                   // as a DestinationRule says: not the mesh's own
)

// secured gives the mode in which proxies call a destination: what the DestinationRule in force says, else
// automatic mutual TLS unless the mesh turns it off or the service is outside of it.
func (d destination) secured() tlsMode {
	switch t := d.rule.tls; {
	case t != nil && t.Mode == networking.ClientTLSSettings_DISABLE:
		return tlsOff
	case t != nil && t.Mode == networking.ClientTLSSettings_ISTIO_MUTUAL:
		return tlsMutual
	case t != nil:
		return tlsOwn
	case d.shape.External, !autoMTLS(d.shape.Mesh):
		return tlsOff
	}
	return tlsAuto
}

func autoMTLS(m *pushcontext.MeshView) bool {
	return m.Config.GetEnableAutoMtls() == nil || m.Config.GetEnableAutoMtls().Value
}

// speaksMutual reports whether the endpoint takes mutual TLS: its workload says so, and no
// PeerAuthentication turns it off.
func speaksMutual(e *model.Endpoint) bool {
	return e.TLSMode == model.TLSIstio && e.MTLS != model.MTLSDisabled
}
