package status_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/status"
	"github.com/isthmus-mesh/isthmus/kubeapi"
	"github.com/isthmus-mesh/isthmus/test/env"
)

var servers env.Pool

func TestMain(m *testing.M) { os.Exit(servers.Main(m)) }

var routes = schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "virtualservices"}

const route = `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec: {hosts: [web], http: [{route: [{destination: {host: web}}]}]}
`

// reconciled is what somebody else says of the object. They replace all conditions: it is to be there before the writer's.
const reconciled = `status: {conditions: [{type: Reconciled, status: "True", message: of somebody else}]}
`

var key = model.ObjectKey{Kind: "VirtualService", Namespace: "shop", Name: "web"}

func finding(code, message string) model.Finding {
	return model.Finding{Code: code, Severity: model.SeverityError, Object: key, Field: "http[0]", Message: message}
}

func kinds(t *testing.T, cfg *rest.Config) *kubeapi.Kinds {
	t.Helper()
	k, err := kubeapi.NewKinds(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// writer runs a Writer that leads.
func writer(t *testing.T, o status.Options) *status.Writer {
	t.Helper()
	w := status.New(o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
	})
	w.Lead(ctx)
	return w
}

// watched waits until one of the objects is as it should be.
func watched(t *testing.T, c *env.Cluster, what string, ok func(*unstructured.Unstructured) bool) *unstructured.Unstructured {
	t.Helper()
	again, late := time.NewTicker(50*time.Millisecond), time.After(time.Minute)
	defer again.Stop()
	for {
		l, err := c.Dynamic.Resource(routes).Namespace("shop").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range l.Items {
			if ok(&l.Items[i]) {
				return &l.Items[i]
			}
		}
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("never came: %s", what)
		}
	}
}

func condition(o *unstructured.Unstructured, typ string) map[string]any {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range list {
		if m := c.(map[string]any); m["type"] == typ {
			return m
		}
	}
	return nil
}

// TestStatus: an object says what is wrong with it, and that nothing is any more; what others say stays.
func TestStatus(t *testing.T) {
	t.Parallel()
	c := servers.Take(t, 1)[0]
	c.Apply(t, env.Namespace("shop"), route+reconciled)
	w := writer(t, status.Options{})
	w.Use("c1", kinds(t, c.Config))
	say := func(o status.Object) {
		o.Key, o.Generation = key, 1
		w.Set(map[model.ClusterID][]status.Object{"c1": {o}})
	}
	say(status.Object{Refused: true, Findings: []model.Finding{finding("UnknownHost", "no service has the host web"), finding("Required", "more")}})
	o := watched(t, c, "the condition", func(o *unstructured.Unstructured) bool { return condition(o, status.Accepted) != nil })
	got := condition(o, status.Accepted)
	since := got["lastTransitionTime"]
	want := map[string]any{
		"type": "Accepted", "status": "False", "reason": "Refused", "message": "http[0]: no service has the host web (and 1 more)",
		"lastTransitionTime": since, "observedGeneration": int64(1),
	}
	if d := cmp.Diff(want, got); d != "" || since == "" {
		t.Errorf("the condition differs (-want +got):\n%s", d)
	}
	if condition(o, "Reconciled") == nil {
		t.Error("the condition of somebody else is gone")
	}
	messages, _, _ := unstructured.NestedSlice(o.Object, "status", "validationMessages")
	if len(messages) != 2 || messages[0].(map[string]any)["level"] != "ERROR" {
		t.Errorf("messages %v", messages)
	}
	if n, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration"); n != 1 {
		t.Errorf("observed generation %d", n)
	}
	say(status.Object{})
	o = watched(t, c, "the condition changes", func(o *unstructured.Unstructured) bool { return condition(o, status.Accepted)["status"] == "True" })
	if m, _, _ := unstructured.NestedSlice(o.Object, "status", "validationMessages"); len(m) > 0 {
		t.Errorf("messages %v are left", m)
	}
	version := o.GetResourceVersion()

	// Another replica that leads, and says the same, writes nothing; of an older generation nothing is said.
	next := writer(t, status.Options{Retry: 100 * time.Millisecond})
	next.Use("c1", kinds(t, c.Config))
	next.Set(map[model.ClusterID][]status.Object{"c1": {{Key: key, Generation: 1}, {Key: model.ObjectKey{Kind: "VirtualService", Namespace: "shop", Name: "other"}, Generation: 1, Refused: true}}})
	c.Apply(t, strings.ReplaceAll(route, "name: web", "name: other"))
	watched(t, c, "the other object's condition", func(o *unstructured.Unstructured) bool {
		return o.GetName() == "other" && condition(o, status.Accepted) != nil
	})
	if o, err := c.Dynamic.Resource(routes).Namespace("shop").Get(t.Context(), "web", metav1.GetOptions{}); err != nil || o.GetResourceVersion() != version {
		t.Errorf("it was written again: %v", err)
	}
}

