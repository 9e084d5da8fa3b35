package kubeapi

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
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// Store is what a feed fills, from one goroutine. Names are as the server gives them, but cut to a byte more than
// may be; whatever else is odd about them is the store's to judge.
type Store interface {
	// Set is given an object as it is now, for the store to keep and to change.
	Set(types.NamespacedName, runtime.Object)
	Remove(types.NamespacedName)
	// Complete tells that what was set since the last call is all there is: these names.
	Complete(seen map[types.NamespacedName]struct{})
	// Lacking reports that something was left out for which there is room now.
	Lacking() bool
}

// Feed keeps a store equal to what the API server holds of one kind: it lists, then watches. A watch that
// ends is opened anew where it ended: only when the server no longer has what came since is the kind listed
// again.
//
// It is not a client-go reflector because of how that behaves when an API server is in trouble: it lists
// everything again after a watch of less than a second, hides from whoever it works for how requests went, waits
// without regard to the end of its context, and holds all pages of a list at once.
type Feed struct {
	// Missing is told when the server says that it does not serve the kind; nil if nobody asks. It is set before
	// the feed runs.
	Missing func()

	client  *Client
	rest    *rest.RESTClient
	at      Place
	page    func() runtime.Object // an empty page
	accept  string                // if it is not the client's own; lists have "List" in the place of *
	store   Store
	outcome func(op string, err error)                // how a request went
	pause   func(context.Context, time.Duration) bool // between requests
	size    int64                                     // of a page; 0 for pageSize
}

// Feed makes a feed that goes by a name in the client's Contact. The type of its pages says how objects are read: a
// list of corev1 or discoveryv1, a RawList of custom objects, or a metav1.PartialObjectMetadataList of names alone.
func (c *Client) Feed(name string, at Place, need Need, page func() runtime.Object, to Store) *Feed {
	f := &Feed{client: c, rest: c.core, at: at, page: page, store: to, outcome: c.Track(name, at, need), pause: c.Pause}
	switch page().(type) {
	case *metav1.PartialObjectMetadataList:
		f.rest, f.accept = c.custom, "application/json;as=PartialObjectMetadata*;g=meta.k8s.io;v=v1"
	case *RawList:
		f.rest = c.custom
	}
	return f
}

// Run follows the kind until ctx ends. Nothing of it runs afterwards.
func (f *Feed) Run(ctx context.Context) {
	retry := f.client.Backoff()
	for ctx.Err() == nil {
		rv, err := f.list(ctx)
		if err == nil && !f.store.Lacking() {
			began := time.Now()
			f.follow(ctx, rv)
			if time.Since(began) > settled {
				retry.Reset()
			}
		}
		if !f.pause(ctx, retry.After(err)) {
			return
		}
	}
}

// tell says how a request went.
func (f *Feed) tell(op string, err error) {
	f.outcome(op, err)
	if f.Missing != nil && apierrors.IsNotFound(err) {
		f.Missing()
	}
}

// settled is how long something must go well before what follows is new trouble.
const settled = 10 * time.Second

// list reads all pages into the store and gives their revision. It asks for what is true now: a server
// that lags behind would show the cluster as it was before. When the pages are too old to go on from it
// begins again, once. Pages are smaller for a while after one that was too much.
func (f *Feed) list(ctx context.Context) (revision string, err error) {
	size := cmp.Or(f.size, pageSize)
	seen := map[types.NamespacedName]struct{}{}
	next := metav1.ListOptions{Limit: size}
	for pages, again := 1, false; ; pages++ {
		began := time.Now()
		page := f.page()
		err := f.client.list(ctx, f.request(next), page)
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if outdated(err) && next.Continue != "" && !again {
			next.Continue, again = "", true
			clear(seen)
			continue
		}
		if err == nil {
			f.client.opts.Listed(meta.LenList(page), time.Since(began))
			err = f.take(page, seen)
		}
		m, _ := meta.ListAccessor(page)
		if err == nil && m.GetContinue() != "" && pages > 10+2*f.client.opts.MaxObjects/int(size) {
			err = errNoEnd
		}
		f.tell("list", err)
		if errors.Is(err, errTooMuch) {
			f.size = max(size/8, 1)
		}
		if err != nil {
			return "", err
		}
		if next.Continue = m.GetContinue(); next.Continue == "" {
			f.size = min(2*size, pageSize)
			f.store.Complete(seen)
			return m.GetResourceVersion(), nil
		}
	}
}

