package secrets_test

import (
	"context"
	"encoding/base64"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/isthmus-mesh/isthmus/secrets"
	"github.com/isthmus-mesh/isthmus/test/env"
)

// clientFor makes a client that is closed with the test.
func clientFor(t *testing.T, cfg *rest.Config) kubernetes.Interface {
	t.Helper()
	h, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.CloseIdleConnections)
	c, err := kubernetes.NewForConfigAndClient(cfg, h)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// remoteSecret is a Secret as istioctl writes it.
func remoteSecret(name, cluster string, kubeconfig []byte) string {
	return `{apiVersion: v1, kind: Secret, metadata: {name: ` + name + `, namespace: istio-system, labels: {istio/multiCluster: "true"},
annotations: {networking.istio.io/cluster: ` + cluster + `}}, data: {` + cluster + `: ` + base64.StdEncoding.EncodeToString(kubeconfig) + `}}`
}

// TestAPIServer: Secrets of a real API server, read with no right but to list and watch Secrets, with a token that
// the server refuses for a while. The kubeconfig in it opens the API server that it is about.
func TestAPIServer(t *testing.T) {
	t.Parallel()
	c := servers.Bare(t, 1)[0]
	c.ServiceAccount(t, "istio-system/hub")
	c.Grant(t, "istio-system/hub", env.Reader("secrets"))
	token, link := c.Token(t, "istio-system/hub", 3600), c.Link(t)
	c.Apply(t, remoteSecret("istio-remote-secret-east", "east", c.Kubeconfig(token)))
	contact := make(chan error, 99)
	w := follow(t, func(ctx context.Context, w *watch) error {
		return secrets.WatchSecrets(ctx, link.Config(token), secrets.SecretOptions{Namespace: "istio-system", OnContact: func(err error) { contact <- err }}, w.out(ctx))
	})
	host := strings.TrimPrefix(c.URL, "https://")
	claims := w.await("east istio-remote-secret-east " + host)
	remote := clientFor(t, claims[0].Config)
	if _, err := remote.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("the kubeconfig of the Secret does not work: %v", err)
	}
	if claims[0].Expires.IsZero() {
		t.Error("the end of the token is not known")
	}
	if len(contact) > 0 {
		t.Errorf("contact with a healthy server is told as lost: %v", <-contact)
	}

	link.Refuse(token)
	link.DropConnections()
	c.Apply(t, remoteSecret("istio-remote-secret-west", "west", server(t, "w1")))
	if err := <-contact; err == nil {
		t.Error("lost contact is told as contact")
	}
	link.Accept(token)
	if err := <-contact; err != nil {
		t.Errorf("contact is told as lost: %v", err)
	}
	w.await("east istio-remote-secret-east "+host, "west istio-remote-secret-west w1")

	c.Apply(t, remoteSecret("istio-remote-secret-west", "west", server(t, "w2")))
	w.await("east istio-remote-secret-east "+host, "west istio-remote-secret-west w2")
	c.Delete(t, remoteSecret("istio-remote-secret-east", "east", nil))
	w.await("west istio-remote-secret-west w2")
}