// notices counts lines of a log.
type notices struct {
	mu   sync.Mutex
	text strings.Builder
	came chan struct{}
}

func (n *notices) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case n.came <- struct{}{}:
	default:
	}
	return n.text.Write(b)
}

// TestNotAllowed: a cluster that does not allow it is told of once, and the others get theirs.
func TestNotAllowed(t *testing.T) {
	t.Parallel()
	cs := servers.Take(t, 2)
	for _, c := range cs {
		c.Apply(t, env.Namespace("shop"), env.Namespace("istio-system"), route, strings.ReplaceAll(route, "name: web", "name: other"))
	}
	cs[0].ServiceAccount(t, "istio-system/hub")
	cs[0].Grant(t, "istio-system/hub", rbacv1.PolicyRule{APIGroups: []string{"networking.istio.io"}, Resources: []string{"virtualservices"}, Verbs: []string{"get"}})
	cfg := rest.CopyConfig(cs[0].Config)
	cfg.BearerToken = cs[0].Token(t, "istio-system/hub", 3600)
	log := &notices{came: make(chan struct{}, 1)}
	w := writer(t, status.Options{Log: slog.New(slog.NewTextHandler(log, nil))})
	w.Use("c1", kinds(t, cfg))
	w.Use("c2", kinds(t, cs[1].Config))
	other := key
	other.Name = "other"
	both := []status.Object{{Key: key, Generation: 1}, {Key: other, Generation: 1}}
	w.Set(map[model.ClusterID][]status.Object{"c1": both, "c2": both})
	watched(t, cs[1], "the status in the other cluster", func(o *unstructured.Unstructured) bool {
		return o.GetName() == "web" && condition(o, status.Accepted) != nil
	})
	select {
	case <-log.came:
	case <-t.Context().Done():
	}
	w.Set(map[model.ClusterID][]status.Object{"c1": both, "c2": {{Key: key, Generation: 1, Refused: true}, both[1]}})
	watched(t, cs[1], "the next status in the other cluster", func(o *unstructured.Unstructured) bool { return condition(o, status.Accepted)["status"] == "False" })
	log.mu.Lock()
	defer log.mu.Unlock()
	if n := strings.Count(log.text.String(), "does not allow it"); n != 1 {
		t.Errorf("%d notices, want 1:\n%s", n, log.text.String())
	}
}

// TestElection: one replica leads at a time, and the next when it is gone.
func TestElection(t *testing.T) {
	t.Parallel()
	c := servers.Take(t, 1)[0]
	c.Apply(t, env.Namespace("istio-system"))
	type term struct {
		who string
		ctx context.Context
	}
	terms := make(chan term, 10)
	start := func(name string) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		e := status.Election{Client: c.Client, Namespace: "istio-system", Identity: name, Duration: 3 * time.Second, Log: slog.New(slog.DiscardHandler)}
		go func() { done <- e.Run(ctx, func(ctx context.Context) { terms <- term{name, ctx} }) }()
		return sync.OnceFunc(func() {
			cancel()
			<-done
		})
	}
	stop := map[string]func(){"a": start("a"), "b": start("b")}
	defer stop["a"]()
	defer stop["b"]()
	first := <-terms
	if first.ctx.Err() != nil {
		t.Error("the leader's term has ended")
	}
	stop[first.who]()
	<-first.ctx.Done()
	if second := <-terms; second.who == first.who {
		t.Errorf("%s leads again, and is gone", second.who)
	}
}
