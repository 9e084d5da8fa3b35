package kube

import (
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

func TestSourcesOfConfiguration(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{ // "" = it is read
		"{address: 'xds://hub:15010'}": "",
		"{address: 'xds://hub:15010', tlsSettings: {mode: SIMPLE, caCertificates: ca.pem}}":          "",
		"{address: 'xds://hub:1', tlsSettings: {mode: MUTUAL, clientCertificate: c, privateKey: k}}": "",
		"{address: 'xds://[fd00::1]:15010/'}":                                                        "",
		"{address: 'xds://hub'}":                                                                     "it has no port",
		"{address: 'xds://[fd00::1]'}":                                                               "it has no port",
		"{address: 'xds://fd00::1:15010'}":                                                           "brackets",
		"{address: 'k8s://'}":                                                                        "--config-from",
		"{address: 'fs:///etc/x'}":                                                                   "--dir",
		"{}":                                                                                         "only servers of MCP",
		"{address: 'xds://hub:1', tlsSettings: {mode: ISTIO_MUTUAL}}":                                "no certificates of the mesh",
		"{address: 'xds://hub:1', tlsSettings: {mode: SIMPLE, credentialName: ca}}":                  "Secrets are not read for it",
		"{address: 'xds://hub:1', tlsSettings: {mode: SIMPLE, caCertCredentialName: ca}}":            "Secrets are not read for it",
		"{address: 'xds://hub:1', tlsSettings: {mode: MUTUAL, clientCertificate: c}}":                "MUTUAL needs",
	} {
		s, faults, warnings := ParseMesh(model.ConfigMesh, []byte("trustDomain: mesh.test\nconfigSources: ["+source+"]\n"))
		if s == nil || len(faults) > 0 {
			t.Errorf("%s: faults %v", source, faults)
			continue
		}
		i := slices.IndexFunc(warnings, func(f Fault) bool { return strings.Contains(f.Reason, "is not read") })
		switch {
		case want == "" && i >= 0:
			t.Errorf("%s: %s", source, warnings[i].Reason)
		case want != "" && (i < 0 || !strings.Contains(warnings[i].Reason, want) || warnings[i].Line != 2):
			t.Errorf("%s: warnings %v, want one at line 2 with %q", source, warnings, want)
		}
	}
}
