package remote

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/isthmus-mesh/isthmus/secrets"
)

// What Istio's tools call Secrets with kubeconfigs by.
const (
	secretPrefix  = "istio-remote-secret-"
	clusterOption = "networking.istio.io/cluster" // annotation; tools read it, the hub does not
)

// Token asks for a token of the ServiceAccount Account and gives it with its expiry, which the API
// server may set earlier than asked for.
func Token(ctx context.Context, c kubernetes.Interface, namespace string, d time.Duration) (token string, expires time.Time, err error) {
	seconds := int64(d / time.Second)
	req := &authv1.TokenRequest{Spec: authv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	res, err := c.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, Account, req, metav1.CreateOptions{})
	if err != nil {
		return "", time.Time{}, fmt.Errorf("ask for a token of ServiceAccount %s/%s: %w", namespace, Account, err)
	}
	return res.Status.Token, res.Status.ExpirationTimestamp.Time, nil
}

// Target is how the hub reaches the API server of a remote cluster.
type Target struct {
	Cluster       string // its id
	Server        string // URL
	TLSServerName string // name in its certificate, if not that of the URL
	CA            []byte // PEM; empty trusts the hub's system roots
}

// ErrUnverified is what NewTarget says of a kubeconfig that does not verify its server.
var ErrUnverified = errors.New("its kubeconfig skips the verification of the API server's certificate, and the hub does not: give it a certificate-authority")

// NewTarget reads the target from a client's configuration; server and tlsServerName override what it
// says.
func NewTarget(cluster string, cfg *rest.Config, server, tlsServerName string) (Target, error) {
	t := Target{Cluster: cluster, Server: cfg.Host, TLSServerName: cfg.ServerName}
	if cfg.Insecure {
		return t, ErrUnverified
	}
	loaded := rest.CopyConfig(cfg)
	if err := rest.LoadTLSFiles(loaded); err != nil {
		return t, fmt.Errorf("read its kubeconfig: %w", err)
	}
	t.CA = loaded.CAData
	if server != "" {
		t.Server = server
	}
	if tlsServerName != "" {
		t.TLSServerName = tlsServerName
	}
	return t, nil
}

// Kubeconfig gives a kubeconfig with a token for the target.
func (t Target) Kubeconfig(token string) ([]byte, error) {
	cfg := api.NewConfig()
	cfg.Clusters[t.Cluster] = &api.Cluster{Server: t.Server, TLSServerName: t.TLSServerName, CertificateAuthorityData: t.CA}
	cfg.AuthInfos[t.Cluster] = &api.AuthInfo{Token: token}
	cfg.Contexts[t.Cluster] = &api.Context{Cluster: t.Cluster, AuthInfo: t.Cluster}
	cfg.CurrentContext = t.Cluster
	out, err := clientcmd.Write(*cfg)
	if err != nil {
		return nil, fmt.Errorf("write a kubeconfig: %w", err)
	}
	return out, nil
}

// SecretName is the name of the Secret that registers a cluster. An id may have characters that no object's name may:
// they are replaced, and a hash keeps such names apart.
func SecretName(cluster string) string {
	name := secretPrefix + cluster
	if len(validation.IsDNS1123Subdomain(name)) == 0 {
		return name
	}
	plain := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			return c
		}
		return '-'
	}, strings.ToLower(cluster))
	return secretPrefix + plain + "-" + secrets.Hash([]byte(cluster))[:8]
}

// Secret gives the Secret that registers a cluster, as it is applied.
func Secret(namespace, cluster string, kubeconfig []byte) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{
			"name": SecretName(cluster), "namespace": namespace,
			"labels":      map[string]any{secrets.Label: "true"},
			"annotations": map[string]any{clusterOption: cluster},
		},
		"data": map[string]any{cluster: base64.StdEncoding.EncodeToString(kubeconfig)},
	}}
}

// Registration is one key of a Secret: a cluster and its kubeconfig.
type Registration struct {
	Cluster    string
	Secret     string // name, without the namespace
	Kubeconfig []byte
	Others     int // further keys of the Secret

	meta metav1.ObjectMeta
}

