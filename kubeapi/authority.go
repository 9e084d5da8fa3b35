package kubeapi

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"sync/atomic"

	"k8s.io/client-go/transport"
)

// authority is a transport whose certificate authorities are in a file that may be renewed. When a server's
// certificate is not of an authority that is known, the file is read again, for the requests that follow.
type authority struct {
	config  transport.Config // with the name of the file, without its content
	dial    func(*tls.Config) *http.Transport
	current atomic.Pointer[http.Transport]
}

func newAuthority(tc *transport.Config, dial func(*tls.Config) *http.Transport) (*authority, error) {
	a := &authority{config: *tc, dial: dial}
	return a, a.read()
}

// read makes a transport that trusts what the file holds now.
func (a *authority) read() error {
	tc := a.config // TLSConfigFor notes in it what it has read
	secure, err := transport.TLSConfigFor(&tc)
	if err != nil {
		return err
	}
	if old := a.current.Swap(a.dial(secure)); old != nil {
		old.CloseIdleConnections()
	}
	return nil
}

// RoundTrip implements http.RoundTripper.
func (a *authority) RoundTrip(req *http.Request) (*http.Response, error) {
	used := a.current.Load()
	resp, err := used.RoundTrip(req)
	var unknown x509.UnknownAuthorityError
	if a.config.TLS.CAFile != "" && errors.As(err, &unknown) && used == a.current.Load() {
		_ = a.read() // without a usable file what was known stays, and the request's own error says it all
	}
	return resp, err
}

// WrappedRoundTripper lets client-go find what is below.
func (a *authority) WrappedRoundTripper() http.RoundTripper { return a.current.Load() }
