package envoytest_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

// caller is the TLS of a client with a certificate of one authority that
// believes another.
func caller(t *testing.T, own, believed *envoytest.Authority, serverName string) *tls.Config {
	t.Helper()
	c := own.Issue(t, "caller", "spiffe://test/caller")
	cert, err := tls.LoadX509KeyPair(c.Chain, c.Key)
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.ReadFile(believed.Issue(t, "any", "spiffe://test/any").Root)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(root) {
		t.Fatal("no certificate in the root file")
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, ServerName: serverName, InsecureSkipVerify: true, // it has no DNS name
		VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
			leaf, err := x509.ParseCertificate(raw[0])
			if err == nil {
				_, err = leaf.Verify(x509.VerifyOptions{Roots: roots})
			}
			return err
		}}
}

// exchange sends a byte from a client to a server, after their handshake.
func exchange(t *testing.T, server, client *tls.Config) error {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, err = io.ReadFull(c, make([]byte, 1))
			c.Close()
		}
		done <- err
	}()
	c, err := tls.Dial("tcp", l.Addr().String(), client)
	if err == nil {
		_, err = c.Write([]byte("x"))
		c.Close()
	}
	return errors.Join(err, <-done)
}

func TestAuthority(t *testing.T) {
	t.Parallel()
	a, other := envoytest.StartAuthority(t), envoytest.StartAuthority(t)
	server := a.Server(t, "server", "server.example")
	if err := exchange(t, server, caller(t, a, a, "server.example")); err != nil {
		t.Errorf("who is known: %v", err)
	}
	for name, c := range map[string]*tls.Config{
		"a caller of another authority": caller(t, other, a, "server.example"),
		"a server of another authority": caller(t, a, other, "server.example"),
		"another name":                  caller(t, a, a, "other.example"),
	} {
		if err := exchange(t, server, c); err == nil {
			t.Errorf("%s is believed", name)
		}
	}
}
