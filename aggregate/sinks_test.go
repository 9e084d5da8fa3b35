package aggregate_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/holdback"
	"github.com/isthmus-mesh/isthmus/clusters/lastgood"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// locking is a registry that holds its lock whenever it says something, and takes it for whatever it is asked.
type locking struct {
	key model.ShardKey
	mu  *sync.Mutex
	say func(model.Sink)
}

func (l *locking) Key() model.ShardKey {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.key
}

// Run implements model.Registry: several goroutines say everything many times.
func (l *locking) Run(ctx context.Context, out model.Sink) error {
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 50 {
				l.mu.Lock()
				l.say(out)
				l.mu.Unlock()
			}
		})
	}
	all.Wait()
	<-ctx.Done()
	return ctx.Err()
}

// TestSinksCallNobodyBack: what passes rows on holds its lock meanwhile, which is safe only if what takes them asks nothing of it. The
// mailbox is the last, with the wrappers that hold locks themselves before it; a registry is replaced by ever new ones while it speaks.
func TestSinksCallNobodyBack(t *testing.T) {
	t.Parallel()
	store, err := lastgood.Open(lastgood.Options{Dir: t.TempDir(), Every: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	k, ended := kube("c1"), make(chan struct{})
	var mu, held sync.Mutex
	before := &holdback.Handover{}
	policy := *api.RegistrySpec{}.Effective("ns").Empty
	say := func(out model.Sink) {
		out.Replace(state(service(k, "a"), slice(k, "a", "a-1", "10.0.0.1")))
		out.Put(model.Event{Row: rowOf(slice(k, "a", "a-1")), Obj: slice(k, "a", "a-1")})
		out.Status(model.Status{State: model.StateStale, Err: "gone"})
		out.Status(model.Status{State: model.StateLive})
	}
	c := aggregate.New(aggregate.Options{Hub: pushcontext.NewHub(nil)})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		defer close(ended)
		var running sync.WaitGroup
		running.Go(func() { _ = c.Run(ctx) })
		for range 5 {
			inner := holdback.Wrap(&locking{key: k, mu: &mu, say: say}, holdback.Options{Policy: policy, Before: before, Held: func(holdback.Held) {
				held.Lock() // a metric
				defer held.Unlock()
			}})
			c.Attach(store.Wrap(inner, lastgood.Terms{}))
		}
		c.Detach(k)
		cancel()
		running.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(2 * time.Minute):
		t.Fatal("somebody waits for a lock that is held by who waits for him")
	}
}
