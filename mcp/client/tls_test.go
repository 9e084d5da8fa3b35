package client_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/mcp/client"
	"github.com/isthmus-mesh/isthmus/mcp/mcptest"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert, a.key = a.sign(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil)
	return a
}

// sign issues a certificate; without an issuer it is its own.
func (a *authority) sign(c *x509.Certificate, issuer *authority) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.must(err)
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: "test"}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, by := c, key
	if issuer != nil {
		parent, by = issuer.cert, issuer.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, by)
	a.must(err)
	out, err := x509.ParseCertificate(der)
	a.must(err)
	return out, key
}

func (a *authority) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

func (a *authority) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// pair is a certificate for the loopback addresses and a workload's identity, with its key.
func (a *authority) pair() (cert, key string) {
	return a.pairOf("up.test", "istio-system", "istiod")
}

func (a *authority) pairOf(domain, namespace, account string) (cert, key string) {
	a.t.Helper()
	id := &url.URL{Scheme: "spiffe", Host: domain, Path: "/ns/" + namespace + "/sa/" + account}
	c, k := a.sign(&x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, DNSNames: []string{"istiod.test"}, URIs: []*url.URL{id},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a)
	der, err := x509.MarshalECPrivateKey(k)
	a.must(err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})), string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

// secured is a server over TLS, and the client's files.
type secured struct {
	*mcptest.Server
	t       *testing.T
	address string
	dir     string
	clients atomic.Pointer[x509.CertPool] // whose certificates are taken; nil: none is asked for
}

func newSecured(t *testing.T, ca *authority) *secured {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return newSecuredAt(t, ca, l)
}

func newSecuredAt(t *testing.T, ca *authority, l net.Listener) *secured {
	t.Helper()
	s := &secured{t: t, dir: t.TempDir(), address: l.Addr().String()}
	cert, key := ca.pair()
	own, err := tls.X509KeyPair([]byte(cert), []byte(key))
	ca.must(err)
	cfg := &tls.Config{Certificates: []tls.Certificate{own}, NextProtos: []string{"h2"}}
	cfg.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c := &tls.Config{Certificates: cfg.Certificates, NextProtos: cfg.NextProtos}
		if c.ClientCAs = s.clients.Load(); c.ClientCAs != nil {
			c.ClientAuth = tls.RequireAndVerifyClientCert
		}
		return c, nil
	}
	s.Server = mcptest.Serve(t, l, grpc.Creds(credentials.NewTLS(cfg)))
	s.Set("ServiceEntry", se("pay", "10.1.0.1"))
	return s
}

func (s *secured) file(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

func (s *secured) run(o client.Options) *running {
	s.t.Helper()
	o.Name, o.Addresses, o.Timing = "up", []string{s.address}, quick
	return run(s.t, o)
}

func TestServersAreVerified(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t), newAuthority(t)
	s := newSecured(t, ca)
	file := s.file("ca.pem", ca.pem())
	for name, tc := range map[string]struct {
		tls *client.TLS
		err string // "" = it works
	}{
		"file":          {&client.TLS{CAFile: file}, ""},
		"PEM":           {&client.TLS{CA: []byte(ca.pem())}, ""},
		"name":          {&client.TLS{CAFile: file, ServerName: "istiod.test"}, ""},
		"identity":      {&client.TLS{CAFile: file, SubjectAltNames: []string{"spiffe://up.test/ns/istio-system/sa/istiod"}}, ""},
		"unverified":    {&client.TLS{Insecure: true}, ""},
		"other name":    {&client.TLS{CAFile: file, ServerName: "else.test"}, "else.test"},
		"other id":      {&client.TLS{CAFile: file, SubjectAltNames: []string{"spiffe://up.test/ns/x/sa/y"}}, "none of the subject alternative names"},
		"id, other CA":  {&client.TLS{CA: []byte(other.pem()), SubjectAltNames: []string{"istiod.test"}}, "unknown authority"},
		"other CA":      {&client.TLS{CA: []byte(other.pem())}, "unknown authority"},
		"no file":       {&client.TLS{CAFile: filepath.Join(s.dir, "none.pem")}, "no such file"},
		"no PEM":        {&client.TLS{CAFile: s.file("empty.pem", "x")}, "there is no certificate"},
		"no client key": {&client.TLS{CAFile: file, CertFile: file, KeyFile: file}, "certificate of the client"},
		"plaintext":     {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := s.run(client.Options{TLS: tc.tls})
			defer r.stop()
			switch {
			case tc.tls == nil:
				r.await("it fails", func() bool { return r.status.Err != "" })
			case tc.err == "":
				r.host("pay.example.com", "10.1.0.1")
			default:
				r.await("the reason "+tc.err, func() bool { return strings.Contains(r.status.Err, tc.err) })
			}
		})
	}
}

