package kubeapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
)

// Timing says how soon a dead API server is noticed and how often things are tried again. Zero fields
// take their defaults.
type Timing struct {
	Dial time.Duration // for a connection, and again for its TLS handshake; 10 s
	Ping time.Duration // a connection that is silent for so long is asked for a sign of life; 10 s
	Pong time.Duration // in which it must answer; 5 s
	List time.Duration // for one page of a list; 60 s

	Retry    time.Duration // first pause after a failure; doubles; 200 ms
	RetryMax time.Duration // longest pause, also before a right that was granted is noticed; 12 s, plus up to half of it
}

func (t Timing) withDefaults() Timing {
	def := func(d *time.Duration, v time.Duration) { *d = cmp.Or(*d, v) }
	def(&t.Dial, 10*time.Second)
	def(&t.Ping, 10*time.Second)
	def(&t.Pong, 5*time.Second)
	def(&t.List, time.Minute)
	def(&t.Retry, 200*time.Millisecond)
	def(&t.RetryMax, 12*time.Second)
	return t
}

// Options configure a Client.
type Options struct {
	Config *rest.Config
	QPS    float32 // requests per second, besides watches; as Config says if 0, and 80 if that is 0 too; no bound if negative, as for client-go
	Burst  int     // likewise, and 160
	Timing Timing
	// MaxObjects is how many objects of a kind are wanted: a list of more than twice as many is given up. 1 000 000 if 0.
	MaxObjects int
	// Role is where the rights that are needed are written down. It is named when one is missing.
	Role string

	// What is told as it happens, from any goroutine; nil if nobody asks.
	Failed  func(feed string, f Failure)          // a request failed
	Listed  func(objects int, took time.Duration) // a page of a list was read
	Changed func()                                // what Contact says may have changed
}

func (o Options) withDefaults() Options {
	if o.Config == nil {
		o.Config = &rest.Config{}
	}
	o.QPS, o.Burst = cmp.Or(o.QPS, o.Config.QPS, 80), cmp.Or(o.Burst, o.Config.Burst, 160)
	o.MaxObjects = cmp.Or(o.MaxObjects, 1_000_000)
	o.Timing = o.Timing.withDefaults()
	if o.Failed == nil {
		o.Failed = func(string, Failure) {}
	}
	if o.Listed == nil {
		o.Listed = func(int, time.Duration) {}
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	return o
}

// Client speaks to one API server over connections of its own: they end with it, and none of them ever
// carries another credential.
type Client struct {
	*Contact
	opts   Options
	core   *rest.RESTClient // protobuf where the server has it
	custom *rest.RESTClient // JSON
	scheme *runtime.Scheme
	params runtime.ParameterCodec
	most   bounds
	large  chan struct{} // has one element while a large answer is in memory
	close  func()
}

// pageSize is how many objects a page of a list has.
const pageSize = 500

// Connect makes the clients; it does no I/O besides reading the files that the configuration names.
func Connect(o Options) (*Client, error) {
	o = o.withDefaults()
	cfg := Limited(o.Config, o.QPS, o.Burst) // one bound for both clients
	cfg.UserAgent, cfg.WarningHandler, cfg.WarningHandlerWithContext = "isthmus", rest.NoWarnings{}, nil
	client, closer, err := httpClient(cfg, o.Timing)
	if err != nil {
		return nil, err
	}
	scheme := newScheme()
	c := &Client{Contact: newContact(hostOf(cfg.Host), o), opts: o, scheme: scheme, params: runtime.NewParameterCodec(scheme),
		most: bounds{maxAnswer, maxItems, maxParts}, large: make(chan struct{}, 1), close: closer}
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	if c.core, err = rest.UnversionedRESTClientForConfigAndClient(cfg, client); err != nil {
		return nil, err
	}
	cfg.ContentType, cfg.AcceptContentTypes, cfg.NegotiatedSerializer = runtime.ContentTypeJSON, runtime.ContentTypeJSON, rawCodec{scheme}
	if c.custom, err = rest.UnversionedRESTClientForConfigAndClient(cfg, client); err != nil {
		return nil, err
	}
	return c, nil
}

// Limited gives a copy of a configuration with one bound for all clients that are ever made with it: so many requests
// per second, besides watches, and so many at once. There is none if qps is not above 0, and the one that there is stays.
func Limited(cfg *rest.Config, qps float32, burst int) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = qps, burst
	if cfg.RateLimiter == nil && qps > 0 {
		cfg.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(qps, burst)
	}
	return cfg
}

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme, metav1.AddMetaToScheme} {
		if err := add(s); err != nil {
			panic(err) // two types of one name: a fault of this program
		}
	}
	return s
}

