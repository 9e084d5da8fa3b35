package secrets

import (
	"fmt"
	"slices"
	"strings"
)

// Allow lists what a kubeconfig may use although it reaches out of the kubeconfig itself. The names are
// those that Istio's PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS takes, and two more.
type Allow []string

// What can be allowed.
const (
	AllowExec                 = "exec"                 // a program that is run for credentials
	AllowClientCertificate    = "clientCertificate"    // client-certificate: a file of the hub's machine
	AllowClientKey            = "clientKey"            // client-key: likewise
	AllowTokenFile            = "tokenFile"            // tokenFile: likewise
	AllowCertificateAuthority = "certificateAuthority" // certificate-authority: likewise, also that of an OIDC issuer
	AllowHTTP                 = "http"                 // an API server without TLS, which is sent no credential
)

// AllowNames lists what ParseAllow takes.
func AllowNames() []string {
	return []string{AllowExec, AllowClientCertificate, AllowClientKey, AllowTokenFile, AllowCertificateAuthority, AllowHTTP}
}

// ParseAllow reads a list separated by commas.
func ParseAllow(s string) (Allow, error) {
	var out Allow
	for name := range strings.SplitSeq(s, ",") {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
		case !slices.Contains(AllowNames(), name):
			return nil, fmt.Errorf("%q can't be allowed in a kubeconfig; what can: %s", name, strings.Join(AllowNames(), ", "))
		default:
			out = append(out, name)
		}
	}
	return out, nil
}

func (a Allow) has(name string) bool { return slices.Contains(a, name) }
