package secrets

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// contact asks the API server for the Secrets that count, and keeps an eye on whether it answers.
type contact struct {
	SecretOptions
	watches sync.WaitGroup

	mu   sync.Mutex
	last string // guarded by mu: why there is none, "" if there is
}

// listWatch lists what is true now, for a server that lags behind would bring back what has gone; and it lists plainly:
// the client library hides how a list that is streamed has failed.
func (c *contact) listWatch(client kubernetes.Interface) cache.ListerWatcher {
	api := client.CoreV1().Secrets(c.Namespace)
	const selector = Label + "=true"
	return plain{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, l metav1.ListOptions) (runtime.Object, error) {
			l.LabelSelector = selector
			if l.ResourceVersion == "0" {
				l.ResourceVersion = ""
			}
			list, err := api.List(ctx, l)
			if err == nil && list.ResourceVersion == "" {
				err = errNoList
			}
			c.note(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, l metav1.ListOptions) (watch.Interface, error) {
			l.LabelSelector = selector
			w, err := api.Watch(ctx, l)
			if err != nil {
				c.note(ctx, err)
				return w, err
			}
			return c.observe(ctx, w), nil
		},
	}}
}

// plain is a source whose lists are not streamed.
type plain struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported tells the client library.
func (plain) IsWatchListSemanticsUnSupported() bool { return true }

// errNoList is what somebody else than an API server gives: taken for a list, it would be an empty one.
var errNoList = errors.New("what the API server gives is no list of Secrets")

// note tells what has changed, and not each try.
func (c *contact) note(ctx context.Context, err error) {
	text := ""
	switch {
	case ctx.Err() != nil || apierrors.IsResourceExpired(err): // it is not out of reach
		return
	case err != nil:
		err = cause(err)
		text = err.Error()
	}
	c.mu.Lock()
	same := text == c.last
	c.last = text
	c.mu.Unlock()
	switch {
	case same:
		return
	case err != nil:
		c.Log.Warn("secrets of remote clusters can't be read; the clusters stay as they are", "namespace", c.Namespace, "err", err)
	default:
		c.Log.Info("secrets of remote clusters can be read again", "namespace", c.Namespace)
	}
	if c.OnContact != nil {
		c.OnContact(err)
	}
}

// cause leaves out of an error what differs from one attempt to the next: the parameters of the request, and the ports of
// the connection.
func cause(err error) error {
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	var conn *net.OpError
	if errors.As(err, &conn) && conn.Op != "dial" {
		err = fmt.Errorf("%s: %w", conn.Op, conn.Err)
	}
	return err
}

// errEnded is all that is known when the client library gives up on a connection that is reset again and again: it
// then pretends that a watch was opened and has ended.
var errEnded = errors.New("the connection to the API server ends before it answers")

// brief is how long a watch without any event must last to have been one.
const brief = time.Second

// observe passes the events of a watch on. The first is a sign of contact; that a watch was opened is none.
func (c *contact) observe(ctx context.Context, w watch.Interface) watch.Interface {
	o := &observed{Interface: w, events: make(chan watch.Event), stopped: make(chan struct{})}
	opened := time.Now()
	c.watches.Go(func() {
		defer close(o.events)
		answered := false
		for ev := range w.ResultChan() {
			if !answered && ev.Type != watch.Error {
				answered = true
				c.note(ctx, nil)
			}
			select {
			case o.events <- ev:
			case <-o.stopped: // and what is left is dropped
			}
		}
		if !answered && time.Since(opened) < brief && !o.ended() {
			c.note(ctx, errEnded)
		}
	})
	return o
}

// observed is a watch whose events are looked at.
type observed struct {
	watch.Interface
	events  chan watch.Event
	stopped chan struct{}
	once    sync.Once
}

// ResultChan implements watch.Interface.
func (o *observed) ResultChan() <-chan watch.Event { return o.events }

// Stop implements watch.Interface.
func (o *observed) Stop() {
	o.once.Do(func() { close(o.stopped) })
	o.Interface.Stop()
}

func (o *observed) ended() bool {
	select {
	case <-o.stopped:
		return true
	default:
		return false
	}
}
