package remote

import (
	"net/http"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// HTTPClient makes a client with connections of its own, which release closes: client-go would share and keep
// them.
func HTTPClient(cfg *rest.Config) (client *http.Client, release func(), err error) {
	cfg = rest.CopyConfig(cfg)
	if cfg.Proxy == nil {
		cfg.Proxy = http.ProxyFromEnvironment // the default; naming it keeps the transport out of client-go's cache
	}
	if client, err = rest.HTTPClientFor(cfg); err != nil {
		return nil, func() {}, err
	}
	return client, func() { utilnet.CloseIdleConnectionsFor(client.Transport) }, nil
}
