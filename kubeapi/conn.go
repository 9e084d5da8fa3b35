package kubeapi

import (
	"context"
	"net"
	"sync"
)

// dialer opens the connections of one run, and closes whatever is still open when the run ends: a
// transport only closes those that happen to be idle, and goes on dialing for requests that have ended.
type dialer struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	ctx  context.Context // ends with the run
	end  context.CancelFunc

	mu    sync.Mutex
	conns map[*conn]struct{} // nil once closed
}

type conn struct {
	net.Conn
	from *dialer
}

func newDialer(dial func(ctx context.Context, network, address string) (net.Conn, error)) *dialer {
	d := &dialer{dial: dial, conns: map[*conn]struct{}{}}
	d.ctx, d.end = context.WithCancel(context.Background())
	return d
}

// DialContext is http.Transport's.
func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)()
	raw, err := d.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, from: d}
	d.mu.Lock()
	open := d.conns != nil
	if open {
		d.conns[c] = struct{}{}
	}
	d.mu.Unlock()
	if !open {
		raw.Close()
		return nil, net.ErrClosed
	}
	return c, nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.from.mu.Lock()
	delete(c.from.conns, c)
	c.from.mu.Unlock()
	return c.Conn.Close()
}

// close closes all connections; none is opened any more.
func (d *dialer) close() {
	d.end()
	d.mu.Lock()
	open := d.conns
	d.conns = nil
	d.mu.Unlock()
	for c := range open {
		_ = c.Conn.Close() // whoever still reads from it learns so
	}
}
