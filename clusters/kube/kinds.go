package kube

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
)

// The API groups of optional kinds.
const (
	groupNetworking = "networking.istio.io"
	groupSecurity   = "security.istio.io"
	groupTelemetry  = "telemetry.istio.io"
	groupExtensions = "extensions.istio.io"
	groupGateway    = "gateway.networking.k8s.io"
	groupMCS        = "multicluster.x-k8s.io"
)

// coreKind is a kind that every API server has.
type builtin struct {
	kind string
	at   place
	page func() runtime.Object
}

// required are the kinds without which there is nothing to tell.
func required() []builtin {
	core := func(kind, resource, fields string, page func() runtime.Object) builtin {
		return builtin{kind, place{version: "v1", resource: resource, fields: fields}, page}
	}
	return []builtin{
		core(KindNamespace, "namespaces", "", func() runtime.Object { return &corev1.NamespaceList{} }),
		core(KindNode, "nodes", "", func() runtime.Object { return &corev1.NodeList{} }),
		core(KindPod, "pods", "status.phase!=Failed", func() runtime.Object { return &corev1.PodList{} }),
		core(KindService, "services", "", func() runtime.Object { return &corev1.ServiceList{} }),
		{KindEndpointSlice, place{group: "discovery.k8s.io", version: "v1", resource: "endpointslices"},
			func() runtime.Object { return &discoveryv1.EndpointSliceList{} }},
	}
}

// configMap reads one ConfigMap.
func configMap(namespace, name string) builtin {
	return builtin{KindConfigMap + "/" + name,
		place{version: "v1", resource: "configmaps", namespace: namespace, fields: "metadata.name=" + name},
		func() runtime.Object { return &corev1.ConfigMapList{} }}
}

// custom is a kind that an API server may have. All its served versions hold the same objects, of which
// the newest version is read.
type custom struct{ kind, group, resource string }

// optional lists the custom kinds that an instance reads.
func optional(o Options) []custom {
	out := []custom{
		{KindWorkloadEntry, groupNetworking, "workloadentries"},
		{KindKubernetesGateway, groupGateway, "gateways"},
	}
	if o.Configuration {
		out = append(out, configuration()...)
	}
	if o.MCS {
		out = append(out, custom{KindServiceExport, groupMCS, "serviceexports"}, custom{KindServiceImport, groupMCS, "serviceimports"})
	}
	return out
}

// configuration lists the kinds that configure the mesh.
func configuration() []custom {
	return []custom{
		{KindServiceEntry, groupNetworking, "serviceentries"},
		{KindDestinationRule, groupNetworking, "destinationrules"},
		{KindGateway, groupNetworking, "gateways"},
		{"VirtualService", groupNetworking, "virtualservices"},
		{"Sidecar", groupNetworking, "sidecars"},
		{"EnvoyFilter", groupNetworking, "envoyfilters"},
		{"WorkloadGroup", groupNetworking, "workloadgroups"},
		{"ProxyConfig", groupNetworking, "proxyconfigs"},
		{KindPeerAuthentication, groupSecurity, "peerauthentications"},
		{"RequestAuthentication", groupSecurity, "requestauthentications"},
		{"AuthorizationPolicy", groupSecurity, "authorizationpolicies"},
		{"Telemetry", groupTelemetry, "telemetries"},
		{"WasmPlugin", groupExtensions, "wasmplugins"},
	}
}

// kinds follows which custom kinds the API server serves, and runs a feed for each. It is owned by the
// goroutine that runs it, but for what mu guards.
type kinds struct {
	run     *run
	wanted  []custom
	known   *feed         // of the definitions of custom kinds
	changed chan struct{} // what is served may have changed
	feeds   map[string]*customFeed

	mu      sync.Mutex
	absent  map[string]bool // settled: not served
	looked  bool            // the first look has been
	running map[string]*table
}

// customFeed is a feed that runs.
type customFeed struct {
	version string
	table   *table
	stop    context.CancelFunc
	done    chan struct{}
	missing time.Time // since when it is not served; zero if it is
}

func newKinds(r *run) *kinds {
	return &kinds{run: r, wanted: optional(r.opts), changed: make(chan struct{}, 1), feeds: map[string]*customFeed{},
		absent: map[string]bool{}, running: map[string]*table{}}
}

