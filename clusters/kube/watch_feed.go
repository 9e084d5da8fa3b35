package kube

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// feed keeps a store equal to what the API server holds of one kind. A client-go reflector lists and
// watches through it, so the feed sees how each request went, tells it, and waits before the next.
//
// A watch that ends is opened anew where it ended: only when the server no longer has what came since is
// the kind listed again.
type feed struct {
	api     *api
	at      place
	client  *rest.RESTClient
	page    func() runtime.Object // an empty page
	accept  string                // if it is not the client's own; lists have "List" in the place of *
	store   cache.ReflectorStore
	outcome func(op string, err error) // how a request went
	pause   func(context.Context, time.Duration) bool
	listed  func(objects int, took time.Duration)

	lists sync.WaitGroup
	retry backoff // of watches, used by the reflector's goroutine alone
}

// run follows the kind until ctx ends. Nothing of it runs afterwards.
func (f *feed) run(ctx context.Context) {
	defer f.lists.Wait()
	ctx = klog.NewContext(ctx, logr.Discard()) // outcomes say it all, and not each time
	quiet := logr.Discard()
	r := cache.NewReflectorWithOptions(f, nil, f.store, cache.ReflectorOptions{Name: f.at.resource, TypeDescription: f.at.resource, Logger: &quiet})
	wait := f.api.timing.backoff()
	f.retry = f.api.timing.backoff()
	for ctx.Err() == nil {
		began := time.Now()
		err := r.ListAndWatchWithContext(ctx)
		if time.Since(began) > time.Minute {
			wait.reset()
		}
		if !f.pause(ctx, wait.after(err)) {
			return
		}
	}
}

// IsWatchListSemanticsUnSupported makes the reflector read pages rather than a stream: it would sleep
// through the end of its context while a stream can't be opened.
func (f *feed) IsWatchListSemanticsUnSupported() bool { return true }

// ListWithContext implements cache.ListerWithContext. It always asks for what is true now: a server that
// lags behind would show a cluster as it was before.
func (f *feed) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	f.lists.Add(1)
	defer f.lists.Done()
	began := time.Now()
	out := f.page()
	limit := int64(pageSize)
	if o.Continue != "" && o.Limit > 0 {
		limit = o.Limit
	}
	err := f.api.list(ctx, f.request(metav1.ListOptions{Limit: limit, Continue: o.Continue}), out)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	f.outcome("list", err)
	if err != nil {
		return nil, err
	}
	f.listed(meta.LenList(out), time.Since(began))
	return out, meta.EachListItem(out, func(o runtime.Object) error { trim(o); return nil })
}

// WatchWithContext implements cache.WatcherWithContext. It tries until the watch is open, or until
// another attempt from the same revision is in vain.
func (f *feed) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	for {
		w, err := f.api.watch(ctx, f.request(metav1.ListOptions{
			Watch: true, ResourceVersion: o.ResourceVersion, TimeoutSeconds: o.TimeoutSeconds, AllowWatchBookmarks: true,
		}))
		if ctx.Err() != nil {
			if err == nil {
				w.Stop()
			}
			return nil, ctx.Err()
		}
		if outdated(err) {
			return nil, err
		}
		f.outcome("watch", err)
		if err == nil {
			f.retry.reset()
			return w, nil
		}
		if !f.pause(ctx, f.retry.after(err)) {
			return nil, ctx.Err()
		}
	}
}

// List implements cache.Lister.
func (f *feed) List(o metav1.ListOptions) (runtime.Object, error) {
	return f.ListWithContext(context.Background(), o)
}

// Watch implements cache.Watcher.
func (f *feed) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return f.WatchWithContext(context.Background(), o)
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

// outdated reports that a revision is no longer, or not yet, known to the server: after a restore from a
// backup it may be ahead of it.
func outdated(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// backoff gives the pauses between attempts. It is used by one goroutine.
type backoff struct {
	timing Timing
	next   time.Duration
}

func (t Timing) backoff() backoff { return backoff{timing: t, next: t.Retry} }

func (b *backoff) reset() { b.next = b.timing.Retry }

// after gives the pause after an attempt: short at first; long if what was refused needs somebody to act;
// what the server asks for, within bounds.
func (b *backoff) after(err error) time.Duration {
	if apierrors.IsForbidden(err) {
		return jitter(b.timing.Denied)
	}
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
