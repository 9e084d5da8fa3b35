package remote

import (
	"errors"
	"net/http"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// errRedirect is why a redirect is not followed: the credential would go along.
var errRedirect = errors.New("the API server redirects elsewhere, which is not followed: give the address of the API server itself")

// HTTPClient makes a client with connections of its own, which release closes: client-go would share and keep
// them. It follows no redirects.
func HTTPClient(cfg *rest.Config) (client *http.Client, release func(), err error) {
	cfg = rest.CopyConfig(cfg)
	if cfg.Proxy == nil {
		cfg.Proxy = http.ProxyFromEnvironment // the default; naming it keeps the transport out of client-go's cache
	}
	if client, err = rest.HTTPClientFor(cfg); err != nil {
		return nil, func() {}, err
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return errRedirect }
	return client, func() { utilnet.CloseIdleConnectionsFor(client.Transport) }, nil
}
