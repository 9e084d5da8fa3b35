package kubeapi

import (
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

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
