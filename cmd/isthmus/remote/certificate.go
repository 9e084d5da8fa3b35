package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// certificate checks that of the server: its name, who signed it, and when it ends.
func (a *attempt) certificate(ctx context.Context) Result {
	switch {
	case a.cfg.Proxy != nil:
		return Result{}
	case a.url.Scheme == "http":
		return warning("use an https:// server", "none: the connection is not encrypted, and the token can be read on the way")
	}
	cfg, err := rest.TLSConfigFor(a.cfg)
	if err != nil {
		return failed(a.again(), "the credential's certificates can't be read: %v", err)
	}
	if cfg == nil {
		cfg = &tls.Config{}
	}
	chain, err := a.handshake(ctx, cfg)
	if err != nil {
		return failed("is it a Kubernetes API server that listens there?", "no TLS with %s: %v", a.address(), err)
	}
	return a.verify(cfg, chain)
}

// handshake gives the server's certificates, its own first, whatever they are worth.
func (a *attempt) handshake(ctx context.Context, cfg *tls.Config) ([]*x509.Certificate, error) {
	conn, err := a.Dial(ctx, "tcp", a.address())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	lax := cfg.Clone()
	lax.InsecureSkipVerify = true // verify judges what it gives; nothing is sent
	if lax.ServerName == "" {
		lax.ServerName = a.url.Hostname()
	}
	c := tls.Client(conn, lax)
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return c.ConnectionState().PeerCertificates, nil
}

func (a *attempt) verify(cfg *tls.Config, chain []*x509.Certificate) Result {
	if cfg.InsecureSkipVerify {
		return warning("put the CA into the credential", "not verified: the credential says so")
	}
	leaf, name := chain[0], cfg.ServerName
	if name == "" {
		name = a.url.Hostname()
	}
	pool := x509.NewCertPool()
	for _, c := range chain[1:] {
		pool.AddCert(c)
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: cfg.RootCAs, Intermediates: pool, CurrentTime: a.Now(), DNSName: name})
	var (
		hostname x509.HostnameError
		invalid  x509.CertificateInvalidError
		unknown  x509.UnknownAuthorityError
	)
	switch {
	case errors.As(err, &hostname):
		return failed("name one of them: isthmus cluster add CONTEXT --name "+a.cluster+" --tls-server-name NAME", "it is not for %s, but for %s", name, names(leaf))
	case errors.As(err, &unknown):
		return failed("put the right CA into the credential, or renew it: isthmus cluster add CONTEXT --name "+a.cluster,
			"it is signed by %q, which the credential's CA does not vouch for", leaf.Issuer)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && a.Now().Before(leaf.NotBefore):
		return failed("compare the clocks", "it is valid from %s on only, and it is %s here", leaf.NotBefore.Format(time.RFC3339), a.Now().UTC().Format(time.RFC3339))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return failed("renew the API server's certificate", "it, or one that signed it, has expired; its own ends at %s", leaf.NotAfter.Format(time.RFC3339))
	case err != nil:
		return failed("renew the API server's certificate", "it can't be verified: %v", err)
	case leaf.NotAfter.Sub(a.Now()) < 14*24*time.Hour:
		return warning("renew the API server's certificate", "it is valid for %s, but only until %s", name, leaf.NotAfter.Format(time.RFC3339))
	}
	return ok("valid for %s until %s", name, leaf.NotAfter.Format(time.RFC3339))
}

// names are those that a certificate is for.
func names(c *x509.Certificate) string {
	all := append([]string(nil), c.DNSNames...)
	for _, ip := range c.IPAddresses {
		all = append(all, net.IP(ip).String())
	}
	if len(all) == 0 {
		return "nothing"
	}
	return strings.Join(all, ", ")
}
