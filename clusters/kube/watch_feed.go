package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// store is what a feed fills, from one goroutine.
type store interface {
	set(runtime.Object)
	remove(runtime.Object)
	// complete tells that what was set since the last call is all there is: these keys.
	complete(seen map[types.NamespacedName]struct{})
	// lacking reports that something was left out for which there is room now.
	lacking() bool
}

// feed keeps a store equal to what the API server holds of one kind: it lists, then watches. A watch that
// ends is opened anew where it ended: only when the server no longer has what came since is the kind listed
// again.
//
// It is not a client-go reflector because of how that behaves when an API server is in trouble: it lists
// everything again after a watch that was short, hides from whoever it works for how requests went, waits
// without regard to the end of its context, and holds all pages of a list at once.
type feed struct {
	api     *api
	timing  Timing
	limit   int // a list that is more than twice as long is given up
	at      place
	client  *rest.RESTClient
	page    func() runtime.Object // an empty page
	accept  string                // if it is not the client's own; lists have "List" in the place of *
	store   store
	outcome func(op string, err error) // how a request went
	pause   func(context.Context, time.Duration) bool
	listed  func(objects int, took time.Duration)
	size    int64 // of a page; 0 for pageSize
}

// run follows the kind until ctx ends. Nothing of it runs afterwards.
func (f *feed) run(ctx context.Context) {
	retry := f.timing.backoff()
	for ctx.Err() == nil {
		rv, err := f.list(ctx)
		if err == nil && !f.store.lacking() {
			began := time.Now()
			f.follow(ctx, rv)
			if time.Since(began) > settled {
				retry.reset()
			}
		}
		if !f.pause(ctx, retry.after(err)) {
			return
		}
	}
}

// settled is how long something must go well before what follows is new trouble.
const settled = 10 * time.Second

// list reads all pages into the store and gives their revision. It asks for what is true now: a server
// that lags behind would show the cluster as it was before. When the pages are too old to go on from it
// begins again, once. Pages are smaller for a while after one that was too much.
func (f *feed) list(ctx context.Context) (revision string, err error) {
	size := cmp.Or(f.size, pageSize)
	seen := map[types.NamespacedName]struct{}{}
	next := metav1.ListOptions{Limit: size}
	for pages, again := 1, false; ; pages++ {
		began := time.Now()
		page := f.page()
		err := f.api.list(ctx, f.request(next), page)
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if outdated(err) && next.Continue != "" && !again {
			next.Continue, again = "", true
			clear(seen)
			continue
		}
		if err == nil {
			f.listed(meta.LenList(page), time.Since(began))
			err = f.take(page, seen)
		}
		m, _ := meta.ListAccessor(page)
		if err == nil && m.GetContinue() != "" && pages > 10+2*f.limit/int(size) {
			err = errNoEnd
		}
		f.outcome("list", err)
		if errors.Is(err, errTooMuch) {
			f.size = max(size/8, 1)
		}
		if err != nil {
			return "", err
		}
		if next.Continue = m.GetContinue(); next.Continue == "" {
			f.size = min(2*size, pageSize)
			f.store.complete(seen)
			return m.GetResourceVersion(), nil
		}
	}
}

// errNoEnd is a list of too many objects, or pages.
var errNoEnd = fmt.Errorf("%w: it does not end", errUnreadable)

func (f *feed) take(page runtime.Object, seen map[types.NamespacedName]struct{}) error {
	err := meta.EachListItemWithAlloc(page, func(o runtime.Object) error {
		m, err := meta.Accessor(o)
		if err != nil {
			return err
		}
		seen[nameOf(m)] = struct{}{}
		f.store.set(o)
		return nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errUnreadable, err)
	case len(seen) > 2*f.limit:
		return errNoEnd
	}
	return nil
}

// follow watches from a revision until ctx ends or the server can't go on from where the last watch ended, or
// gives an event that can't be read.
func (f *feed) follow(ctx context.Context, revision string) {
	retry := f.timing.backoff()
	for ctx.Err() == nil {
		began := time.Now()
		// Not for ever: when it opens anew the server looks at the credential and at its rights again.
		seconds := int64(300 + rand.IntN(300))
		w, err := f.api.watch(ctx, f.request(metav1.ListOptions{
			Watch: true, ResourceVersion: revision, TimeoutSeconds: &seconds, AllowWatchBookmarks: true,
		}))
		if err == nil {
			f.outcome("watch", nil)
			revision, err = f.consume(w, revision)
		}
		switch {
		case ctx.Err() != nil || outdated(err) || f.store.lacking():
			return
		case errors.Is(err, errUnreadable):
			f.outcome("watch", err)
			return
		case err != nil:
			f.outcome("watch", err)
		case time.Since(began) > settled:
			retry.reset()
			continue
		}
		if !f.pause(ctx, retry.after(err)) {
			return
		}
	}
}

// unreadableEvent is the cause that client-go gives when it can't decode an event.
const unreadableEvent = "ClientWatchDecoding"

// consume takes events until the watch ends, and gives the revision to go on from.
func (f *feed) consume(w watch.Interface, revision string) (string, error) {
	defer w.Stop()
	for ev := range w.ResultChan() {
		if ev.Type == watch.Error {
			err := apierrors.FromObject(ev.Object)
			if apierrors.HasStatusCause(err, unreadableEvent) {
				err = errUnreadable // the same event would come again
			}
			return revision, err
		}
		m, err := meta.Accessor(ev.Object)
		if err != nil {
			return revision, fmt.Errorf("%w: %w", errUnreadable, err)
		}
		switch ev.Type {
		case watch.Added, watch.Modified:
			f.store.set(ev.Object)
		case watch.Deleted:
			f.store.remove(ev.Object)
		}
		revision = m.GetResourceVersion()
	}
	return revision, nil
}

func (f *feed) request(o metav1.ListOptions) *rest.Request {
	r := f.api.request(f.client, f.at, o)
	if f.accept != "" {
		part := "List"
		if o.Watch {
			part = ""
		}
		r = r.SetHeader("Accept", strings.Replace(f.accept, "*", part, 1))
	}
	return r
}

// outdated reports that the server can't go on from a revision: it is too old, or, after a restore from a
// backup, ahead of the server's own.
func outdated(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsBadRequest(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// backoff gives the pauses between attempts. It is used by one goroutine.
type backoff struct {
	timing Timing
	next   time.Duration
	began  time.Time // when the pauses were short last
	silent bool      // the last attempt had no answer
}

func (t Timing) backoff() backoff { return backoff{timing: t, next: t.Retry} }

func (b *backoff) reset() { b.next, b.began = b.timing.Retry, time.Now() }

// after gives the pause after an attempt: short at first, then longer and longer; what the server asks
// for, within bounds. The pauses are short again when a server that did not answer does: what it says
// while it starts is not true for long.
func (b *backoff) after(err error) time.Duration {
	silent := err != nil && !answered(err)
	if b.silent && !silent && time.Since(b.began) > settled {
		b.reset()
	}
	b.silent = silent
	d := b.next
	b.next = min(2*b.next, b.timing.RetryMax)
	if s, ok := apierrors.SuggestsClientDelay(err); ok {
		d = max(d, min(time.Duration(s)*time.Second, b.timing.RetryMax))
	}
	return jitter(d)
}

// jitter adds up to a half, so that many feeds and hubs do not return at once.
func jitter(d time.Duration) time.Duration { return d + time.Duration(rand.Int64N(int64(d/2)+1)) }

// pause reports whether ctx has not ended meanwhile.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
