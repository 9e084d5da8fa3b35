package secrets

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Label marks the Secrets that hold kubeconfigs, with the value "true".
const Label = "istio/multiCluster"

// MaxClusters is how many clusters one source may claim unless its options say otherwise.
const MaxClusters = 1000

// Options are those of every source of remote credentials. Zero values take the stated defaults.
type Options struct {
	Allow       Allow
	MaxClusters int // what is beyond it is one claim with an Err; MaxClusters
	Log         *slog.Logger
}

func (o Options) withDefaults() Options {
	o.MaxClusters = cmp.Or(o.MaxClusters, MaxClusters)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// SecretOptions configure WatchSecrets.
type SecretOptions struct {
	Options
	Namespace string // the system namespace; Secrets elsewhere don't count
	// OnEvent is told "add", "update" or "delete" for each Secret; nil if nobody asks. It must not block.
	OnEvent func(event string)
	// OnContact is told when the API server can't be asked, and why, and with nil when it can again; nil if nobody asks.
	// It must not block.
	OnContact func(error)
}

// How long changes are collected: tools write several Secrets at a time, and replace one by deleting and creating it.
const (
	gather = 50 * time.Millisecond
	grace  = 500 * time.Millisecond // with a deletion among them
)

// WatchSecrets follows the Secrets of the namespace that are labelled istio/multiCluster=true until ctx ends, and
// then returns nil. Each key of such a Secret is the id of a cluster and its value a kubeconfig; a key that can't be
// used costs only itself. out is given all claims, in order, once the Secrets have been listed, and each time
// anything has changed. Without contact to the API server the claims stay.
func WatchSecrets(ctx context.Context, client kubernetes.Interface, o SecretOptions, out func([]Claim)) error {
	if o.Namespace == "" {
		return errors.New("the namespace of the secrets is missing")
	}
	o.Options = o.withDefaults()
	changed := changes{some: make(chan struct{}, 1)}
	contact := &contact{SecretOptions: o}
	informer := cache.NewSharedIndexInformer(contact.listWatch(client), &corev1.Secret{}, 0, cache.Indexers{})
	synced, err := o.observe(informer, &changed)
	if err != nil {
		return err
	}
	defer contact.watches.Wait()
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	running.Go(func() { informer.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), synced) {
		return nil
	}
	r := reader{allow: o.Allow}
	for {
		out(o.claims(&r, informer.GetStore().List()))
		if !changed.wait(ctx) {
			return nil
		}
	}
}

// changes tell that something has changed since they were waited for.
type changes struct {
	some    chan struct{} // cap 1
	deleted atomic.Bool   // a Secret has gone
}

func (c *changes) add(deletion bool) {
	if deletion {
		c.deleted.Store(true)
	}
	select {
	case c.some <- struct{}{}:
	default:
	}
}

// wait waits for a change and what comes with it.
func (c *changes) wait(ctx context.Context) (more bool) {
	select {
	case <-ctx.Done():
		return false
	case <-c.some:
	}
	for _, d := range []time.Duration{gather, grace} {
		if d == grace && !c.deleted.Swap(false) {
			break
		}
		timer := time.NewTimer(d)
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
		}
	}
	select {
	case <-c.some:
	default:
	}
	return true
}

// observe makes the informer tell of changes.
func (o *SecretOptions) observe(informer cache.SharedIndexInformer, changed *changes) (synced cache.InformerSynced, err error) {
	tell := func(event string) {
		if o.OnEvent != nil {
			o.OnEvent(event)
		}
		changed.add(event == "delete")
	}
	if err := informer.SetTransform(trim); err != nil {
		return nil, fmt.Errorf("watch secrets: %w", err)
	}
	handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { tell("add") },
		UpdateFunc: func(before, after any) {
			if before.(*corev1.Secret).ResourceVersion != after.(*corev1.Secret).ResourceVersion {
				tell("update")
			}
		},
		DeleteFunc: func(any) { tell("delete") },
	})
	if err != nil {
		return nil, fmt.Errorf("watch secrets: %w", err)
	}
	return handler.HasSynced, nil
}

// trim drops what nobody reads.
func trim(obj any) (any, error) {
	if s, ok := obj.(*corev1.Secret); ok {
		s.ManagedFields, s.Annotations = nil, nil
	}
	return obj, nil
}

// claims reads all Secrets. Those that were there first come first, so that a new one can't push an older
// one over the limit.
func (o *SecretOptions) claims(r *reader, objects []any) []Claim {
	all := make([]*corev1.Secret, 0, len(objects))
	for _, obj := range objects {
		if s, ok := obj.(*corev1.Secret); ok && s.Namespace == o.Namespace {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *corev1.Secret) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	r.begin()
	defer r.end()
	var out []Claim
	for _, s := range all {
		for _, key := range slices.Sorted(maps.Keys(s.Data)) {
			out = append(out, r.claim(Claim{Cluster: key, Source: "Secret " + s.Namespace + "/" + s.Name, Created: s.CreationTimestamp.Time}, s.Data[key]))
		}
	}
	return limit(out, o.MaxClusters)
}

var errNoID = errors.New("its name can't be a cluster id (letters, digits, '-', '_' and '.', 63 at most, no '-' at an end)")

// reader makes claims of kubeconfigs. It remembers those in use, so that a change of one Secret does not
// read all others again.
type reader struct {
	allow     Allow
	used, old map[string]credential // by hash
}

// credential is what came of one kubeconfig.
type credential struct {
	config  *rest.Config
	expires time.Time
	err     error
}

func (r *reader) begin() { r.used, r.old = map[string]credential{}, r.used }
func (r *reader) end()   { r.old = nil }

// claim completes c.
func (r *reader) claim(c Claim, kubeconfig []byte) Claim {
	c.Hash = Hash(kubeconfig)
	if !ValidCluster(c.Cluster) {
		c.Err = errNoID
		return c
	}
	got, ok := r.old[c.Hash]
	if !ok {
		got, ok = r.used[c.Hash]
	}
	if !ok {
		got = read(kubeconfig, r.allow)
	}
	r.used[c.Hash] = got
	c.Config, c.Expires, c.Err = got.config, got.expires, got.err
	return c
}

func read(kubeconfig []byte, allow Allow) credential {
	cfg, err := Sanitise(kubeconfig, allow)
	if err != nil {
		return credential{err: fmt.Errorf("kubeconfig: %w", err)}
	}
	return credential{config: cfg, expires: Expiry(cfg)}
}
