package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Proxy is one stream's identity. Proxies of one Class are sent the same clusters and listeners.
type Proxy struct {
	Class string
	Group string // what a watch may be limited to, the proxy's network for example
	Node  []byte // encoded envoy.config.core.v3.Node, sent on a stream's first message
}

// Options are read-only after New.
type Options struct {
	Addr     string // of a plaintext ADS server
	Delta    bool
	Proxies  []Proxy
	Together int  // how many may be connecting at one time; 0 = all
	Record   bool // keep the first whole response of each type, for Recorded
}

// Fleet is a set of streams, each on a TCP connection of its own.
type Fleet struct {
	opts    Options
	catalog *catalog
	stop    context.CancelFunc
	done    sync.WaitGroup
	ready   []readiness
	gate    chan struct{} // nil, or as many tokens as proxies may connect together

	watches  atomic.Pointer[[]*Watch]
	traffic  traffic
	refused  atomic.Int64
	broken   atomic.Int64
	apart    atomic.Bool // virtual hosts are sent on their own
	fault    atomic.Pointer[string]
	mu       sync.Mutex
	recorded map[string][]byte // guarded by mu; by type URL
}

// readiness is when a proxy began to connect and when it had all types.
type readiness struct {
	began, done time.Time
	once        sync.Once
	signal      chan struct{}
}

type traffic struct{ messages, received, sent atomic.Int64 }

// Traffic counts responses and the bytes of both directions.
type Traffic struct{ Messages, Received, Sent int64 }

// Start opens all streams. They live until Close or the end of ctx.
func Start(ctx context.Context, opts Options) (*Fleet, error) {
	ctx, stop := context.WithCancel(ctx)
	f := &Fleet{opts: opts, catalog: newCatalog(), stop: stop, ready: make([]readiness, len(opts.Proxies)), recorded: map[string][]byte{}}
	if opts.Together > 0 {
		f.gate = make(chan struct{}, opts.Together)
	}
	for i := range opts.Proxies {
		f.ready[i].signal = make(chan struct{})
		conn, err := dial(opts.Addr)
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("dial %s: %w", opts.Addr, err)
		}
		f.done.Go(func() {
			defer func() { _ = conn.Close() }()
			f.live(ctx, i, conn)
		})
	}
	return f, nil
}

// Close ends all streams and waits for them.
func (f *Fleet) Close() {
	f.stop()
	f.done.Wait()
}

// window is how much a stream may have in flight; Envoy's is larger still.
const window = 1 << 20

func dial(addr string) (*grpc.ClientConn, error) {
	return grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30), grpc.ForceCodecV2(codec{})))
}

const (
	firstBackoff = 500 * time.Millisecond
	lastBackoff  = 10 * time.Second
)

// live keeps one proxy connected: as Envoy does, it opens a stream that was refused or broke again
// after a jittered back-off.
func (f *Fleet) live(ctx context.Context, i int, conn *grpc.ClientConn) {
	if f.gate != nil {
		select {
		case f.gate <- struct{}{}:
		case <-ctx.Done():
			return
		}
	}
	f.ready[i].began = time.Now()
	for backoff := firstBackoff; ctx.Err() == nil; backoff = min(2*backoff, lastBackoff) {
		err := f.stream(ctx, i, conn)
		if ctx.Err() != nil {
			return
		}
		f.count(i, err)
		select {
		case <-time.After(rand.N(backoff)):
		case <-ctx.Done():
		}
	}
}

func (f *Fleet) count(i int, err error) {
	if !f.isReady(i) {
		f.refused.Add(1)
	} else {
		f.broken.Add(1)
	}
	text := fmt.Sprintf("proxy %d: %v", i, err)
	f.fault.Store(&text)
}

func (f *Fleet) isReady(i int) bool {
	select {
	case <-f.ready[i].signal:
		return true
	default:
		return false
	}
}

func (f *Fleet) markReady(i int, at time.Time) {
	r := &f.ready[i]
	r.once.Do(func() {
		r.done = at
		close(r.signal)
		if f.gate != nil {
			<-f.gate
		}
	})
}

// Connected says how the proxies became ready.
type Connected struct {
	Each    []time.Duration // from a proxy's own start, in order of proxies
	All     time.Duration   // from the first start until the last was ready
	Refused int             // streams that ended before their proxy was ready
}

// AwaitReady waits until every proxy has had all types.
func (f *Fleet) AwaitReady(ctx context.Context) (Connected, error) {
	var c Connected
	var first, end time.Time
	for i := range f.ready {
		select {
		case <-f.ready[i].signal:
		case <-ctx.Done():
			return c, fmt.Errorf("proxy %d of %d is not ready: %w%s", i, len(f.ready), ctx.Err(), f.lastFault())
		}
		r := &f.ready[i]
		c.Each = append(c.Each, r.done.Sub(r.began))
		if first.IsZero() || r.began.Before(first) {
			first = r.began
		}
		if r.done.After(end) {
			end = r.done
		}
	}
	c.All, c.Refused = end.Sub(first), int(f.refused.Load())
	return c, nil
}

// Ready is the number of proxies that have had all types.
func (f *Fleet) Ready() (n int) {
	for i := range f.ready {
		if f.isReady(i) {
			n++
		}
	}
	return n
}

// Broken gives the number of streams that ended after their proxy was ready, and the last error.
func (f *Fleet) Broken() (int, error) {
	n := int(f.broken.Load())
	if n == 0 {
		return 0, nil
	}
	return n, errors.New(strings.TrimPrefix(f.lastFault(), "; last error: "))
}

func (f *Fleet) lastFault() string {
	if s := f.fault.Load(); s != nil {
		return "; last error: " + *s
	}
	return ""
}

// Traffic gives the totals so far.
func (f *Fleet) Traffic() Traffic {
	t := &f.traffic
	return Traffic{Messages: t.messages.Load(), Received: t.received.Load(), Sent: t.sent.Load()}
}

// Recorded gives the first response of a type, encoded.
func (f *Fleet) Recorded(typeURL string) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.recorded[typeURL]
}

// Routes is the type that brings a new service's routes.
func (f *Fleet) Routes() string {
	if f.apart.Load() {
		return VirtualHostURL
	}
	return RouteURL
}
