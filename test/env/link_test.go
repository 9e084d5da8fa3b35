package env_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/isthmus-mesh/isthmus/test/env"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// watch follows the services in the namespace shop; next is what comes next, "end"
// when the watch is over.
func watch(t *testing.T, c kubernetes.Interface) (next func() string) {
	t.Helper()
	// From what the server has at hand: it can't tell, with an etcd that others write to as well, that it has the newest.
	w, err := c.CoreV1().Services("shop").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return func() string {
		select {
		case ev, ok := <-w.ResultChan():
			if !ok {
				return "end"
			}
			o, err := meta.Accessor(ev.Object)
			if err != nil {
				return fmt.Sprint(ev.Type, " ", apierrors.FromObject(ev.Object))
			}
			return fmt.Sprint(ev.Type, " ", o.GetName())
		case <-time.After(patience):
			return "nothing"
		}
	}
}

// soon bounds one call that is expected to hang.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func TestLink(t *testing.T) {
	t.Parallel()
	c := servers.Take(t, 1)[0]
	c.Apply(t, env.Service("shop/cart", 80))
	link := c.Link(t)
	through := client(t, link.Config(env.AdminToken))
	works := func() error {
		_, err := services(t.Context(), through, "shop")
		return err
	}
	wantServices(t, through, "shop", "cart")
	next := watch(t, through)
	if got := next(); got != "ADDED cart" {
		t.Fatal(got)
	}

	c.Apply(t, env.Service("shop/pay", 80))
	if got := next(); got != "ADDED pay" {
		t.Fatalf("a change through the link: %s", got)
	}
	link.DropConnections()
	if got := next(); got != "end" {
		t.Errorf("a watch on a dropped connection: %s", got)
	}
	envoytest.Eventually(t, patience, "a new connection", works)

	next = watch(t, through)
	link.Cut()
	for got := next(); got != "end"; got = next() {
		if !strings.HasPrefix(got, "ADDED") {
			t.Fatalf("a watch on a cut link: %s", got)
		}
	}
	if err := works(); err == nil {
		t.Error("a request passes a cut link")
	}
	link.Restore()
	envoytest.Eventually(t, patience, "a link that is restored", works)

	link.Hang()
	if _, err := services(soon(t), through, "shop"); err == nil || t.Context().Err() != nil {
		t.Errorf("a request passes a hung link: %v", err)
	}
	link.Restore()
	envoytest.Eventually(t, patience, "a link that hangs no more", works)

	link.Slow(20 * time.Millisecond)
	wantServices(t, through, "shop", "cart", "pay")
}

func TestLinkKnowsTokens(t *testing.T) {
	t.Parallel()
	c := servers.Take(t, 1)[0]
	link := c.Link(t)
	c.ServiceAccount(t, "istio-system/reader")
	c.Grant(t, "istio-system/reader", env.Everything())
	one, two := c.Token(t, "istio-system/reader", 3600), c.Token(t, "istio-system/reader", 7200)
	first, second := client(t, link.Config(one)), client(t, link.Config(two))
	if _, err := services(t.Context(), first, ""); err != nil {
		t.Fatal(err)
	}
	link.Refuse(one)
	if _, err := services(t.Context(), first, ""); !apierrors.IsUnauthorized(err) {
		t.Errorf("a refused token: %v", err)
	}
	if _, err := services(t.Context(), second, ""); err != nil {
		t.Errorf("the other token: %v", err)
	}
	if n, m := link.Count(env.By(one)), link.Count(env.By(two)); n != 2 || m != 1 {
		t.Errorf("%d and %d requests, want 2 and 1", n, m)
	}
	link.Accept(one)
	release := link.Hold(func(r env.Request) bool { return strings.HasSuffix(r.Path, "/services") })
	if _, err := services(soon(t), first, ""); err == nil {
		t.Error("a request passes that is held")
	}
	done := make(chan error, 1)
	go func() {
		_, err := services(t.Context(), first, "")
		done <- err
	}()
	release()
	if err := <-done; err != nil {
		t.Errorf("a request that is released: %v", err)
	}
}
