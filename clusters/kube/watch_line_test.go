package kube_test

import (
	"net"
	"sync"
)

// line is a listener whose connections can be made to swallow everything, and to refuse.
type line struct {
	net.Listener
	mu     sync.Mutex
	hung   chan struct{} // closed when it is over; nil if they work
	opened int
	open   map[net.Conn]bool
}

type lineConn struct {
	net.Conn
	line *line
}

// hang makes all connections swallow what they get, also those to come.
func (l *line) hang(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case on && l.hung == nil:
		l.hung = make(chan struct{})
	case !on && l.hung != nil:
		close(l.hung)
		l.hung = nil
	}
}

func (l *line) wait() {
	l.mu.Lock()
	hung := l.hung
	l.mu.Unlock()
	if hung != nil {
		<-hung
	}
}

// conns counts the connections that are open, and those that ever were.
func (l *line) conns() (open, ever int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open), l.opened
}

// Accept implements net.Listener.
func (l *line) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	lc := &lineConn{c, l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open = map[net.Conn]bool{}
	}
	l.open[lc] = true
	l.opened++
	return lc, nil
}

// Read implements net.Conn.
func (c *lineConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.line.wait()
	return n, err
}

// Write implements net.Conn.
func (c *lineConn) Write(p []byte) (int, error) {
	c.line.wait()
	return c.Conn.Write(p)
}

// Close implements net.Conn.
func (c *lineConn) Close() error {
	c.line.mu.Lock()
	delete(c.line.open, c)
	c.line.mu.Unlock()
	return c.Conn.Close()
}
