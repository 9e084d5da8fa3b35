package env

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// dialer makes the connections of one transport and can close them all, idle or
// not: http.Transport closes only those that have no request, and one that was
// just abandoned still counts.
type dialer struct {
	mu    sync.Mutex
	conns []net.Conn
}

// transport makes a transport whose connections are trusted by the authority and
// closed by close.
func (d *dialer) transport(ca *authority) *http.Transport {
	return &http.Transport{TLSClientConfig: ca.client(), ForceAttemptHTTP2: true, DialContext: d.dial}
}

func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err == nil {
		d.mu.Lock()
		d.conns = append(d.conns, c)
		d.mu.Unlock()
	}
	return c, err
}

func (d *dialer) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.conns {
		_ = c.Close() // it may be closed
	}
	d.conns = nil
}
