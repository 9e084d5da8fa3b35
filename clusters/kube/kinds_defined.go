package kube

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// defined holds the names of the definitions of custom kinds. It is a kubeapi.Store.
type defined struct {
	changed func()

	mu    sync.Mutex
	names map[string]bool
	known bool // all have been read once
}

// has reports whether a definition exists, if that is known.
func (d *defined) has(name string) (exists, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.names[name], d.known
}

// Set implements kubeapi.Store.
func (d *defined) Set(n types.NamespacedName, _ runtime.Object) { d.note(n.Name, true) }

// Remove implements kubeapi.Store.
func (d *defined) Remove(n types.NamespacedName) { d.note(n.Name, false) }

// note tells also of definitions that only changed: their kinds may be served now.
func (d *defined) note(name string, exists bool) {
	d.mu.Lock()
	delete(d.names, name)
	if exists {
		d.names[name] = true
	}
	known := d.known
	d.mu.Unlock()
	if known {
		d.changed()
	}
}

// Complete implements kubeapi.Store.
func (d *defined) Complete(seen map[types.NamespacedName]struct{}) {
	d.mu.Lock()
	maps.DeleteFunc(d.names, func(n string, _ bool) bool {
		_, ok := seen[types.NamespacedName{Name: n}]
		return !ok
	})
	d.known = true
	d.mu.Unlock()
	d.changed()
}

// Lacking implements kubeapi.Store.
func (d *defined) Lacking() bool { return false }
