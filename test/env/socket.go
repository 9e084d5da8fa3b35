package env

import (
	"net"
	"sync"
	"time"
)

// socket is a listener that can misbehave.
type socket struct {
	net.Listener

	mu    sync.Mutex
	dead  bool          // connections are reset as they come
	open  chan struct{} // closed while data flows
	pause time.Duration // before each read
	live  map[*conn]struct{}
}

func newSocket(l net.Listener) *socket {
	open := make(chan struct{})
	close(open)
	return &socket{Listener: l, open: open, live: map[*conn]struct{}{}}
}

// Accept implements net.Listener.
func (s *socket) Accept() (net.Conn, error) {
	for {
		raw, err := s.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := s.admit(raw); c != nil {
			return c, nil
		}
	}
}

func (s *socket) admit(raw net.Conn) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &conn{Conn: raw, socket: s, closed: make(chan struct{})}
	if s.dead {
		c.reset()
		return nil
	}
	s.live[c] = struct{}{}
	return c
}

func (s *socket) cut() {
	s.mu.Lock()
	s.dead = true
	s.mu.Unlock()
	s.drop()
}

func (s *socket) drop() {
	s.mu.Lock()
	live := s.live
	s.live = map[*conn]struct{}{}
	s.mu.Unlock()
	for c := range live {
		c.reset()
	}
}

func (s *socket) hang() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.open:
		s.open = make(chan struct{})
	default: // it hangs
	}
}

func (s *socket) slow(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pause = d
}

func (s *socket) restore() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead, s.pause = false, 0
	select {
	case <-s.open:
	default:
		close(s.open)
	}
}

func (s *socket) state() (open chan struct{}, pause time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open, s.pause
}

// conn is a connection of a client to a link.
type conn struct {
	net.Conn
	socket *socket
	once   sync.Once
	closed chan struct{}
}

// flow waits while the link hangs.
func (c *conn) flow() error {
	open, _ := c.socket.state()
	select {
	case <-open:
		return nil
	case <-c.closed:
		return net.ErrClosed
	}
}

// Read implements net.Conn. What comes while the link hangs is not lost: it is
// delayed, as on a path that recovers.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if _, pause := c.socket.state(); pause > 0 {
		t := time.NewTimer(pause)
		defer t.Stop()
		select {
		case <-t.C:
		case <-c.closed:
		}
	}
	if gone := c.flow(); gone != nil {
		return 0, gone
	}
	return n, err
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	if err := c.flow(); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	c.socket.mu.Lock()
	delete(c.socket.live, c)
	c.socket.mu.Unlock()
	return c.Conn.Close()
}

// reset closes the connection so that its peer sees an error.
func (c *conn) reset() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // fails only if it is closed
	}
	c.once.Do(func() { close(c.closed) })
	_ = c.Conn.Close() // likewise
}
