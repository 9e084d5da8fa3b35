package workloadgroup

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// sweep looks for entries whose proxies have gone for good: a replica noted it and did not live to remove them, or did not
// live to note it.
func (k *Keeper) sweep(ctx context.Context) {
	if err := k.sweepAll(ctx); err != nil && ctx.Err() == nil {
		k.opts.Log.Warn("entries of workloads that are gone are not all removed; it is tried again", "err", err)
	}
}

func (k *Keeper) sweepAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 6*patience)
	defer cancel()
	alive, err := k.opts.Entries.Alive(ctx, k.opts.Controller)
	if err != nil {
		return fmt.Errorf("find out which replicas live: %w", err)
	}
	list, err := k.opts.Entries.List(ctx)
	if err != nil {
		return err
	}
	k.mend(list)
	var failed []error
	for _, e := range list {
		if err := k.abandoned(ctx, e, alive); err != nil && !errors.Is(err, ErrConflict) {
			failed = append(failed, fmt.Errorf("WorkloadEntry %s: %w", e, err))
		}
	}
	return errors.Join(failed...)
}

// mend has entries of connected proxies looked at that are not as they were left: another replica may have taken this one for
// dead.
func (k *Keeper) mend(list []*Entry) {
	have := make(map[Key]*Entry, len(list))
	for _, e := range list {
		have[e.Key] = e
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, e := range k.known {
		if len(e.streams) == 0 || e.last.Group == "" {
			continue
		}
		x := have[key]
		if x == nil {
			k.soon(key, 0)
		} else if _, gone := x.goneSince(); gone || x.Annotations[AnnotationController] != k.opts.Controller && !k.moved(x, e.since) {
			k.soon(key, 0)
		}
	}
}

// abandoned notes or removes an entry that nobody sees to.
func (k *Keeper) abandoned(ctx context.Context, e *Entry, alive map[string]bool) error {
	at, gone := e.goneSince()
	switch {
	case k.knows(e.Key):
		return nil
	case gone && time.Since(at) >= 2*k.opts.Grace: // who noted it would have removed it by now
		return k.opts.Entries.Delete(ctx, e)
	case gone, alive[e.Annotations[AnnotationController]] && e.Annotations[AnnotationController] != k.opts.Controller:
		return nil
	}
	next := e.clone()
	next.Annotations[AnnotationDisconnected] = time.Now().UTC().Format(time.RFC3339Nano)
	_, err := k.opts.Entries.Put(ctx, next)
	return err
}

func (k *Keeper) knows(key Key) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.known[key]
	return ok
}
