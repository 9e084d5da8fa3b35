package kube

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/flowcontrol"
)

// Timing says how soon a dead API server is noticed and how often things are tried again. Zero fields
// take their defaults.
type Timing struct {
	Dial time.Duration // for a connection, and again for its TLS handshake; 10 s
	Ping time.Duration // a connection that is silent for so long is asked for a sign of life; 10 s
	Pong time.Duration // in which it must answer; 5 s
	List time.Duration // for one page of a list; 60 s

	Retry     time.Duration // first pause after a failure; doubles; 200 ms
	RetryMax  time.Duration // longest pause, also before a right that was granted is noticed; 12 s, plus up to half of it
	Discovery time.Duration // between looks at the kinds that are served, when nothing tells of changes; 30 s
	Absent    time.Duration // how long a kind must be missing before its objects are believed to be gone; 10 s
	Explain   time.Duration // a first sync that takes longer says what it waits for; 10 s
}

func (t Timing) withDefaults() Timing {
	def := func(d *time.Duration, v time.Duration) { *d = cmp.Or(*d, v) }
	def(&t.Dial, 10*time.Second)
	def(&t.Ping, 10*time.Second)
	def(&t.Pong, 5*time.Second)
	def(&t.List, time.Minute)
	def(&t.Retry, 200*time.Millisecond)
	def(&t.RetryMax, 12*time.Second)
	def(&t.Discovery, 30*time.Second)
	def(&t.Absent, 10*time.Second)
	def(&t.Explain, 10*time.Second)
	return t
}

// api speaks to one API server over connections of its own: they end with it, and none of them ever
// carries another credential.
type api struct {
	host   string // for messages
	timing Timing
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

// connect makes the clients; it does no I/O besides reading the files that the configuration names.
func connect(c *rest.Config, t Timing) (*api, error) {
	c = rest.CopyConfig(c)
	client, closer, err := httpClient(c, t)
	if err != nil {
		return nil, err
	}
	if c.RateLimiter == nil {
		c.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(c.QPS, c.Burst)
	}
	scheme := newScheme()
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	a := &api{host: hostOf(c.Host), timing: t, scheme: scheme,
		most: bounds{maxAnswer, maxItems, maxParts}, large: make(chan struct{}, 1), params: runtime.NewParameterCodec(scheme), close: closer}
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	if a.core, err = rest.UnversionedRESTClientForConfigAndClient(c, client); err != nil {
		return nil, err
	}
	c.ContentType, c.AcceptContentTypes, c.NegotiatedSerializer = runtime.ContentTypeJSON, runtime.ContentTypeJSON, rawCodec{scheme}
	if a.custom, err = rest.UnversionedRESTClientForConfigAndClient(c, client); err != nil {
		return nil, err
	}
	return a, nil
}

// httpClient makes a client with a transport of its own, which client-go would share between clients.
// Redirects are not followed: they would carry the credential elsewhere.
func httpClient(c *rest.Config, t Timing) (*http.Client, func(), error) {
	tc, err := c.TransportConfig()
	if err != nil {
		return nil, nil, err
	}
	if tc.BearerTokenFile != "" { // read again when it is refused, not only each minute
		tc.Wrap(transport.ResettableTokenSourceWrapTransport(transport.NewCachedFileTokenSource(tc.BearerTokenFile)))
		tc.BearerToken, tc.BearerTokenFile = "", ""
	}
	dial, end := transports(tc, t)
	base, err := newAuthority(tc, dial)
	if err != nil {
		return nil, nil, err
	}
	rt, err := transport.HTTPWrappersForConfig(tc, http.RoundTripper(observed{base}))
	if err != nil {
		return nil, nil, err
	}
	return &http.Client{
		Transport:     rt,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, func() { base.current.Load().CloseIdleConnections(); end() }, nil
}

// transports makes transports whose connections end together.
func transports(tc *transport.Config, t Timing) (func(*tls.Config) *http.Transport, func()) {
	keepAlive := net.KeepAliveConfig{Enable: true, Idle: t.Ping, Interval: max(t.Pong/3, time.Second), Count: 3}
	dial := (&net.Dialer{Timeout: t.Dial, KeepAliveConfig: keepAlive}).DialContext
	if tc.DialHolder != nil {
		dial = tc.DialHolder.Dial
	}
	proxy := http.ProxyFromEnvironment
	if tc.Proxy != nil {
		proxy = tc.Proxy
	}
	conns := newDialer(dial)
	return func(secure *tls.Config) *http.Transport {
		return &http.Transport{
			Proxy: proxy, DialContext: conns.DialContext, TLSClientConfig: secure, TLSHandshakeTimeout: t.Dial,
			ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 25, IdleConnTimeout: 90 * time.Second, DisableCompression: tc.DisableCompression,
			HTTP2: &http.HTTP2Config{SendPingTimeout: t.Ping, PingTimeout: t.Pong},
		}
	}, conns.close
}

// observed notes how each request went. The client above it hides some failures of watches behind a
// watch that ends at once.
type observed struct{ next http.RoundTripper }

type attemptKey struct{}

// RoundTrip implements http.RoundTripper.
func (o observed) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := o.next.RoundTrip(req)
	if failed, ok := req.Context().Value(attemptKey{}).(*error); ok {
		if *failed = err; err == nil {
			resp.Body = newEvents(resp)
		}
		return resp, err
	}
	if b, ok := req.Context().Value(answerKey{}).(*bounded); ok && err == nil {
		b.ReadCloser = resp.Body
		resp.Body = b
	}
	return resp, err
}

// WrappedRoundTripper lets client-go find what is below.
func (o observed) WrappedRoundTripper() http.RoundTripper { return o.next }

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

// place is where the objects of a kind are.
type place struct {
	group, version, resource string
	namespace                string // "" for all
	fields                   string // a field selector
}

func (p place) path() []string {
	at := []string{"api", p.version}
	if p.group != "" {
		at = []string{"apis", p.group, p.version}
	}
	if p.namespace != "" {
		at = append(at, "namespaces", p.namespace)
	}
	return append(at, p.resource)
}

func (a *api) request(c *rest.RESTClient, p place, o metav1.ListOptions) *rest.Request {
	o.FieldSelector = p.fields
	return c.Get().AbsPath(p.path()...).MaxRetries(0).SpecificallyVersionedParams(&o, a.params, schema.GroupVersion{Version: "v1"})
}

// list reads one page into out.
func (a *api) list(ctx context.Context, r *rest.Request, out runtime.Object) error {
	ctx, cancel := context.WithTimeout(ctx, a.timing.List)
	defer cancel()
	res, done := a.do(ctx, r)
	defer done()
	if err := res.Error(); err != nil {
		return err
	}
	if err := a.decode(ctx, res, out); err != nil {
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return nil
}

// ping asks for anything.
func (a *api) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, a.timing.List)
	defer cancel()
	res, done := a.do(ctx, a.custom.Get().AbsPath("version").MaxRetries(0))
	defer done()
	return res.Error()
}

// watch opens a watch; failures that client-go would hide are returned.
func (a *api) watch(ctx context.Context, r *rest.Request) (watch.Interface, error) {
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

// errUnreadable is an answer that is not what was asked for.
var errUnreadable = errors.New("unreadable answer")

// joined is a watch whose Stop waits until nothing of it runs any more.
type joined struct{ watch.Interface }

// Stop implements watch.Interface.
func (j joined) Stop() {
	j.Interface.Stop()
	for range j.ResultChan() { // drained until its goroutine has gone
	}
}
