package envoytest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// lifetime of certificates; tests are short.
const lifetime = 24 * time.Hour

// Authority issues certificates to workloads, as files.
type Authority struct {
	// Read-only after StartAuthority.
	Dir  string // that any user may read
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Certificate is the PEM files of one workload.
type Certificate struct {
	Chain, Key, Root string // paths
}

// StartAuthority makes an authority for the length of a test. Its folder is not in t.TempDir, which
// other users cannot enter.
func StartAuthority(t testing.TB) *Authority {
	t.Helper()
	dir, err := os.MkdirTemp("", "isthmus-certs-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	a := &Authority{Dir: dir}
	if err := errors.Join(os.Chmod(dir, 0o755), a.make()); err != nil {
		t.Fatalf("certificate authority: %v", err)
	}
	return a
}

func (a *Authority) make() (err error) {
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return err
	}
	template := certificate("test authority")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		return err
	}
	if a.cert, err = x509.ParseCertificate(raw); err != nil {
		return err
	}
	return writePEM(filepath.Join(a.Dir, "root-cert.pem"), "CERTIFICATE", raw)
}

func certificate(name string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		panic(err) // the system's random source never fails
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(lifetime),
	}
}

// Issue makes the files of a workload whose identity is a URI, such as "spiffe://cluster.local/ns/a/sa/b". They
// are in the authority's folder, named name-*.pem.
func (a *Authority) Issue(t testing.TB, name, identity string) Certificate {
	t.Helper()
	c := Certificate{
		Chain: filepath.Join(a.Dir, name+"-chain.pem"), Key: filepath.Join(a.Dir, name+"-key.pem"), Root: filepath.Join(a.Dir, "root-cert.pem"),
	}
	if err := a.issue(c, name, identity); err != nil {
		t.Fatalf("certificate of %s: %v", name, err)
	}
	return c
}

func (a *Authority) issue(c Certificate, name, identity string) error {
	uri, err := url.Parse(identity)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := certificate(name)
	template.URIs = []*url.URL{uri}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	raw, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(writePEM(c.Chain, "CERTIFICATE", raw), writePEM(c.Key, "PRIVATE KEY", secret))
}

// Server is the TLS of a server that verifies its callers, and that answers to one server name only.
func (a *Authority) Server(t testing.TB, name, serverName string) *tls.Config {
	t.Helper()
	c := a.Issue(t, name, "spiffe://test/"+name)
	cert, err := tls.LoadX509KeyPair(c.Chain, c.Key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	return &tls.Config{
		Certificates: []tls.Certificate{cert}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			if h.ServerName != serverName {
				return nil, fmt.Errorf("asked for %q, serves %q", h.ServerName, serverName)
			}
			return nil, nil // this one
		},
	}
}

// writePEM makes a file that any user may read: what it protects lasts as long as a test.
func writePEM(path, kind string, raw []byte) error {
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o644); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return nil
}