// What is given as PEM may have more around it, as tools write it.
func TestPEMWithMoreAroundIt(t *testing.T) {
	t.Parallel()
	ca, mesh := newAuthority(t), newAuthority(t)
	s := newSecured(t, ca)
	s.clients.Store(mesh.pool())
	cert, key := mesh.pair()
	const bag = "Bag Attributes\n    friendlyName: hub\nKey Attributes: <No Attributes>\n"
	for name, o := range map[string]client.TLS{
		"comment":        {CA: []byte("# the authority of istiod\n\n" + ca.pem()), Cert: []byte(cert), Key: []byte(key)},
		"bag attributes": {CA: []byte(bag + ca.pem()), Cert: []byte(bag + cert), Key: []byte(bag + key)},
		"key first":      {CA: []byte(ca.pem()), Cert: []byte(key + cert), Key: []byte(key + cert)},
		"two":            {CA: []byte(mesh.pem() + "and\n" + ca.pem()), Cert: []byte(cert + mesh.pem()), Key: []byte(key)},
	} {
		t.Run(name, func(t *testing.T) {
			r := s.run(client.Options{TLS: &o})
			defer r.stop()
			r.host("pay.example.com", "10.1.0.1")
		})
	}
}

// Nothing that is given as PEM, or that a file holds, is told, and nothing that is given is taken for the name of a file.
func TestWhatIsGivenIsNotTold(t *testing.T) {
	t.Parallel()
	const hush = "s3ntinel"
	ca := newAuthority(t)
	s := newSecured(t, ca)
	cert, key := ca.pair()
	file := s.file(hush+".pem", ca.pem())
	odd := "-----BEGIN " + hush + "-----\nAAAA\n-----END " + hush + "-----\n"
	for name, o := range map[string]client.TLS{
		"file as PEM":         {CA: []byte(file)},
		"CA":                  {CA: []byte(hush)},
		"block":               {CA: []byte(odd)},
		"certificate":         {CA: []byte(ca.pem()), Cert: []byte(odd), Key: []byte(key)},
		"key":                 {CA: []byte(ca.pem()), Cert: []byte(cert), Key: []byte(odd)},
		"files as PEM":        {CA: []byte(ca.pem()), Cert: []byte(s.file(hush+"-cert.pem", cert)), Key: []byte(s.file(hush+"-key.pem", key))},
		"PEM as file":         {CAFile: hush + ca.pem()},
		"certificate as file": {CA: []byte(ca.pem()), CertFile: hush + cert, KeyFile: file},
		"key as file":         {CA: []byte(ca.pem()), CertFile: s.file("cert.pem", cert), KeyFile: hush + key},
		"content":             {CA: []byte(ca.pem()), CertFile: s.file("odd.pem", odd), KeyFile: s.file("odd.pem", odd)},
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			r := s.run(client.Options{TLS: &o, Log: slog.New(slog.NewTextHandler(&log, nil))})
			r.await("the reason", func() bool {
				return strings.Contains(r.status.Err, ": authorities of the server: ") || strings.Contains(r.status.Err, " of the client: ")
			})
			r.stop()
			if all := r.status.Err + log.String(); strings.Contains(all, hush) || strings.Contains(all, "BEGIN") {
				t.Error(all)
			}
		})
	}
}

