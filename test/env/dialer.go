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
	conns []net.Conn // guarded by mu, as is below
	over  bool       // no connection is made any more
}

// transport makes a transport whose connections are trusted by the authority and
// closed by close.
func (d *dialer) transport(ca *authority) *http.Transport {
	return &http.Transport{TLSClientConfig: ca.client(), ForceAttemptHTTP2: true, DialContext: d.dial}
}

func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		_ = c.Close() // nobody has used it
		return nil, net.ErrClosed
	}
	d.conns = append(d.conns, c)
	return c, nil
}

// end is close for good: a transport goes on dialling for a request that was given up.
func (d *dialer) end() {
	d.mu.Lock()
	d.over = true
	d.mu.Unlock()
	d.close()
}

func (d *dialer) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.conns {
		_ = c.Close() // it may be closed
	}
	d.conns = nil
}
