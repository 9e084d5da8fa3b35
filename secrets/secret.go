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
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/isthmus-mesh/isthmus/kubeapi"
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

// WatchSecrets follows the Secrets of the namespace that are labelled istio/multiCluster=true until ctx ends, and
// then returns nil. Each key of such a Secret is the id of a cluster and its value a kubeconfig; a key that can't be
// used costs only itself. out is given all claims, in order, once the Secrets have been listed, and each time
// anything has changed. Without contact to the API server the claims stay.
func WatchSecrets(ctx context.Context, cfg *rest.Config, o SecretOptions, out func([]Claim)) error {
	if o.Namespace == "" {
		return errors.New("the namespace of the secrets is missing")
	}
	o.Options = o.withDefaults()
	if o.OnEvent == nil {
		o.OnEvent = func(string) {}
	}
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var api *kubeapi.Client
	contact := &contact{SecretOptions: o}
	api, err := kubeapi.Connect(kubeapi.Options{Config: cfg, Role: "deploy/rbac-primary.yaml", Changed: func() { contact.note(ctx, api.Lost()) }})
	if err != nil {
		return fmt.Errorf("watch secrets: %w", err)
	}
	kept := newKept(o.OnEvent)
	at := kubeapi.Place{Version: "v1", Resource: "secrets", Namespace: o.Namespace, Labels: Label + "=true"}
	feed := api.Feed("Secret", at, kubeapi.Required, func() runtime.Object { return &corev1.SecretList{} }, kept)
	running.Go(func() { api.Run(ctx, feed.Run) })
	r := reader{allow: o.Allow}
	select {
	case <-ctx.Done():
		return nil
	case <-kept.read:
	}
	for {
		out(o.claims(&r, kept.secrets()))
		if !kept.wait(ctx) {
			return nil
		}
	}
}

// claims reads all Secrets. Those that were there first come first, so that a new one can't push an older
// one over the limit.
func (o *SecretOptions) claims(r *reader, all []*corev1.Secret) []Claim {
	all = slices.DeleteFunc(all, func(s *corev1.Secret) bool { return s.Namespace != o.Namespace })
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
