package client_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/mcp/client"
	"github.com/isthmus-mesh/isthmus/test/env"
)

// An istiod as in production tells its configuration over TLS, to callers of its root namespace that show a certificate of the mesh or a
// token of the API server. Others learn why they get nothing.
func TestRealIstiodAuthenticates(t *testing.T) {
	if testing.Short() {
		t.Skip("runs an API server and an istiod")
	}
	c := servers.Take(t, 1)[0]
	c.Apply(t, upstream("pay", 80, "{address: 10.1.0.1}"), routes)
	servants, mesh := newAuthority(t), newAuthority(t)
	cert, key := servants.pairOf(env.TrustDomain, env.RootNamespace, "istiod")
	i := c.SecureIstiod(t, env.ServerTLS{Cert: cert, Key: key, CA: mesh.pem()})

	verified := func() *client.TLS { return &client.TLS{CA: []byte(servants.pem()), ServerName: "istiod.test"} }
	with := func(by *authority, domain, namespace string) *client.TLS {
		o := verified()
		cert, key := by.pairOf(domain, namespace, "hub")
		o.Cert, o.Key = []byte(cert), []byte(key)
		return o
	}
	dir := t.TempDir()
	token := func(account, audience string) string {
		c.ServiceAccount(t, account)
		namespace, name, _ := strings.Cut(account, "/")
		r, err := c.Client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name,
			&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, name+"-"+audience)
		if err := os.WriteFile(file, []byte(r.Status.Token), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for name, tc := range map[string]struct {
		tls   *client.TLS
		token string
		err   string // "" = it works
	}{
		"certificate":                     {tls: with(mesh, env.TrustDomain, env.RootNamespace)},
		"token":                           {tls: verified(), token: token(env.RootNamespace+"/hub", "istio-ca")},
		"neither":                         {tls: verified(), err: "authentication failure (Unauthenticated)"},
		"certificate of others":           {tls: with(servants, env.TrustDomain, env.RootNamespace), err: "certificate"},
		"certificate of another mesh":     {tls: with(mesh, "else.test", env.RootNamespace), err: "certificate"},
		"certificate of an application":   {tls: with(mesh, env.TrustDomain, "shop"), err: "(PermissionDenied)"},
		"token for another audience":      {tls: verified(), token: token(env.RootNamespace+"/hub", "else"), err: "authentication failure (Unauthenticated)"},
		"server with a name of others":    {tls: &client.TLS{CA: []byte(servants.pem()), ServerName: "else.test"}, err: "else.test"},
		"server of an unknown authority":  {tls: &client.TLS{CA: []byte(mesh.pem()), ServerName: "istiod.test"}, err: "unknown authority"},
		"plaintext to the encrypted port": {err: "(Unavailable)"},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, client.Options{Name: "upstream", Addresses: []string{i.Address}, TLS: tc.tls, TokenFile: tc.token, Timing: quick})
			defer r.stop()
			if tc.err == "" {
				r.host("pay.example.com", "10.1.0.1")
				r.config("VirtualService", "shop/pay")
				r.state(model.StateLive)
				return
			}
			r.await("the reason "+tc.err, func() bool { return strings.Contains(r.status.Err, tc.err) })
			t.Log(r.status.Err)
			if r.replaces != 0 {
				t.Errorf("%d rows", len(r.rows))
			}
		})
	}
}
