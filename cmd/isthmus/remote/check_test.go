package remote_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	authzv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/remote"
)

// noon is the time of these tests.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// apiServer is an API server with a certificate of its own making and a clock of its own.
type apiServer struct {
	*httptest.Server
	ca []byte
}

// serve starts one whose certificate is valid in a span around noon.
func serve(t *testing.T, from, to time.Duration, handle http.HandlerFunc) apiServer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "api"}, NotBefore: noon.Add(from), NotAfter: noon.Add(to),
		DNSNames: []string{"api.west"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(handle)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, Time: func() time.Time { return noon }}
	s.EnableHTTP2, s.Config.ErrorLog = true, log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return apiServer{s, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// kubernetes answers as an API server whose clock is off by some time, and allows what it is asked about
// unless it is among the denied.
func kubernetes(t *testing.T, off time.Duration, denied ...string) http.HandlerFunc {
	return kubernetesFor(t, "isthmus", off, denied...)
}

// kubernetesFor likewise takes whoever asks for the user.
func kubernetesFor(t *testing.T, user string, off time.Duration, denied ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", noon.Add(off).Format(http.TimeFormat))
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/selfsubjectreviews"):
			w.Write([]byte(`{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","status":{"userInfo":{"username":"` + user + `"}}}`))
		case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
			var q authzv1.SelfSubjectAccessReview
			if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
				t.Error(err)
			}
			q.Status.Allowed = true
			for _, d := range denied {
				if d == q.Spec.ResourceAttributes.Resource {
					q.Status.Allowed = false
				}
			}
			json.NewEncoder(w).Encode(q)
		default:
			w.Write([]byte("{}"))
		}
	}
}

// checker reaches the server under the name api.west.
func (s apiServer) checker() remote.Checker {
	at := strings.TrimPrefix(s.URL, "https://")
	return remote.Checker{
		Now:    func() time.Time { return noon },
		Lookup: func(context.Context, string) ([]string, error) { return []string{"192.0.2.1"}, nil },
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, at)
		},
	}
}

func (s apiServer) config() *rest.Config {
	return &rest.Config{
		Host: "https://api.west:6443", BearerToken: "t", TLSClientConfig: rest.TLSClientConfig{CAData: s.ca},
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}, // what the server above speaks
	}
}

const year = 365 * 24 * time.Hour

func TestCheck(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		from, to, off time.Duration
		denied        []string
		change        func(*remote.Checker, *rest.Config)
		last          string
		status        remote.Status
		says          string
	}{
		"expired certificate": {from: -year, to: -time.Hour, last: "certificate", status: remote.Failed, says: "has expired"},
		"early certificate":   {from: time.Hour, to: year, last: "certificate", status: remote.Failed, says: "valid from 2026-03-01T13:00:00Z on only"},
		"slow clock":          {from: -year, to: year, off: -10 * time.Minute, last: "clock", status: remote.Failed, says: "9m59s apart"},
		"fast clock":          {from: -year, to: year, off: time.Hour, last: "clock", status: remote.Failed, says: "1h0m0s apart"},
		"needed right":        {from: -year, to: year, denied: []string{"endpointslices"}, last: "rights", status: remote.Failed, says: "missing: list endpointslices.discovery.k8s.io, watch endpointslices.discovery.k8s.io"},
		"optional right":      {from: -year, to: year, denied: []string{"configmaps"}, last: "rights", status: remote.Warning, says: "list configmaps istio-system/istio"},
		"unresolved": {from: -year, to: year, last: "name", status: remote.Failed, says: "no such host", change: func(c *remote.Checker, _ *rest.Config) {
			c.Lookup = func(context.Context, string) ([]string, error) { return nil, errors.New("no such host") }
		}},
		"no address": {from: -year, to: year, last: "name", status: remote.Failed, says: "has no address", change: func(c *remote.Checker, _ *rest.Config) {
			c.Lookup = func(context.Context, string) ([]string, error) { return nil, nil }
		}},
		"unreachable": {from: -year, to: year, last: "connection", status: remote.Failed, says: "api.west:6443 can't be reached: refused", change: func(c *remote.Checker, _ *rest.Config) {
			c.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("refused") }
		}},
		"other CA": {from: -year, to: year, last: "certificate", status: remote.Failed, says: "which the credential's CA does not vouch for", change: func(_ *remote.Checker, cfg *rest.Config) {
			cfg.CAData = nil
		}},
		"other name": {from: -year, to: year, last: "certificate", status: remote.Failed, says: "it is not for api.east, but for api.west", change: func(_ *remote.Checker, cfg *rest.Config) {
			cfg.Host = "https://api.east"
		}},
		"proxy": {from: -year, to: year, last: "clock", status: remote.Failed, says: "no answer through the proxy: ", change: func(_ *remote.Checker, cfg *rest.Config) {
			cfg.Proxy = func(*http.Request) (*url.URL, error) { return url.Parse("http://127.0.0.1:1") }
		}},
		"no URL": {from: -year, to: year, last: "credential", status: remote.Failed, says: "not a URL", change: func(_ *remote.Checker, cfg *rest.Config) {
			cfg.Host = "https://"
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, test.from, test.to, kubernetes(t, test.off, test.denied...))
			c, cfg := s.checker(), s.config()
			if test.change != nil {
				test.change(&c, cfg)
			}
			all := c.Check(t.Context(), "west", cfg)
			last := all[len(all)-1]
			if last.Cluster != "west" || last.Check != test.last || last.Status != test.status || !strings.Contains(last.Detail, test.says) || last.Advice == "" {
				t.Errorf("ends with %+v", last)
			}
			for _, r := range all {
				if strings.Contains(r.Detail+r.Advice, "Bearer") {
					t.Errorf("tells the credential: %+v", r)
				}
			}
		})
	}
}

