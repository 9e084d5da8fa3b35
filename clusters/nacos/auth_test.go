package nacos

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/foreign"
)

const secret = "correct-horse-battery"

// A token that has ended is replaced, once for all that need it.
func TestExpiredToken(t *testing.T) {
	t.Parallel()
	for _, path := range loginPaths {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.faults.password, f.faults.loginPath = secret, path
			for i := range 30 {
				f.set(public(fmt.Sprint("s", i)), []instance{host("10.0.0.1:80")})
			}
			out := start(t, Options{Spec: f.spec(), Access: reader(secret)})
			out.await("all services", func() bool { return len(out.services()) == 30 })
			f.mu.Lock()
			clear(f.tokens)
			f.mu.Unlock()
			f.set(public("new"), []instance{host("10.0.0.1:80")})
			out.await("the new one too", func() bool { return len(out.services()) == 31 })
			out.await("no problem", func() bool { return out.status.State == model.StateLive && len(out.status.Problems) == 0 })
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.logins != 2 {
				t.Errorf("%d logins, want 2", f.logins)
			}
		})
	}
}

// A token is replaced before it ends.
func TestTokenIsRenewed(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.faults.password = secret
	var ahead atomic.Int64
	out := start(t, Options{Spec: f.spec(), Access: reader(secret), Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	out.awaitState(model.StateLive)
	ahead.Store(int64(4*time.Hour + 31*time.Minute)) // of five hours
	f.await("it logs in again", func() bool { return f.logins == 2 })
	f.await("over the same connection", func() bool { return f.calls[classServerCheck] == 1 })
}

// A wrong password is named, never shown, and does not become a flood of logins.
func TestWrongPassword(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.faults.password = secret
	f.set(public("a"), []instance{host("10.0.0.1:80")})
	var log safeBuffer
	out := start(t, Options{Spec: f.spec(), Access: reader("not-the-password"), Log: slog.New(slog.NewTextHandler(&log, nil))})
	out.await("the credentials are named", func() bool {
		return out.status.State == model.StateSyncing && strings.Contains(out.status.Err, "the user name or password is wrong")
	})
	f.change(func(x *faults) { x.password = "not-the-password" })
	out.awaitServices("DEFAULT_GROUP@@a: 10.0.0.1:80 healthy")
	// The password is changed at the server: what is known stays.
	f.mu.Lock()
	f.faults.password = secret
	clear(f.tokens)
	f.mu.Unlock()
	out.await("it is stale", func() bool {
		return out.status.State == model.StateStale && strings.Contains(out.status.Err, "not accepted")
	})
	out.awaitServices("DEFAULT_GROUP@@a: 10.0.0.1:80 healthy")
	out.mu.Lock()
	status := fmt.Sprintf("%+v", out.status)
	out.mu.Unlock()
	for _, shown := range []string{"not-the-password", "token-"} {
		if strings.Contains(status, shown) || strings.Contains(log.String(), shown) {
			t.Errorf("%q is in the status or the log:\n%s\n%s", shown, status, log.String())
		}
	}
}

// safeBuffer is a buffer for several goroutines.
type safeBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Requests that are denied do not each log in.
func TestLoginsArePaced(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.faults.password = secret
	for i := range 50 {
		f.set(public(fmt.Sprint("s", i)), []instance{host("10.0.0.1:80")})
	}
	out := start(t, Options{Spec: f.spec(), Access: reader(secret)}, func(q *timing) { q.relogin = time.Hour })
	out.await("all services", func() bool { return len(out.services()) == 50 })
	f.change(func(x *faults) {
		x.answer = func(class string, _ request) int {
			if class == classList {
				return errorNoRight
			}
			return 0
		}
	})
	out.awaitState(model.StateStale)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.logins != 1 {
		t.Errorf("%d logins, want 1", f.logins)
	}
}

func TestSignatures(t *testing.T) {
	t.Parallel()
	a := newAuth(foreign.Access{AccessKey: "the-key", SecretKey: "the-secret-key"}, nil, "/nacos", false, quick, func() time.Time { return time.UnixMilli(1700000000000) })
	got := a.headers("PAY", "orders")
	if got["ak"] != "the-key" || got["data"] != "1700000000000@@PAY@@orders" || got["signature"] != "4M7RXpA8SwLWqZ2HaFYJeWe1200=" || len(got) != 3 {
		t.Errorf("headers %v", got)
	}
	for _, tc := range []struct{ group, service, want string }{
		{"", "", "1700000000000"}, {"PAY", "", "1700000000000@@PAY@@"}, {"", "orders", "1700000000000@@orders"}, {"PAY", "X@@orders", "1700000000000@@X@@orders"},
	} {
		if data := a.headers(tc.group, tc.service)["data"]; data != tc.want {
			t.Errorf("%q, %q is signed as %q, want %q", tc.group, tc.service, data, tc.want)
		}
	}
}

// What is configured is shown with each request, and a bearer token is one.
func TestRequestsAreAuthenticated(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		access foreign.Access
		want   []string
	}{
		"signed":   {foreign.Access{AccessKey: "k", SecretKey: "s"}, []string{"ak", "data", "signature"}},
		"token":    {foreign.Access{Token: "t"}, []string{"accessToken"}},
		"password": {reader(secret), []string{"accessToken"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			if tc.access.Username != "" {
				f.faults.password = secret
			}
			out := start(t, Options{Spec: f.spec(), Access: tc.access}, func(q *timing) { q.beat = time.Hour })
			out.awaitState(model.StateLive)
			f.await("headers", func() bool {
				for _, h := range tc.want {
					if f.headers[h] == "" {
						return false
					}
				}
				return len(f.headers) == len(tc.want)
			})
		})
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	ca, pair, key := selfSigned(t)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	f := newSecureFake(t, &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool})
	f.faults.password = secret
	f.set(public("a"), []instance{host("10.0.0.1:80")})
	access := reader(secret)
	access.CA, access.Cert, access.Key = ca, ca, key
	secure := func(mode api.TLSMode) func(*api.RegistrySpec) {
		return func(s *api.RegistrySpec) { s.TLS = &api.TLS{Mode: mode} }
	}
	for name, mod := range map[string]func(*api.RegistrySpec){
		"simple": secure(api.TLSSimple), "mutual": secure(api.TLSMutual),
		"scheme": func(s *api.RegistrySpec) { s.Addresses[0] = "https://" + s.Addresses[0] },
		"name":   func(s *api.RegistrySpec) { s.TLS = &api.TLS{Mode: api.TLSSimple, ServerName: "nacos.test"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := start(t, Options{Spec: f.spec(mod), Access: access})
			out.awaitServices("DEFAULT_GROUP@@a: 10.0.0.1:80 healthy")
		})
	}
	t.Run("another name", func(t *testing.T) {
		t.Parallel()
		out := start(t, Options{Spec: f.spec(func(s *api.RegistrySpec) { s.TLS = &api.TLS{Mode: api.TLSSimple, ServerName: "other.test"} }), Access: access})
		out.await("it is not believed", func() bool { return strings.Contains(out.status.Err, "certificate") })
	})
	t.Run("plaintext", func(t *testing.T) {
		t.Parallel()
		out := start(t, Options{Spec: f.spec(), Access: access})
		out.await("it is not reached", func() bool { return out.status.Err != "" })
	})
	for name, broken := range map[string]foreign.Access{"ca": {CA: []byte("x")}, "pair": {Cert: []byte("x"), Key: []byte("secret-key")}} {
		spec := f.spec(secure(api.TLSMutual))
		if _, err := New(Options{Name: "x", Spec: spec, Access: broken}); err == nil || strings.Contains(err.Error(), "secret-key") {
			t.Errorf("a broken %s: %v", name, err)
		}
	}
}

// selfSigned makes a certificate of 127.0.0.1 and nacos.test that is its own authority.
func selfSigned(t *testing.T) (ca []byte, pair tls.Certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		DNSNames: []string{"nacos.test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
	key = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	if pair, err = tls.X509KeyPair(ca, key); err != nil {
		t.Fatal(err)
	}
	return ca, pair, key
}