// poke makes it look soon.
func (k *kinds) poke() {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// follow looks at what is served until ctx ends, and joins its feeds.
func (k *kinds) follow(ctx context.Context) {
	defer func() {
		for _, f := range k.feeds {
			f.stop()
			<-f.done
		}
	}()
	t := k.run.api.timing
	retry := t.backoff()
	for ctx.Err() == nil {
		found, err := k.discover(ctx)
		wait := t.Discovery
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			wait = retry.after(err)
		default:
			retry.reset()
			if k.apply(ctx, found, time.Now()) {
				wait = min(wait, t.Absent)
			}
		}
		timer := time.NewTimer(jitter(wait))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-k.changed:
			pause(ctx, t.Retry) // definitions come in groups
		}
		timer.Stop()
	}
}

// discover gives the version to read of each wanted kind that is served.
func (k *kinds) discover(ctx context.Context) (map[string]string, error) {
	var groups metav1.APIGroupList
	if err := k.get(ctx, &groups, "apis"); err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, g := range groups.Groups {
		var versions []string
		for _, v := range g.Versions {
			versions = append(versions, v.Version)
		}
		slices.SortFunc(versions, func(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) })
		for _, v := range versions {
			if err := k.discoverVersion(ctx, g.Name, v, found); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

func (k *kinds) discoverVersion(ctx context.Context, group, v string, found map[string]string) error {
	left := slices.DeleteFunc(slices.Clone(k.wanted), func(c custom) bool { return c.group != group || found[c.kind] != "" })
	if len(left) == 0 {
		return nil
	}
	var list metav1.APIResourceList
	if err := k.get(ctx, &list, "apis", group, v); err != nil {
		return err
	}
	for _, c := range left {
		for _, r := range list.APIResources {
			if r.Name == c.resource && slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "watch") {
				found[c.kind] = v
			}
		}
	}
	return nil
}

func (k *kinds) get(ctx context.Context, out runtime.Object, path ...string) error {
	err := k.run.api.list(ctx, k.run.api.custom.Get().AbsPath(path...).MaxRetries(0), out)
	if ctx.Err() == nil {
		k.run.discovery("get", err)
	}
	return err
}

// apply starts and stops feeds. It reports whether a kind may be going.
func (k *kinds) apply(ctx context.Context, found map[string]string, now time.Time) (doubt bool) {
	for _, c := range k.wanted {
		f, v := k.feeds[c.kind], found[c.kind]
		switch {
		case f == nil && v != "":
			k.start(ctx, c, v, newTable(c.kind, k.run.queue, k.run.event))
		case f == nil:
			k.settle(c.kind, nil)
		case v == f.version:
			f.missing = time.Time{}
		case v != "": // the other version holds the same objects
			k.end(c.kind)
			k.start(ctx, c, v, f.table)
		case f.missing.IsZero():
			f.missing, doubt = now, true
		case now.Sub(f.missing) < k.run.api.timing.Absent:
			doubt = true
		default:
			k.end(c.kind)
			f.table.clear()
			k.run.contact.forget(c.kind)
			k.settle(c.kind, nil)
		}
	}
	k.mu.Lock()
	k.looked = true
	k.mu.Unlock()
	k.run.queue.poke()
	return doubt
}

// settle notes the table of a kind, nil if the kind is not served.
func (k *kinds) settle(kind string, t *table) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.running, kind)
	if k.absent[kind] = t == nil; t != nil {
		k.running[kind] = t
	}
}

func (k *kinds) start(ctx context.Context, c custom, v string, t *table) {
	ctx, stop := context.WithCancel(ctx)
	at := place{group: c.group, version: v, resource: c.resource}
	outcome := k.run.contact.track(c.kind, at, false)
	f := k.run.feed(at, k.run.api.custom, func() runtime.Object { return &rawList{} }, t, func(op string, err error) {
		outcome(op, err)
		if f, _ := k.run.contact.explain(at, op, err); f == failMissing {
			k.poke()
		}
	})
	cf := &customFeed{version: v, table: t, stop: stop, done: make(chan struct{})}
	k.feeds[c.kind] = cf
	k.settle(c.kind, t)
	go func() {
		defer close(cf.done)
		f.run(ctx)
	}()
}

func (k *kinds) end(kind string) {
	f := k.feeds[kind]
	f.stop()
	<-f.done
	delete(k.feeds, kind)
}

// state gives what is known of a kind: whether it is settled, and whether it is read.
func (k *kinds) state(kind string) (settled, read bool) {
	k.mu.Lock()
	t, absent, looked := k.running[kind], k.absent[kind], k.looked
	k.mu.Unlock()
	switch {
	case !looked:
		return false, false
	case absent:
		return true, false
	case t == nil:
		return false, false
	}
	if t.ready() {
		return true, true
	}
	return k.run.contact.of(kind).failure == failDenied, false
}

// crdName is the name of a kind's definition.
func (c custom) crdName() string { return strings.Join([]string{c.resource, c.group}, ".") }