// Registrations lists what the Secrets of the namespace register, by Secret, and of a cluster only if
// one is named.
func Registrations(ctx context.Context, c kubernetes.Interface, namespace, cluster string) ([]Registration, error) {
	list, err := c.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{LabelSelector: secrets.Label + "=true"})
	if err != nil {
		return nil, fmt.Errorf("list the Secrets of namespace %s: %w", namespace, err)
	}
	var out []Registration
	for _, s := range list.Items {
		for id, kubeconfig := range s.Data {
			if cluster == "" || id == cluster {
				out = append(out, Registration{Cluster: id, Secret: s.Name, Kubeconfig: kubeconfig, Others: len(s.Data) - 1, meta: s.ObjectMeta})
			}
		}
	}
	slices.SortFunc(out, func(a, b Registration) int {
		return cmp.Or(strings.Compare(a.Secret, b.Secret), strings.Compare(a.Cluster, b.Cluster))
	})
	return out, nil
}

// InForce gives the registration that counts of all those of its cluster: the oldest, as the hub has it.
func InForce(all []Registration, cluster string) (out Registration) {
	for _, r := range all {
		if r.Cluster == cluster && (out.Secret == "" || r.older(out)) {
			out = r
		}
	}
	return out
}

func (r Registration) older(o Registration) bool {
	return cmp.Or(r.meta.CreationTimestamp.Compare(o.meta.CreationTimestamp.Time), strings.Compare(r.Secret, o.Secret)) < 0
}

// Unregister takes the cluster out of its Secret, and deletes the Secret if it holds no other. It
// fails if the Secret has changed since it was listed.
func Unregister(ctx context.Context, c kubernetes.Interface, r Registration) error {
	in := c.CoreV1().Secrets(r.meta.Namespace)
	if r.Others == 0 {
		err := in.Delete(ctx, r.Secret, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &r.meta.UID, ResourceVersion: &r.meta.ResourceVersion}})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete Secret %s/%s: %w", r.meta.Namespace, r.Secret, err)
		}
		return nil
	}
	s, err := in.Get(ctx, r.Secret, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read Secret %s/%s: %w", r.meta.Namespace, r.Secret, err)
	}
	s.ResourceVersion = r.meta.ResourceVersion
	delete(s.Data, r.Cluster)
	if _, err := in.Update(ctx, s, metav1.UpdateOptions{FieldManager: fieldManager}); err != nil {
		return fmt.Errorf("take %s out of Secret %s/%s: %w", r.Cluster, r.meta.Namespace, r.Secret, err)
	}
	return nil
}

// ClusterUID tells clusters apart: the UID of the namespace kube-system; "" if it may not be read. The hub's own
// account may.
func ClusterUID(ctx context.Context, c kubernetes.Interface) (string, error) {
	list, err := c.CoreV1().Namespaces().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + metav1.NamespaceSystem})
	switch {
	case apierrors.IsForbidden(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read namespace %s: %w", metav1.NamespaceSystem, err)
	case len(list.Items) != 1:
		return "", nil
	}
	return string(list.Items[0].UID), nil
}

// Server is the URL of the API server that the kubeconfig leads to; "" if the hub would not take it.
func (r Registration) Server() string {
	cfg, err := secrets.Sanitise(r.Kubeconfig, nil)
	if err != nil {
		return ""
	}
	return cfg.Host
}

// ClusterUID is that of the cluster that the kubeconfig leads to.
func (r Registration) ClusterUID(ctx context.Context) (string, error) {
	cfg, err := secrets.Sanitise(r.Kubeconfig, nil)
	if err != nil {
		return "", err
	}
	own, release, err := HTTPClient(cfg)
	if err != nil {
		return "", err
	}
	defer release()
	c, err := kubernetes.NewForConfigAndClient(cfg, own)
	if err != nil {
		return "", err
	}
	return ClusterUID(ctx, c)
}

// Shared lists the other registrations that lead to the same API server, and hence use the same account.
func Shared(all []Registration, cluster, secret, server string) (out []Registration) {
	for _, r := range all {
		if (r.Cluster != cluster || r.Secret != secret) && server != "" && r.Server() == server {
			out = append(out, r)
		}
	}
	return out
}
