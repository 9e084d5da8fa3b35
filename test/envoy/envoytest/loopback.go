package envoytest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
)

// Loopback is a block of loopback addresses, 127.N.0.0/16, that nothing else
// which claims its addresses here uses: whoever holds it may bind well-known
// ports on as many addresses as it likes, and bind them again after a restart.
type Loopback struct {
	// Prefix is the block. Read-only after ClaimLoopback.
	Prefix netip.Prefix
	lock   net.Listener
}

// ClaimLoopback takes the first free block, beginning with 127.first.0.0/16,
// until Close or the end of the process.
func ClaimLoopback(first byte) (*Loopback, error) {
	for n := int(first); n < 255; n++ {
		// An abstract socket is a lock of the network namespace, as the addresses
		// are, and the kernel drops it with its process.
		lock, err := net.Listen("unix", fmt.Sprintf("@isthmus-loopback-%d", n))
		if err == nil {
			return &Loopback{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{127, byte(n)}), 16), lock: lock}, nil
		}
	}
	return nil, errors.New("every block of loopback addresses is claimed")
}

// StartLoopback claims a block for the length of a test. It leaves out
// 127.0.0.0/16, where programs live that claim nothing.
func StartLoopback(t testing.TB) *Loopback {
	t.Helper()
	l, err := ClaimLoopback(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("release %s: %v", l.Prefix, err)
		}
	})
	return l
}

// Addr is 127.N.a.b.
func (l *Loopback) Addr(a, b byte) netip.Addr {
	ip := l.Prefix.Addr().As4()
	return netip.AddrFrom4([4]byte{ip[0], ip[1], a, b})
}

// At is "127.N.a.b:port".
func (l *Loopback) At(a, b byte, port uint16) string {
	return netip.AddrPortFrom(l.Addr(a, b), port).String()
}

// Close gives the block back.
func (l *Loopback) Close() error { return l.lock.Close() }
