package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// TLS is how a server is verified, and what it is shown.
type TLS struct {
	CA        []byte // PEM of the authorities that vouch for the server; those of the machine if there is neither it nor a file of it
	Cert, Key []byte // PEM of what the client shows (mutual TLS); nothing if there is none
	// Files with the same, in its place. They are read for each connection, so that they may rotate.
	CAFile, CertFile, KeyFile string

	ServerName string // that the server must have a certificate for; the host of the address if empty
	// SubjectAltNames are those of which the certificate must have one, in place of the server name.
	SubjectAltNames []string
	Insecure        bool // the server is not verified
}

// content is that of a file, if one is named, or else what is given. Errors do not name the file: who mistook the one for the other has written
// a secret there.
func content(given []byte, file string) ([]byte, error) {
	if file == "" {
		return given, nil
	}
	text, err := os.ReadFile(file)
	if wrapped, ok := errors.AsType[*fs.PathError](err); ok {
		err = wrapped.Err
	}
	return text, err
}

func (t *TLS) config() (*tls.Config, error) {
	c := &tls.Config{ServerName: t.ServerName, InsecureSkipVerify: t.Insecure, MinVersion: tls.VersionTLS12}
	if len(t.CA) > 0 || t.CAFile != "" {
		ca, err := content(t.CA, t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("authorities of the server: %w", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(ca) {
			return nil, errNoAuthority
		}
	}
	if len(t.Cert) > 0 || t.CertFile != "" {
		pair, err := t.pair()
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	if len(t.SubjectAltNames) > 0 && !t.Insecure {
		c.InsecureSkipVerify = true // by its own rule
		c.VerifyConnection = func(s tls.ConnectionState) error { return t.verify(c.RootCAs, s) }
	}
	return c, nil
}

// pair is what the client shows.
func (t *TLS) pair() (pair tls.Certificate, err error) {
	cert, err := content(t.Cert, t.CertFile)
	if err != nil {
		return pair, fmt.Errorf("certificate of the client: %w", err)
	}
	key, err := content(t.Key, t.KeyFile)
	if err != nil {
		return pair, fmt.Errorf("key of the client: %w", err)
	}
	if pair, err = tls.X509KeyPair(cert, key); err != nil {
		return pair, errNoPair // the cause may quote them
	}
	return pair, nil
}

// verify checks the chain as usual, and the names of the certificate against SubjectAltNames.
func (t *TLS) verify(roots *x509.CertPool, s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 {
		return errNoAltName
	}
	leaf, between := s.PeerCertificates[0], x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		between.AddCert(c)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between}); err != nil {
		return err
	}
	names := slices.Clone(leaf.DNSNames)
	for _, u := range leaf.URIs {
		names = append(names, u.String())
	}
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	if !slices.ContainsFunc(names, func(n string) bool { return slices.Contains(t.SubjectAltNames, n) }) {
		return errNoAltName
	}
	return nil
}

// bearer shows the token in a file.
type bearer string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (file bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := content(nil, string(file))
	if err != nil {
		return nil, fmt.Errorf("token: %w", err)
	}
	text := strings.TrimSpace(string(token))
	if text == "" {
		return nil, errToken
	}
	return map[string]string{"authorization": "Bearer " + text}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (bearer) RequireTransportSecurity() bool { return true }

// token is a bearer token itself.
type token string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(t)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (token) RequireTransportSecurity() bool { return true }

// hide takes the token out of what a server says.
func (o *Options) hide(text string) string {
	shown := []string{o.Token}
	if now, err := content(nil, o.TokenFile); err == nil {
		shown = append(shown, strings.TrimSpace(string(now)))
	}
	for _, token := range shown {
		if token != "" {
			text = strings.ReplaceAll(text, token, "…")
		}
	}
	return text
}

// keepAlive has the machine find out soon that the other one is gone, which costs the server nothing.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 4}

// dial gives a connection that is made when it is first used.
func (o *Options) dial(address string) (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if o.TLS != nil {
		cfg, err := o.TLS.config()
		if err != nil {
			return nil, err
		}
		creds = credentials.NewTLS(cfg)
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return o.Dial(ctx, address) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(o.Limits.MessageBytes)),
		// Servers need not bear more pings than one in 5 minutes; see keepAlive.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 5*time.Minute + 10*time.Second, Timeout: 20 * time.Second}),
		grpc.WithDisableServiceConfig(), grpc.WithUserAgent("isthmus"),
	}
	if o.Token != "" {
		opts = append(opts, grpc.WithPerRPCCredentials(token(o.Token)))
	}
	if o.TokenFile != "" {
		opts = append(opts, grpc.WithPerRPCCredentials(bearer(o.TokenFile)))
	}
	return grpc.NewClient("passthrough:///"+url.PathEscape(address), opts...) // an IPv6 address may have a zone, after "%"
}