func TestCheckOfWhatWorks(t *testing.T) {
	t.Parallel()
	s := serve(t, -year, year, kubernetes(t, 0))
	var names []string
	for _, r := range s.checker().Check(t.Context(), "west", s.config()) {
		if r.Status != remote.OK {
			t.Errorf("%+v", r)
		}
		names = append(names, r.Check)
	}
	if got := strings.Join(names, " "); got != "credential name connection certificate clock identity rights" {
		t.Errorf("checked %s", got)
	}
}

// TestCheckAdvisesByIdentity: only the hub's own account has what the manifests grant; for another they are of no use.
func TestCheckAdvisesByIdentity(t *testing.T) {
	t.Parallel()
	const account, add = "system:serviceaccount:istio-system:", "isthmus cluster add CONTEXT --name west"
	for user, advice := range map[string]string{
		account + "isthmus-reader":               add,
		account + "istio-reader-service-account": "grant them to " + account + "istio-reader-service-account, or move to the hub's own account: " + add,
		"admin":                                  "grant them to admin, or move to the hub's own account: " + add,
	} {
		s := serve(t, -year, year, kubernetesFor(t, user, 0, "configmaps"))
		all := s.checker().Check(t.Context(), "west", s.config())
		if last := all[len(all)-1]; last.Check != "rights" || last.Advice != advice {
			t.Errorf("%s: %+v", user, last)
		}
	}
}

// TestCheckFollowsNoRedirect: the credential would go along.
func TestCheckFollowsNoRedirect(t *testing.T) {
	t.Parallel()
	asked := 0
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	t.Cleanup(elsewhere.Close)
	s := serve(t, -year, year, http.RedirectHandler(elsewhere.URL, http.StatusFound).ServeHTTP)
	all := s.checker().Check(t.Context(), "west", s.config())
	if last := all[len(all)-1]; last.Status != remote.Failed || !strings.Contains(last.Detail, "redirects elsewhere, which is not followed") || asked > 0 {
		t.Errorf("ends with %+v after %d requests elsewhere", last, asked)
	}
}

// TestCheckOfNonsense: what is no API server is not described in the words of a library.
func TestCheckOfNonsense(t *testing.T) {
	t.Parallel()
	s := serve(t, -year, year, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(`{"kind":"Nonsense","apiVersion":"v1"}`))
	})
	all := s.checker().Check(t.Context(), "west", s.config())
	if last := all[len(all)-1]; last.Status != remote.Failed || strings.Contains(last.Detail, "scheme") {
		t.Errorf("ends with %+v", last)
	}
}
