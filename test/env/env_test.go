package env_test

import (
	"context"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/isthmus-mesh/isthmus/test/env"
)

const patience = 2 * time.Minute

// client is a client of its own; its connections are closed with the test.
func client(t *testing.T, cfg *rest.Config) kubernetes.Interface {
	t.Helper()
	own, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.CloseIdleConnections)
	c, err := kubernetes.NewForConfigAndClient(cfg, own)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func services(ctx context.Context, c kubernetes.Interface, ns string) (names []string, err error) {
	list, err := c.CoreV1().Services(ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, s := range list.Items {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return names, nil
}

func wantServices(t *testing.T, c kubernetes.Interface, ns string, want ...string) {
	t.Helper()
	got, err := services(t.Context(), c, ns)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("services %v, %v, want %v", got, err, want)
	}
}

func TestApply(t *testing.T) {
	t.Parallel()
	c := servers.Take(t, 1)[0]
	c.Apply(t, env.App("shop/cart", 80, "node-1", "10.1.0.1", "10.1.0.2"), env.Node("node-1", "r1", "z1", "203.0.113.1"), `
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: vm-1, namespace: shop}
spec: {address: 10.9.0.1}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: east-west, namespace: shop}
spec: {gatewayClassName: istio, listeners: [{name: tls, port: 15443, protocol: TLS, tls: {mode: Passthrough}}]}
status: {addresses: [{type: IPAddress, value: 203.0.113.9}]}
---
apiVersion: multicluster.x-k8s.io/v1alpha1
kind: ServiceExport
metadata: {name: cart, namespace: shop}
`)
	pod, err := c.Client.CoreV1().Pods("shop").Get(t.Context(), "cart-1", metav1.GetOptions{})
	if err != nil || pod.Status.PodIP != "10.1.0.2" || pod.Spec.NodeName != "node-1" {
		t.Errorf("pod at %q on %q, %v", pod.Status.PodIP, pod.Spec.NodeName, err)
	}
	gateways := schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gateways"}
	gw, err := c.Dynamic.Resource(gateways).Namespace("shop").Get(t.Context(), "east-west", metav1.GetOptions{})
	if err != nil || gw.Object["status"].(map[string]any)["addresses"] == nil {
		t.Errorf("gateway without its status: %v, %v", gw, err)
	}

	slice := env.Slice("shop/cart", 8080, "10.1.0.3")
	c.Apply(t, slice, env.Service("shop/other", 80))
	got, err := c.Client.DiscoveryV1().EndpointSlices("shop").Get(t.Context(), slice.Name, metav1.GetOptions{})
	if err != nil || len(got.Endpoints) != 1 || got.Endpoints[0].Addresses[0] != "10.1.0.3" {
		t.Errorf("slice %+v, %v, want one endpoint", got, err)
	}
	c.Delete(t, env.Service("shop/cart", 80))
	wantServices(t, c.Client, "shop", "other")
	c.Delete(t, env.Namespace("shop"))
	if _, err := c.Client.CoreV1().Namespaces().Get(t.Context(), "shop", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the namespace is still there: %v", err)
	}
}

// A cluster that a test gave back is empty again, whatever was done to it.
func TestReuse(t *testing.T) {
	t.Parallel()
	var pool env.Pool
	t.Run("first", func(t *testing.T) {
		c := pool.Bare(t, 2)
		c[0].InstallCRDs(t)
		c[0].Grant(t, "shop/reader", env.Everything())
		c[0].Apply(t, env.App("shop/cart", 80, "", "10.1.0.1"), env.Node("n", "r", "z"))
		c[1].Stop(t)
	})
	defer pool.Close()
	t.Run("second", func(t *testing.T) {
		for _, c := range pool.Bare(t, 2) {
			wantServices(t, c.Client, "", "kubernetes")
			spaces, err := c.Client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
			if err != nil || len(spaces.Items) > 4 {
				t.Errorf("namespaces %v, %v", spaces, err)
			}
			nodes, err := c.Client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
			if err != nil || len(nodes.Items) != 0 {
				t.Errorf("nodes %v, %v", nodes, err)
			}
			if _, err := c.Client.Discovery().ServerResourcesForGroupVersion("networking.istio.io/v1"); !apierrors.IsNotFound(err) {
				t.Errorf("custom resources are still served: %v", err)
			}
		}
	})
}

func TestRestartKeepsData(t *testing.T) {
	t.Parallel()
	c := servers.Take(t, 1)[0]
	c.Apply(t, env.Service("shop/cart", 80))
	c.Stop(t)
	if _, err := services(t.Context(), c.Client, "shop"); err == nil {
		t.Error("a stopped server answers")
	}
	c.Start(t)
	wantServices(t, c.Client, "shop", "cart")
}

func TestTokens(t *testing.T) {
	t.Parallel()
	both := servers.Take(t, 2)
	c := both[0]
	c.ServiceAccount(t, "istio-system/reader")
	c.Grant(t, "istio-system/reader", env.Reader("services", "endpointslices.discovery.k8s.io"))
	for _, life := range []int64{300, 3600} {
		cfg, err := clientcmd.RESTConfigFromKubeConfig(c.Kubeconfig(c.Token(t, "istio-system/reader", life)))
		if err != nil {
			t.Fatal(err)
		}
		reader := client(t, cfg)
		if _, err := services(t.Context(), reader, ""); err != nil {
			t.Errorf("a token of %d s: %v", life, err)
		}
		if _, err := reader.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("nodes, which the account may not read: %v", err)
		}
		cfg.Host = both[1].URL
		if _, err := services(t.Context(), client(t, cfg), ""); !apierrors.IsUnauthorized(err) {
			t.Errorf("a token at another cluster: %v", err)
		}
	}
	expired := c.Token(t, "istio-system/reader", -60)
	old := c.Token(t, "istio-system/reader", 3600)
	c.Revoke(t, "istio-system/reader")
	for what, token := range map[string]string{"expired": expired, "revoked": old} {
		cfg, err := clientcmd.RESTConfigFromKubeConfig(c.Kubeconfig(token))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := services(t.Context(), client(t, cfg), ""); !apierrors.IsUnauthorized(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
