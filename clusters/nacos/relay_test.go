package nacos

import (
	"io"
	"net"
	"sync"
	"testing"
)

// relay is a way to a server that can be cut.
type relay struct {
	t        *testing.T
	to, addr string
	served   sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]bool
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	r := &relay{t: t, to: to, addr: reserved(t), conns: map[net.Conn]bool{}}
	r.Restore()
	t.Cleanup(r.Cut)
	return r
}

// Restore lets connections through.
func (r *relay) Restore() {
	r.t.Helper()
	l, err := net.Listen("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	r.listener = l
	r.mu.Unlock()
	r.served.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return // it was closed
			}
			r.served.Go(func() { r.serve(in) })
		}
	})
}

// Cut ends all connections, and takes no more.
func (r *relay) Cut() {
	r.mu.Lock()
	if r.listener != nil {
		_ = r.listener.Close()
		r.listener = nil
	}
	for c := range r.conns {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.served.Wait()
}

func (r *relay) serve(in net.Conn) {
	defer in.Close()
	out, err := net.Dial("tcp", r.to)
	if err != nil {
		return
	}
	defer out.Close()
	if !r.keep(in, out) {
		return
	}
	defer r.forget(in, out)
	r.served.Go(func() {
		_, _ = io.Copy(out, in) // until either end closes
		_ = out.Close()
	})
	_, _ = io.Copy(in, out)
}

func (r *relay) keep(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		r.conns[c] = true
	}
	return r.listener != nil
}

func (r *relay) forget(conns ...net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		delete(r.conns, c)
	}
}
