package workloadgroup

import (
	"context"
	"errors"
	"fmt"
	"time"

	networking "istio.io/api/networking/v1alpha3"
)

// settle makes an entry what it is to be now. What fails is tried again.
func (k *Keeper) settle(ctx context.Context, key Key) {
	k.mu.Lock()
	var now known
	if e := k.known[key]; e != nil {
		now = *e
	}
	connected := len(now.streams) > 0
	k.mu.Unlock()
	if now.last == nil {
		return
	}
	var group *networking.WorkloadGroup
	if connected {
		var ok bool
		if group, ok = k.groupOf(key, now.last); !ok {
			return
		}
	}
	if k.limit.Wait(ctx) != nil {
		return
	}
	work, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var version string
	var after time.Duration
	var err error
	if connected {
		version, err = k.register(work, key, &now, group)
	} else {
		version, after, err = k.leave(work, key, &now)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.known[key]; e != nil {
		e.version = version
	}
	if err != nil {
		k.failed(ctx, key, err)
		return
	}
	delete(k.waits, key)
	switch e := k.known[key]; {
	case after > 0:
		k.soon(key, after)
	case e != nil && len(e.streams) == 0 && !connected:
		delete(k.known, key)
	}
}

// groupOf gives the group of a proxy, nil if it names none. False means that there is none from which the entry could be made: it is
// looked at again when groups change.
func (k *Keeper) groupOf(key Key, p *Proxy) (*networking.WorkloadGroup, bool) {
	if p.Group == "" {
		return nil, true
	}
	if g := k.opts.Group(p.Namespace, p.Group); g != nil {
		return g, true
	}
	k.opts.Log.Warn("a workload is not registered: there is no such WorkloadGroup; add it, or mend AUTO_REGISTER_GROUP", "workloadEntry", key.String(),
		"group", p.Namespace+"/"+p.Group, "proxy", p.ID)
	return nil, false
}

// failed is called with mu held.
func (k *Keeper) failed(ctx context.Context, key Key, err error) {
	least, quiet := retryMin, false
	if errors.Is(err, ErrConflict) {
		least, quiet = conflict, k.waits[key] < retryMin
	}
	wait := min(max(2*k.waits[key], least), retryMax)
	k.waits[key] = wait
	if !quiet && ctx.Err() == nil {
		k.opts.Log.Warn("a workload is not registered as it should be; it is tried again", "workloadEntry", key.String(), "err", err)
	}
	k.soon(key, wait)
}

// register makes or mends the entry of a connected proxy, and gives the version that is this replica's.
func (k *Keeper) register(ctx context.Context, key Key, now *known, group *networking.WorkloadGroup) (string, error) {
	have, err := k.opts.Entries.Get(ctx, key)
	if err != nil {
		return "", err
	}
	want, err := k.wanted(have, now, group)
	switch {
	case err != nil:
		return "", err
	case have != nil && have.same(want):
		return have.removable(), nil
	case have != nil && k.moved(have, now.since):
		return "", nil
	}
	k.opts.Log.Debug("a workload is registered", "workloadEntry", key.String(), "proxy", now.last.ID)
	return k.put(ctx, want)
}

// put gives the version of what is written, as removable does.
func (k *Keeper) put(ctx context.Context, e *Entry) (string, error) {
	version, err := k.opts.Entries.Put(ctx, e)
	if err != nil || !e.ofGroup() {
		return "", err
	}
	return version, nil
}

// moved reports whether the proxy has come to another replica since it came to this one, which an open stream need not know.
func (k *Keeper) moved(have *Entry, since time.Time) bool {
	at, err := time.Parse(time.RFC3339Nano, have.Annotations[AnnotationConnected])
	_, gone := have.goneSince()
	return err == nil && !gone && have.Annotations[AnnotationController] != k.opts.Controller && at.After(since)
}

// wanted gives the entry as it is to be.
func (k *Keeper) wanted(have *Entry, now *known, group *networking.WorkloadGroup) (*Entry, error) {
	p := now.last
	var want *Entry
	switch {
	case group != nil:
		if have != nil && !have.ofGroup() {
			return nil, fmt.Errorf("there is a WorkloadEntry of that name that is not of a group: remove or rename it")
		}
		want = made(group, p, k.opts.Controller, now.since)
	case have == nil:
		return nil, fmt.Errorf("there is no such WorkloadEntry: add it, or mend WORKLOAD_ENTRY of %s", p.ID)
	default:
		want = have.clone()
		want.connect(k.opts.Controller, now.since)
	}
	if have != nil {
		want.Version, want.Health = have.Version, have.Health
	}
	if now.health != nil {
		want.Health = now.health
	}
	return want, nil
}

// leave notes that a proxy has gone, and removes the entry once it has been away for long enough. It gives how long to
// wait until then. To remove an entry that is as this replica has left it takes no more than that: when many go at once, all
// of them are to be gone soon.
func (k *Keeper) leave(ctx context.Context, key Key, now *known) (version string, after time.Duration, err error) {
	if now.version != "" && k.overdue(now.gone) {
		return "", 0, k.remove(ctx, &Entry{Key: key, Version: now.version})
	}
	have, err := k.opts.Entries.Get(ctx, key)
	if err != nil || have == nil || have.Annotations[AnnotationController] != k.opts.Controller {
		return "", 0, err // removed, or its proxy has come to another replica
	}
	if have.ofGroup() && k.overdue(now.gone) {
		return "", 0, k.remove(ctx, have)
	}
	version = have.removable()
	if _, noted := have.goneSince(); !noted {
		next := have.clone()
		next.Annotations[AnnotationDisconnected] = now.gone.UTC().Format(time.RFC3339Nano)
		if have.Annotations[annotationHealthChecks] == "true" {
			next.Health = &Health{Message: "the proxy is not connected"}
		}
		if version, err = k.put(ctx, next); err != nil {
			return "", 0, err
		}
	}
	if !have.ofGroup() {
		return "", 0, nil
	}
	return version, max(time.Until(now.gone.Add(k.opts.Grace)), time.Nanosecond), nil
}

func (k *Keeper) remove(ctx context.Context, e *Entry) error {
	k.opts.Log.Debug("a workload is registered no more", "workloadEntry", e.String())
	return k.opts.Entries.Delete(ctx, e)
}

// overdue reports whether a proxy has been away for so long that its entry is to go.
func (k *Keeper) overdue(gone time.Time) bool {
	return !gone.IsZero() && time.Since(gone) >= k.opts.Grace
}
