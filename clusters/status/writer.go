package status

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
	"github.com/isthmus-mesh/isthmus/kubeapi"
)

// patience is how long an API server may take for one object.
const patience = 10 * time.Second

// Options configure a Writer.
type Options struct {
	PerSecond int           // writes at most; 10
	Retry     time.Duration // how long what failed waits, and a cluster that allows nothing ten times as long; 30s
	Log       *slog.Logger  // discards if nil
}

// Writer writes the status of objects. Its methods may be called from any goroutine and never block.
type Writer struct {
	opts  Options
	limit *rate.Limiter
	wake  chan struct{} // cap 1

	mu      sync.Mutex
	leading context.Context // guarded by mu, as is the rest: ends when another leads; nil before this one does
	clients map[model.ClusterID]*kubeapi.Kinds
	want    map[id]Object
	done    map[id]Object    // as it was written last, or found to be
	later   map[id]time.Time // before which it is not tried again
	denied  map[place]time.Time
}

type id struct {
	cluster model.ClusterID
	key     model.ObjectKey
}

// place is what a right is for.
type place struct {
	cluster model.ClusterID
	kind    string
}

// New gives a Writer that knows no objects.
func New(o Options) *Writer {
	o.PerSecond, o.Retry = cmp.Or(o.PerSecond, 10), cmp.Or(o.Retry, 30*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Writer{
		opts: o, limit: rate.NewLimiter(rate.Limit(o.PerSecond), o.PerSecond), wake: make(chan struct{}, 1), clients: map[model.ClusterID]*kubeapi.Kinds{},
		want: map[id]Object{}, done: map[id]Object{}, later: map[id]time.Time{}, denied: map[place]time.Time{},
	}
}

// Lead says that this replica writes until ctx ends. What it wrote before counts for nothing: another may have written
// meanwhile.
func (w *Writer) Lead(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leading = ctx
	clear(w.done)
	w.nudge()
}

// Use takes the way to the API server of a cluster; nil if there is none any more.
func (w *Writer) Use(cluster model.ClusterID, c *kubeapi.Kinds) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c == nil {
		delete(w.clients, cluster)
	} else {
		w.clients[cluster] = c
	}
	for p := range w.denied {
		if p.cluster == cluster {
			delete(w.denied, p) // another credential may have other rights
		}
	}
	w.nudge()
}

// Set takes what is to be said of all objects. Of those that are not among them nothing is said any more.
func (w *Writer) Set(objects map[model.ClusterID][]Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.want)
	for cluster, list := range objects {
		for _, o := range list {
			if Has(o.Key.Kind) {
				w.want[id{cluster, o.Key}] = o
			}
		}
	}
	unwanted := func(k id) bool { _, wanted := w.want[k]; return !wanted }
	maps.DeleteFunc(w.done, func(k id, _ Object) bool { return unwanted(k) })
	maps.DeleteFunc(w.later, func(k id, _ time.Time) bool { return unwanted(k) })
	w.nudge()
}

// nudge is called with mu held.
func (w *Writer) nudge() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run writes until ctx ends, while this replica leads.
func (w *Writer) Run(ctx context.Context) error {
	for {
		k, o, c, wait := w.next()
		if wait == 0 {
			if w.limit.Wait(ctx) != nil {
				return ctx.Err()
			}
			w.settled(ctx, k, o, write(ctx, c, o))
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-w.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// next gives an object whose status is to be looked at; else how long to wait.
func (w *Writer) next() (k id, o Object, c *kubeapi.Kinds, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, wait := time.Now(), time.Hour
	if w.leading == nil || w.leading.Err() != nil {
		return id{}, Object{}, nil, wait
	}
	for k, o := range w.want {
		if done, ok := w.done[k]; ok && done.same(&o) {
			continue
		}
		c := w.clients[k.cluster]
		if c == nil {
			continue
		}
		left := max(w.later[k].Sub(now), w.denied[place{k.cluster, k.key.Kind}].Sub(now))
		if left <= 0 {
			return k, o, c, 0
		}
		wait = min(wait, left)
	}
	return id{}, Object{}, nil, wait
}

// settled notes how a write ended.
func (w *Writer) settled(ctx context.Context, k id, o Object, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		w.done[k] = o
		delete(w.later, k)
	case ctx.Err() != nil:
	case apierrors.IsNotFound(err): // it is gone, of which will be told, or comes back
		w.later[k] = time.Now().Add(w.opts.Retry)
	case apierrors.IsForbidden(err):
		p := place{k.cluster, k.key.Kind}
		if _, told := w.denied[p]; !told {
			w.opts.Log.Info("the status of objects is not written: the cluster does not allow it (deploy/rbac-status.yaml)", "cluster", k.cluster, "kind", k.key.Kind)
		}
		w.denied[p] = time.Now().Add(10 * w.opts.Retry)
	default:
		w.opts.Log.Debug("the status of an object is not written; it is tried again", "cluster", k.cluster, "object", k.key.String(), "err", err)
		w.later[k] = time.Now().Add(w.opts.Retry)
		if !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) { // the cluster is not well: others are not to wait for it
			for o := range w.want {
				if o.cluster == k.cluster {
					w.later[o] = w.later[k]
				}
			}
		}
	}
}

// Leads reports whether this replica writes.
func (w *Writer) Leads() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leading != nil && w.leading.Err() == nil
}

// write makes the status of an object say what it is to say.
func write(ctx context.Context, c *kubeapi.Kinds, o Object) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	group, name := kube.Resource(o.Key.Kind)
	all, _, err := c.In(ctx, schema.GroupResource{Group: group, Resource: name}, versions[o.Key.Kind]...)
	if err != nil {
		return err
	}
	in := all.Namespace(o.Key.Namespace)
	have, err := in.Get(ctx, o.Key.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if o.Generation != 0 && o.Generation != have.GetGeneration() {
		return nil // another version, of which will be told
	}
	patch, err := o.patch(have, time.Now())
	if err != nil || patch == nil {
		return err
	}
	if _, err := in.Patch(ctx, o.Key.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("write the status of %s: %w", o.Key, err)
	}
	return nil
}