// Timing gives the timing that is in force.
func (c *Client) Timing() Timing { return c.opts.Timing }

// Close ends all connections. Run does so when it ends.
func (c *Client) Close() { c.close() }

// Run runs feeds, and whatever else makes requests, until ctx ends, once the API server has given a first answer.
// Nothing of it runs, and no connection is open, when it returns.
func (c *Client) Run(ctx context.Context, runs ...func(context.Context)) {
	var all sync.WaitGroup
	ctx = klog.NewContext(ctx, logr.Discard()) // how requests went is told by Contact, once
	defer c.close()
	defer all.Wait()
	if c.knock(ctx) {
		for _, run := range runs {
			all.Go(func() { run(ctx) })
		}
	}
}

// knock waits for the API server's first answer, whatever it is, so that all that follows shares the
// connection. It reports whether ctx has not ended meanwhile.
func (c *Client) knock(ctx context.Context) bool {
	const first = "first answer"
	outcome := c.Track(first, Place{}, Helpful)
	defer c.Forget(first)
	for retry := c.Backoff(); ; {
		err := c.ping(ctx)
		if f, _ := c.explain(Place{}, "get", err); f != failContact || ctx.Err() != nil {
			return ctx.Err() == nil
		}
		outcome("get", err)
		if !c.Pause(ctx, retry.After(err)) {
			return false
		}
	}
}

// Place is where the objects of a kind are.
type Place struct {
	Group, Version, Resource string
	Namespace                string // "" for all
	Fields, Labels           string // selectors
}

func (p Place) path() []string {
	at := []string{"api", p.Version}
	if p.Group != "" {
		at = []string{"apis", p.Group, p.Version}
	}
	if p.Namespace != "" {
		at = append(at, "namespaces", p.Namespace)
	}
	return append(at, p.Resource)
}

// words names the objects: "pods", "serviceentries.networking.istio.io".
func (p Place) words() string {
	w := p.Resource
	if w == "" {
		return "kinds"
	}
	if p.Group != "" {
		w += "." + p.Group
	}
	if name, ok := strings.CutPrefix(p.Fields, "metadata.name="); ok {
		w = strings.TrimSuffix(w, "s") + " " + p.Namespace + "/" + name
	}
	return w
}

func (c *Client) request(r *rest.RESTClient, p Place, o metav1.ListOptions) *rest.Request {
	o.FieldSelector, o.LabelSelector = p.Fields, p.Labels
	return r.Get().AbsPath(p.path()...).MaxRetries(0).SpecificallyVersionedParams(&o, c.params, schema.GroupVersion{Version: "v1"})
}

// Get reads what is at a path into a list: that of API groups, or of the resources of one.
func (c *Client) Get(ctx context.Context, out runtime.Object, path ...string) error {
	return c.list(ctx, c.custom.Get().AbsPath(path...).MaxRetries(0), out)
}

// list reads one page into out.
func (c *Client) list(ctx context.Context, r *rest.Request, out runtime.Object) error {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timing.List)
	defer cancel()
	res, done := c.do(ctx, r)
	defer done()
	if err := res.Error(); err != nil {
		return err
	}
	if err := c.decode(ctx, res, out); err != nil {
		return fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return nil
}

// ping asks for anything.
func (c *Client) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timing.List)
	defer cancel()
	res, done := c.do(ctx, c.custom.Get().AbsPath("version").MaxRetries(0))
	defer done()
	return res.Error()
}

// watch opens a watch; failures that client-go would hide are returned.
func (c *Client) watch(ctx context.Context, r *rest.Request) (watch.Interface, error) {
	var failed error
	w, err := r.Watch(context.WithValue(ctx, attemptKey{}, &failed))
	if err != nil {
		return nil, err
	}
	if failed != nil {
		w.Stop()
		return nil, failed
	}
	return joined{w}, nil
}

// ErrUnreadable is an answer that is not what was asked for.
var ErrUnreadable = errors.New("unreadable answer")

// joined is a watch whose Stop waits until nothing of it runs any more.
type joined struct{ watch.Interface }

// Stop implements watch.Interface.
func (j joined) Stop() {
	j.Interface.Stop()
	for range j.ResultChan() { // drained until its goroutine has gone
	}
}