// errNoEnd is a list of too many objects, or pages.
var errNoEnd = fmt.Errorf("%w: it does not end", ErrUnreadable)

func (f *Feed) take(page runtime.Object, seen map[types.NamespacedName]struct{}) error {
	err := meta.EachListItemWithAlloc(page, func(o runtime.Object) error {
		m, err := meta.Accessor(o)
		if err != nil {
			return err
		}
		n := nameOf(m)
		seen[n] = struct{}{}
		f.store.Set(n, o)
		return nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUnreadable, err)
	case len(seen) > 2*f.client.opts.MaxObjects:
		return errNoEnd
	}
	return nil
}

// follow watches from a revision until ctx ends or the server can't go on from where the last watch ended, or
// gives an event that can't be read.
func (f *Feed) follow(ctx context.Context, revision string) {
	retry := f.client.Backoff()
	for ctx.Err() == nil {
		began := time.Now()
		// Not for ever: when it opens anew the server looks at the credential and at its rights again.
		seconds := int64(300 + rand.IntN(300))
		w, err := f.client.watch(ctx, f.request(metav1.ListOptions{
			Watch: true, ResourceVersion: revision, TimeoutSeconds: &seconds, AllowWatchBookmarks: true,
		}))
		if err == nil {
			f.tell("watch", nil)
			revision, err = f.consume(w, revision)
		}
		switch {
		case ctx.Err() != nil || outdated(err) || f.store.Lacking():
			return
		case errors.Is(err, ErrUnreadable):
			f.tell("watch", err)
			return
		case err != nil:
			f.tell("watch", err)
		case time.Since(began) > settled:
			retry.Reset()
			continue
		}
		if !f.pause(ctx, retry.After(err)) {
			return
		}
	}
}

// unreadableEvent is the cause that client-go gives when it can't decode an event.
const unreadableEvent = "ClientWatchDecoding"

// consume takes events until the watch ends, and gives the revision to go on from.
func (f *Feed) consume(w watch.Interface, revision string) (string, error) {
	defer w.Stop()
	for ev := range w.ResultChan() {
		if ev.Type == watch.Error {
			err := apierrors.FromObject(ev.Object)
			if apierrors.HasStatusCause(err, unreadableEvent) {
				err = ErrUnreadable // the same event would come again
			}
			return revision, err
		}
		m, err := meta.Accessor(ev.Object)
		if err != nil {
			return revision, fmt.Errorf("%w: %w", ErrUnreadable, err)
		}
		switch ev.Type {
		case watch.Added, watch.Modified:
			f.store.Set(nameOf(m), ev.Object)
		case watch.Deleted:
			f.store.Remove(nameOf(m))
		}
		revision = m.GetResourceVersion()
	}
	return revision, nil
}

func (f *Feed) request(o metav1.ListOptions) *rest.Request {
	r := f.client.request(f.rest, f.at, o)
	if f.accept != "" {
		part := "List"
		if o.Watch {
			part = ""
		}
		r = r.SetHeader("Accept", strings.Replace(f.accept, "*", part, 1))
	}
	return r
}

// longestName is how much of a name is kept: one byte more than may be.
const longestName = validation.DNS1123SubdomainMaxLength + 1

// nameOf gives the name of an object as it is kept.
func nameOf(m metav1.Object) types.NamespacedName {
	short := func(s string) string { return strings.Clone(s[:min(len(s), longestName)]) }
	n := types.NamespacedName{Namespace: m.GetNamespace(), Name: m.GetName()}
	if max(len(n.Namespace), len(n.Name)) > longestName {
		n = types.NamespacedName{Namespace: short(n.Namespace), Name: short(n.Name)}
	}
	return n
}

// outdated reports that the server can't go on from a revision: it is too old, or, after a restore from a
// backup, ahead of the server's own.
func outdated(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsBadRequest(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}
