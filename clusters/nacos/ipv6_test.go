package nacos

import (
	"fmt"
	"net"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
)

// Servers and instances may have addresses of version 6, and these may be in brackets.
func TestIPv6(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("this machine has no [::1]: ", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	f := newFake(t)
	_, port := split(t, f.addr)
	f.down()
	f.addr = fmt.Sprintf("[::1]:%d", port)
	f.up()
	for i, ip := range []string{"fd00::1", "[fd00::2]", "[fd00::3]:80"} {
		f.set(public(fmt.Sprint("s", i)), []instance{host("10.0.0.1:80", func(h *instance) { h.IP, h.ID = ip, "" })})
	}
	for _, addresses := range [][]string{{"[::1]:8848"}, {"http://[::1]"}, nil} {
		f.change(func(x *faults) { x.list = "[::1]:8848\n" })
		spec := f.spec(func(s *api.RegistrySpec) {
			if s.Addresses = addresses; addresses == nil {
				s.Nacos.AddressServer = "http://" + f.httpAddr + "/serverlist"
			}
		})
		out := start(t, Options{Spec: spec})
		out.awaitServices("DEFAULT_GROUP@@s0: [fd00::1]:80 healthy", "DEFAULT_GROUP@@s1: [fd00::2]:80 healthy", "DEFAULT_GROUP@@s2")
		out.awaitState(model.StateLive)
	}
}