// A server that says the token again does not have it told.
func TestTokensThatServersSay(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	s := newSecured(t, ca)
	s.Misbehave(func(f *mcptest.Faults) { f.Deny = status.Error(codes.PermissionDenied, "not for Bearer s3ntinel") })
	for name, o := range map[string]client.Options{"given": {Token: "s3ntinel"}, "file": {TokenFile: s.file("token", "s3ntinel\n")}} {
		t.Run(name, func(t *testing.T) {
			o.TLS = &client.TLS{CA: []byte(ca.pem())}
			r := s.run(o)
			defer r.stop()
			r.await("the reason", func() bool { return strings.Contains(r.status.Err, "not for Bearer … (PermissionDenied)") })
		})
	}
}

// An IPv6 address is dialled, and is what the certificate must be for.
func TestIPv6(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("there is no IPv6 here: ", err)
	}
	ca := newAuthority(t)
	s := newSecuredAt(t, ca, l)
	if !strings.HasPrefix(s.address, "[::1]:") {
		t.Fatal(s.address)
	}
	r := s.run(client.Options{TLS: &client.TLS{CA: []byte(ca.pem())}})
	r.host("pay.example.com", "10.1.0.1")
	r.stop()
	_, port, err := net.SplitHostPort(s.address)
	if err != nil {
		t.Fatal(err)
	}
	s.address = "[::1%lo]:" + port // a zone, which is no part of the name in a certificate
	r = s.run(client.Options{TLS: &client.TLS{CA: []byte(ca.pem()), ServerName: "istiod.test"}})
	r.host("pay.example.com", "10.1.0.1")
}

// Certificates and tokens in files are read for each connection.
func TestCredentialsRotate(t *testing.T) {
	t.Parallel()
	ca, old, next := newAuthority(t), newAuthority(t), newAuthority(t)
	s := newSecured(t, ca)
	s.clients.Store(old.pool())
	cert, key := old.pair()
	o := client.Options{TLS: &client.TLS{CAFile: s.file("ca.pem", ca.pem()), CertFile: s.file("cert.pem", cert), KeyFile: s.file("key.pem", key)}, TokenFile: s.file("token", "one-secret\n")}
	r := s.run(o)
	r.host("pay.example.com", "10.1.0.1")
	tokens := func() (out map[string]bool) {
		out = map[string]bool{}
		for _, q := range s.Requests() {
			out[q.Token] = true
		}
		return out
	}
	if got := tokens(); len(got) != 1 || !got["Bearer one-secret"] {
		t.Errorf("tokens %v", got)
	}
	s.clients.Store(next.pool())
	s.file("token", "")
	s.Drop()
	r.await("it is refused", func() bool { return r.status.State == model.StateStale })
	r.host("pay.example.com", "10.1.0.1")
	cert, key = next.pair()
	s.file("cert.pem", cert)
	s.file("key.pem", key)
	r.await("the token is missed", func() bool { return strings.Contains(r.status.Err, "file of the token is empty") })
	s.file("token", "two-secret")
	r.state(model.StateLive)
	if !tokens()["Bearer two-secret"] {
		t.Errorf("tokens %v", tokens())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if strings.Contains(r.status.Err, "secret") {
		t.Error("the token is in the status")
	}
}

// A token is not sent in the clear.
func TestTokenNeedsTLS(t *testing.T) {
	t.Parallel()
	s, at := mcptest.Listen(t)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := run(t, client.Options{Name: "up", Addresses: []string{at}, Timing: quick, TokenFile: file})
	r.await("it fails", func() bool { return strings.Contains(r.status.Err, "transport level security") })
	if n := len(s.Requests()); n != 0 {
		t.Errorf("%d requests", n)
	}
}
