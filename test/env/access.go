package env

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// issuer is in every service account token.
const issuer = "https://kubernetes.default.svc"

// shortestToken is what the TokenRequest API gives at least, in seconds.
const shortestToken = 600

// Kubeconfig is a kubeconfig for the API server with a bearer token.
func (c *Cluster) Kubeconfig(token string) []byte { return kubeconfig("test", c.URL, c.CA, token) }

func kubeconfig(name, url string, ca []byte, token string) []byte {
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters[name] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: ca}
	cfg.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	cfg.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	cfg.CurrentContext = name
	text, err := clientcmd.Write(*cfg)
	if err != nil {
		panic(err) // the config is ours and sound
	}
	return text
}

// ServiceAccount makes a service account, "namespace/name", and its namespace.
func (c *Cluster) ServiceAccount(t testing.TB, account string) {
	t.Helper()
	ns, name := split(account)
	c.Apply(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})
}

// Token is a token of a service account, "namespace/name". The server gives none
// that lives less than ten minutes: shorter ones are signed here, with its key.
// The server accepts a token for up to ten seconds after it has expired or was
// revoked, if it has seen it before.
func (c *Cluster) Token(t testing.TB, account string, expirySeconds int64) string {
	t.Helper()
	ns, name := split(account)
	if expirySeconds < shortestToken {
		return c.sign(t, ns, name, time.Duration(expirySeconds)*time.Second)
	}
	r, err := c.Client.CoreV1().ServiceAccounts(ns).CreateToken(t.Context(), name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &expirySeconds}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("token of %s: %v", account, err)
	}
	return r.Status.Token
}

func (c *Cluster) sign(t testing.TB, ns, name string, life time.Duration) string {
	t.Helper()
	sa, err := c.Client.CoreV1().ServiceAccounts(ns).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	token, err := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
		"iss": issuer, "aud": []string{issuer}, "sub": "system:serviceaccount:" + ns + ":" + name,
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(life).Unix(),
		"kubernetes.io": map[string]any{
			"namespace": ns, "serviceaccount": map[string]any{"name": name, "uid": string(sa.UID)},
		},
	}).SignedString(c.signer)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// Revoke makes all tokens of a service account invalid, for good, by making the
// account anew. Its rights stay.
func (c *Cluster) Revoke(t testing.TB, account string) {
	t.Helper()
	ns, name := split(account)
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	c.Delete(t, sa)
	c.Apply(t, sa)
}

// Grant gives a service account, "namespace/name", rights in the whole cluster,
// which replace those of an earlier Grant.
func (c *Cluster) Grant(t testing.TB, account string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	name := strings.ReplaceAll(account, "/", "-")
	c.Apply(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules})
	c.Bind(t, account, name)
	c.awaitRules(t, account, rules)
}

// Bind gives a service account a cluster role.
func (c *Cluster) Bind(t testing.TB, account, clusterRole string) {
	t.Helper()
	ns, name := split(account)
	c.Apply(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: ns + "-" + name + "-" + clusterRole},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterRole},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: name}},
	})
}

// Reader is a rule that allows to read resources, each "resource" or
// "resource.group".
func Reader(resources ...string) rbacv1.PolicyRule {
	r := rbacv1.PolicyRule{Verbs: []string{"get", "list", "watch"}}
	for _, name := range resources {
		resource, group, _ := strings.Cut(name, ".")
		r.Resources = append(r.Resources, resource)
		r.APIGroups = append(r.APIGroups, group)
	}
	return r
}

// Everything is a rule that allows to read all kinds.
func Everything() rbacv1.PolicyRule { return Reader("*.*") }

// split takes "namespace/name" apart.
func split(id string) (namespace, name string) {
	namespace, name, ok := strings.Cut(id, "/")
	if !ok {
		return metav1.NamespaceDefault, id
	}
	return namespace, name
}

// awaitRules waits until the authorizer, which follows a watch, knows the rights.
func (c *Cluster) awaitRules(t testing.TB, account string, rules []rbacv1.PolicyRule) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kindLimit)
	defer cancel()
	if err := c.awaitAccess(ctx, account, rules); err != nil {
		t.Fatalf("rights of %s: %v", account, err)
	}
}

// awaitAccess asks for the first thing that each rule allows.
func (c *Cluster) awaitAccess(ctx context.Context, account string, rules []rbacv1.PolicyRule) error {
	ns, name := split(account)
	return envoytest.Poll(ctx, func() error {
		for _, r := range rules {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "system:serviceaccount:" + ns + ":" + name,
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: r.Verbs[0], Group: r.APIGroups[0], Resource: r.Resources[0],
				},
			}}
			got, err := c.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			if !got.Status.Allowed {
				return fmt.Errorf("%s %s is not allowed yet", r.Verbs[0], r.Resources[0])
			}
		}
		return nil
	})
}
