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

// mutual gives the mode in which proxies of a namespace call a service port: what the DestinationRule in
// force says, else automatic mutual TLS unless the mesh turns it off or the service is outside of it.
func mutual(s *pushcontext.ShapeView, port model.Port, namespace string) tlsMode {
	switch t := clientTLS(s, port, namespace); {
	case t != nil && t.Mode == networking.ClientTLSSettings_DISABLE:
		return tlsOff
	case t != nil && t.Mode == networking.ClientTLSSettings_ISTIO_MUTUAL:
		return tlsMutual
	case t != nil:
		return tlsOwn
	case s.External, !autoMTLS(s.Mesh):
		return tlsOff
	}
	return tlsAuto
}

// clientTLS gives a DestinationRule's settings for a port, nil if there are none. Settings of a port
// replace all of the others.
func clientTLS(s *pushcontext.ShapeView, port model.Port, namespace string) *networking.ClientTLSSettings {
	if len(s.Policies) == 0 {
		return nil
	}
	p := s.Policy(namespace)
	if p == nil {
		return nil
	}
	t := p.Spec.GetTrafficPolicy()
	for _, l := range t.GetPortLevelSettings() {
		if l.GetPort().GetNumber() == uint32(port.Number) {
			return l.GetTls()
		}
	}
	return t.GetTls()
}

func autoMTLS(m *pushcontext.MeshView) bool {
	return m.Config.GetEnableAutoMtls() == nil || m.Config.GetEnableAutoMtls().Value
}

// speaksMutual reports whether the endpoint takes mutual TLS: its workload says so, and no
// PeerAuthentication turns it off.
func speaksMutual(e *model.Endpoint) bool {
	return e.TLSMode == model.TLSIstio && e.MTLS != model.MTLSDisabled
}
