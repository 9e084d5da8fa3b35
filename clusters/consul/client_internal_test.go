package consul

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/foreign"
)

// ServeHTTP makes a server of the fake.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resp, err := f.RoundTrip(r)
	if err != nil {
		return // it has gone
	}
	defer resp.Body.Close()
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body) // the peer may have gone
}

// identity is a certificate with its key that an authority of its own has signed.
type identity struct {
	authority, cert, key []byte
	pair                 tls.Certificate
	pool                 *x509.CertPool
}

func newIdentity(t *testing.T, name string) identity {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	i := identity{pool: x509.NewCertPool()}
	i.cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	i.key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
	i.authority = i.cert
	i.pool.AppendCertsFromPEM(i.cert)
	if i.pair, err = tls.X509KeyPair(i.cert, i.key); err != nil {
		t.Fatal(err)
	}
	return i
}

// The connection is protected as the spec says, and only those who are believed are told the token.
func TestTLS(t *testing.T) {
	t.Parallel()
	server, client, other := newIdentity(t, "consul.example"), newIdentity(t, "hub"), newIdentity(t, "consul.example")
	f := newFake()
	f.set("a", at("10.0.0.1"))
	tokens := make(chan string, 100)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case tokens <- r.Header.Get("X-Consul-Token"):
		default:
		}
		f.ServeHTTP(w, r)
	}))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{server.pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: client.pool}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	t.Cleanup(srv.CloseClientConnections)
	address := srv.Listener.Addr().String()
	for _, tc := range []struct {
		name   string
		tls    api.TLS
		access foreign.Access
		want   string // state, the beginning of it
	}{
		{"mutual", api.TLS{Mode: api.TLSMutual, ServerName: "consul.example"}, foreign.Access{Token: "t1", CA: server.authority, Cert: client.cert, Key: client.key}, "live"},
		{"any server", api.TLS{Mode: api.TLSMutual, InsecureSkipVerify: true}, foreign.Access{Token: "t1", Cert: client.cert, Key: client.key}, "live"},
		{"no certificate", api.TLS{Mode: api.TLSSimple, ServerName: "consul.example"}, foreign.Access{Token: "t2", CA: server.authority}, "syncing: https://" + address + ": tls: certificate required"},
		{"other authority", api.TLS{Mode: api.TLSMutual, ServerName: "consul.example"}, foreign.Access{Token: "t2", CA: other.authority, Cert: client.cert, Key: client.key}, "syncing: https://" + address + ": tls: failed to verify certificate"},
		{"other name", api.TLS{Mode: api.TLSMutual, ServerName: "other.example"}, foreign.Access{Token: "t2", CA: server.authority, Cert: client.cert, Key: client.key}, "syncing: https://" + address + ": tls: failed to verify certificate"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := follow(t, Options{Access: tc.access, Spec: spec(func(s *api.RegistrySpec) { s.Addresses, s.TLS = []string{address}, &tc.tls })})
			s.awaitState(t, tc.want)
			if tc.want == "live" {
				s.awaitContent(t, one)
			}
		})
	}
	for len(tokens) > 0 {
		if got := <-tokens; got != "t1" {
			t.Errorf("it was told %q", got)
		}
	}
}

// Variables that Consul's own clients read mean nothing here, nor does a proxy.
func TestNothingComesFromTheEnvironment(t *testing.T) {
	f := newFake()
	f.set("a", at("10.0.0.1"))
	told := make(chan string, 1000)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		told <- fmt.Sprint(r.Header["X-Consul-Token"], r.Header["Authorization"], r.URL.Query()["ns"], r.URL.Query()["partition"])
		f.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	t.Cleanup(srv.CloseClientConnections)
	for _, v := range []string{"HTTP_TOKEN", "NAMESPACE", "PARTITION", "HTTP_ADDR", "HTTP_AUTH", "CACERT", "CLIENT_CERT", "CLIENT_KEY", "TLS_SERVER_NAME", "HTTP_TOKEN_FILE"} {
		t.Setenv("CONSUL_"+v, "leak:leak")
	}
	t.Setenv("CONSUL_HTTP_SSL", "true")
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	s := follow(t, Options{Spec: spec(func(s *api.RegistrySpec) { s.Addresses = []string{srv.URL} })})
	s.awaitContent(t, one)
	for len(told) > 0 {
		if got := <-told; got != "[] [] [] []" {
			t.Errorf("told %s", got)
		}
	}
}

// A redirect is no answer: the token is for the servers that were named.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asked for %s", r.URL) }))
	t.Cleanup(elsewhere.Close)
	srv := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	t.Cleanup(srv.Close)
	s := follow(t, Options{Spec: spec(func(s *api.RegistrySpec) { s.Addresses = []string{srv.URL} }), Access: foreign.Access{Token: "secret-token"}})
	s.awaitState(t, "syncing: "+strings.TrimPrefix(srv.URL, "http://")+": 307 Temporary Redirect")
}

// What a server sends is bounded, and so is what is told of it.
func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/error" {
			http.Error(w, strings.Repeat("secret-token ", 1000), http.StatusBadRequest)
			return
		}
		block := []byte(strings.Repeat(" ", 1<<20))
		for range maxBody>>20 + 1 {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}))
	t.Cleanup(srv.Close)
	o := scripted(func(s *api.RegistrySpec) { s.Addresses = []string{srv.URL} })
	c, err := newClient(&o.Spec, o.Access, nil, "consul/legacy", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	var body any
	if _, err = c.get(context.Background(), query{path: "/"}, &body); err == nil || lost(err) || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("%v", err)
	}
	if _, err = c.get(context.Background(), query{path: "/v1/error"}, &body); err == nil || strings.Contains(err.Error(), "secret") || len(err.Error()) > 2*maxSaid {
		t.Errorf("%v", err)
	}
}

func TestServerOfAddress(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		address   string
		encrypted bool
		want      string
	}{
		{"consul:8500", false, "http://consul:8500"}, {"consul:8501", true, "https://consul:8501"}, {"[fd00::1]:8500", false, "http://[fd00::1]:8500"},
		{"https://consul.example.com", false, "https://consul.example.com"}, {"http://consul:8500/", false, "http://consul:8500"},
		{"", false, ""}, {"ftp://x", false, ""}, {"http://u:p@x", false, ""}, {"x/y", false, ""}, {"http://x?y", false, ""},
	} {
		got, err := server(tc.address, tc.encrypted)
		if got != tc.want || (err != nil) != (tc.want == "") {
			t.Errorf("%q: %q, %v; want %q", tc.address, got, err, tc.want)
		}
	}
}
