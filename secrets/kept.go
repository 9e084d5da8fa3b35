package secrets

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// How long changes are collected: tools write several Secrets at a time, and replace one by deleting and creating it.
const (
	gather = 50 * time.Millisecond
	grace  = 500 * time.Millisecond // with a deletion among them
)

// kept are the Secrets as they are in the API server. It is a kubeapi.Store.
type kept struct {
	tell func(event string)
	read chan struct{} // closed when all have been read
	some chan struct{} // has one element when one has changed since then
	once sync.Once

	mu      sync.Mutex
	all     map[types.NamespacedName]*corev1.Secret
	deleted bool // a Secret has gone since that was last looked at
}

func newKept(tell func(event string)) *kept {
	return &kept{tell: tell, read: make(chan struct{}), some: make(chan struct{}, 1), all: map[types.NamespacedName]*corev1.Secret{}}
}

// Set implements kubeapi.Store. What nobody reads is dropped.
func (k *kept) Set(n types.NamespacedName, o runtime.Object) {
	s, ok := o.(*corev1.Secret)
	if !ok {
		return
	}
	s.ManagedFields, s.Annotations = nil, nil
	k.mu.Lock()
	before := k.all[n]
	k.all[n] = s
	k.mu.Unlock()
	switch {
	case before == nil:
		k.changed("add")
	case before.ResourceVersion != s.ResourceVersion:
		k.changed("update")
	}
}

// Remove implements kubeapi.Store.
func (k *kept) Remove(n types.NamespacedName) {
	k.mu.Lock()
	_, known := k.all[n]
	delete(k.all, n)
	k.deleted = k.deleted || known
	k.mu.Unlock()
	if known {
		k.changed("delete")
	}
}

// Complete implements kubeapi.Store.
func (k *kept) Complete(seen map[types.NamespacedName]struct{}) {
	k.mu.Lock()
	names := slices.Collect(maps.Keys(k.all))
	k.mu.Unlock()
	for _, n := range names {
		if _, ok := seen[n]; !ok {
			k.Remove(n)
		}
	}
	k.once.Do(func() { close(k.read) })
}

// Lacking implements kubeapi.Store.
func (k *kept) Lacking() bool { return false }

// changed tells of a change. Those before all have been read are no news.
func (k *kept) changed(event string) {
	k.tell(event)
	select {
	case <-k.read:
	default:
		return
	}
	select {
	case k.some <- struct{}{}:
	default:
	}
}

// secrets lists them.
func (k *kept) secrets() []*corev1.Secret {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Values(k.all))
}

// wait waits for a change and what comes with it. It reports whether ctx has not ended meanwhile.
func (k *kept) wait(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-k.some:
	}
	for _, d := range []time.Duration{gather, grace} {
		if d == grace && !k.gone() {
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
	case <-k.some:
	default:
	}
	return true
}

// gone reports whether a Secret has gone since it was last asked.
func (k *kept) gone() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	gone := k.deleted
	k.deleted = false
	return gone
}
