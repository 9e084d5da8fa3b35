package nacos

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
)

// A service that can't be read is asked for ever more seldom, and known again when it can.
func TestReadsThatFail(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	twice := []serviceName{public("a"), {"other", defaultGroup, "a"}} // a notification may be about either, so both are read
	for _, n := range twice {
		f.set(n, []instance{host("10.0.0.1:80")})
	}
	var longest atomic.Int64
	out := start(t, Options{
		Spec: f.spec(func(s *api.RegistrySpec) { s.Nacos.Namespaces = []string{"public", "other"} }),
		Backoff: func(failures int) time.Duration {
			longest.Store(max(longest.Load(), int64(failures)))
			return time.Millisecond
		},
	})
	out.awaitServices("DEFAULT_GROUP@@a: 10.0.0.1:80 healthy", "other/DEFAULT_GROUP@@a: 10.0.0.1:80 healthy")
	f.change(func(x *faults) { x.answer = about(classQuery, 500, true) })
	f.set(twice[1], []instance{host("10.0.0.2:80")})
	f.await("they are read again and again", func() bool { return f.calls[classQuery] > 12 })
	if n := longest.Load(); n < 5 {
		t.Errorf("the pause is that of %d failures", n)
	}
	f.change(func(x *faults) { x.answer = nil })
	out.awaitServices("DEFAULT_GROUP@@a: 10.0.0.1:80 healthy", "other/DEFAULT_GROUP@@a: 10.0.0.2:80 healthy")
}

// What a URL of an address server says besides where it is, is not told.
func TestAddressServerIsNotQuoted(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.down()
	for _, query := range []string{"?token=" + secret, "/" + secret} {
		spec := f.spec(func(s *api.RegistrySpec) { s.Addresses, s.Nacos.AddressServer = nil, "http://"+f.addr+"/list"+query })
		out := start(t, Options{Spec: spec})
		out.await("it is not reached", func() bool { return strings.Contains(out.status.Err, "connection refused") })
		out.await("and not quoted", func() bool { return !strings.Contains(out.status.Err, secret) })
	}
}
