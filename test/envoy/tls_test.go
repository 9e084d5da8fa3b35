package envoy_test

import (
	"fmt"
	"testing"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/bootstrap"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// A DestinationRule says how a service is called: with whose certificate, under
// which name, and who may answer. What it demands and the proxy can't do leaves
// the service without endpoints.
func TestDestinationRuleTLS(t *testing.T) {
	modes(t, func(t *testing.T, sotw bool) {
		m := newMesh(t)
		authority := envoytest.StartAuthority(t)
		vault := service("vault", "10.96.0.1", "http", 8000)
		behind := m.backend(t, envoytest.HTTP1, "vault")
		at := m.lo.At(5, 1, 9443)
		forward(t, authority, at, behind.Addr, "vault.example")
		rule := func(tls string) string {
			return "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: vault, namespace: shop}\n" +
				"spec: {host: vault, trafficPolicy: {tls: " + tls + "}}"
		}
		c := authority.Issue(t, "caller", account("caller"))
		files := fmt.Sprintf("clientCertificate: %s, privateKey: %s, caCertificates: %s", c.Chain, c.Key, c.Root)
		m.start(t, map[string][]any{"east/all.yaml": {vault, slicesOf(vault, endpoint{addr: at})},
			"east/rule.yaml": {rule("{mode: MUTUAL, sni: vault.example, subjectAltNames: ['spiffe://test/gateway'], " + files + "}")}})
		p := m.launch(t, "client", bootstrap.Options{SotW: sotw})
		p.answers(t, host("vault"), 8000, "vault")
		for name, tls := range map[string]string{
			"in cleartext":          "{mode: DISABLE}",
			"without certificate":   "{mode: SIMPLE, sni: vault.example, caCertificates: " + c.Root + "}",
			"of another name":       "{mode: MUTUAL, sni: vault.example, subjectAltNames: [vault.example], " + files + "}",
			"by public authorities": "{mode: MUTUAL, sni: vault.example, clientCertificate: " + c.Chain + ", privateKey: " + c.Key + "}", // those of the system
			"by credential":         "{mode: MUTUAL, credentialName: vault}",
			"of the mesh":           "{mode: ISTIO_MUTUAL}", // it has no certificates
		} {
			t.Log(name)
			m.write(t, "east/rule.yaml", rule(tls))
			p.refuses(t, host("vault"), 8000, 503)
			m.write(t, "east/rule.yaml", rule("{mode: MUTUAL, sni: vault.example, "+files+"}"))
			p.answers(t, host("vault"), 8000, "vault")
		}
	})
}
