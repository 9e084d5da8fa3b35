package workloadgroup

import (
	"context"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

// Registry keeps entries in the hub: they are its rows. It is for a hub without an API server that entries could be written
// to, and knows what was registered since it started.
type Registry struct {
	conv kube.Converter

	mu      sync.Mutex
	store   *kube.Store    // guarded by mu
	entries map[Key]*Entry // guarded by mu
	version int            // guarded by mu
	sink    model.Sink     // guarded by mu: of the current run; nil while there is none
}

// NewRegistry gives the registry with the key workloadgroup/<cluster>. Of the converter, the shard is set by it.
func NewRegistry(cluster model.ClusterID, conv kube.Converter) *Registry {
	conv.Shard = model.ShardKey{Provider: model.ProviderWorkloadGroup, Cluster: cluster}
	return &Registry{conv: conv, store: kube.NewStore(conv), entries: map[Key]*Entry{}}
}

// Key implements model.Registry.
func (r *Registry) Key() model.ShardKey { return r.conv.Shard }

// Run implements model.Registry.
func (r *Registry) Run(ctx context.Context, out model.Sink) error {
	r.mu.Lock()
	r.sink = out
	out.Replace(r.store.State())
	out.Status(model.Status{State: model.StateLive})
	r.mu.Unlock()
	<-ctx.Done()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sink == out {
		r.sink = nil
	}
	return ctx.Err()
}

// Get implements Entries.
func (r *Registry) Get(_ context.Context, k Key) (*Entry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.entries[k], nil
}

// Put implements Entries.
func (r *Registry) Put(_ context.Context, e *Entry) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if have := r.entries[e.Key]; (have == nil) != (e.Version == "") || have != nil && have.Version != e.Version {
		return "", ErrConflict
	}
	r.version++
	next := e.clone()
	next.Version = strconv.Itoa(r.version)
	r.entries[e.Key] = next
	o, _ := kube.NewObject(kube.KindWorkloadEntry, object(next))
	r.report(r.store.Set(o))
	return next.Version, nil
}

// Delete implements Entries.
func (r *Registry) Delete(_ context.Context, e *Entry) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if have := r.entries[e.Key]; have == nil || have.Version != e.Version {
		return ErrConflict
	}
	delete(r.entries, e.Key)
	r.report(r.store.Delete(model.ObjectKey{Kind: kube.KindWorkloadEntry, Namespace: e.Namespace, Name: e.Name}))
	return nil
}

// report is called with mu held, which keeps rows in order: sinks never block.
func (r *Registry) report(rows []model.Event) {
	if r.sink != nil && len(rows) > 0 {
		r.sink.Put(rows...)
	}
}

// List implements Entries.
func (r *Registry) List(context.Context) (out []*Entry, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.entries {
		out = append(out, e)
	}
	return out, nil
}

// Alive implements Entries: nobody else sees the entries.
func (r *Registry) Alive(_ context.Context, controller string) (map[string]bool, error) {
	return map[string]bool{controller: true}, nil
}

// object is an entry as conversion reads it.
func object(e *Entry) *kube.WorkloadEntry {
	out := &kube.WorkloadEntry{
		Meta: metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name, Labels: e.Labels, Annotations: e.Annotations, ResourceVersion: e.Version},
		Spec: e.Spec,
	}
	if e.Health != nil {
		out.Healthy = &e.Health.Healthy
	}
	return out
}
