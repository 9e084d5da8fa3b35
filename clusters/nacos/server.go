package nacos

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/foreign"
)

const (
	defaultPort = 8848
	grpcOffset  = 1000 // from the port of HTTP to that of gRPC
	maxServers  = 100
	maxAnswer   = 64 << 10 // bytes of an answer over HTTP
)

// server is where one server of Nacos is.
type server struct {
	secure     bool   // by the scheme of its address
	host       string // a name or an IP
	http, grpc uint16 // ports
}

func (s server) String() string   { return net.JoinHostPort(s.host, strconv.Itoa(int(s.http))) }
func (s server) grpcAddr() string { return net.JoinHostPort(s.host, strconv.Itoa(int(s.grpc))) }

var (
	hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?$`)
	isNumber = regexp.MustCompile(`(^|\.)[0-9]+\.?$`) // the last part of a name is none
)

// parseServer reads "host", "host:port" or a URL. grpc is the port of gRPC if it is not the usual one, else 0.
func parseServer(address string, grpc uint16) (server, error) {
	address = api.HideUser(address) // which no server has
	scheme, rest, isURL := strings.Cut(address, "://")
	if !isURL {
		scheme, rest = "http", address
	}
	rest, _, _ = strings.Cut(rest, "/")
	s := server{secure: scheme == "https" || scheme == "tls", http: defaultPort, grpc: grpc}
	if scheme != "http" && scheme != "grpc" && !s.secure {
		return server{}, fmt.Errorf("address %q: the scheme is none of http, https, grpc and tls", address)
	}
	s.host = strings.Trim(rest, "[]")
	if host, port, err := net.SplitHostPort(rest); err == nil {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return server{}, fmt.Errorf("address %q: %q is no port", address, port)
		}
		s.host, s.http = host, uint16(n)
	}
	if _, err := netip.ParseAddr(s.host); err != nil && (len(s.host) > 253 || !hostName.MatchString(s.host) || isNumber.MatchString(s.host)) {
		return server{}, fmt.Errorf("address %q: %q is neither an IP address nor a host name", address, s.host)
	}
	if s.grpc == 0 {
		if s.http > 65535-grpcOffset {
			return server{}, fmt.Errorf("address %q: the port of gRPC, %d more, is none; grpcPort says which it is", address, grpcOffset)
		}
		s.grpc = s.http + grpcOffset
	}
	return s, nil
}

func parseServers(addresses []string, grpc uint16) ([]server, error) {
	var out []server
	for _, a := range addresses {
		s, err := parseServer(a, grpc)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	if len(out) > maxServers {
		return nil, fmt.Errorf("%d addresses; at most %d are used", len(out), maxServers)
	}
	return out, nil
}

// tlsConfig gives what connections are protected with; nil if they are plain.
func tlsConfig(t *api.TLS, a foreign.Access, servers []server) (*tls.Config, error) {
	secure := slices.ContainsFunc(servers, func(s server) bool { return s.secure })
	if t == nil {
		t = &api.TLS{}
	}
	switch t.Mode {
	case api.TLSSimple, api.TLSMutual:
		secure = true
	case api.TLSDisabled:
		secure = false
	}
	if !secure {
		return nil, nil
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName, InsecureSkipVerify: t.InsecureSkipVerify}
	if len(a.CA) > 0 {
		if out.RootCAs = x509.NewCertPool(); !out.RootCAs.AppendCertsFromPEM(a.CA) {
			return nil, errors.New("the certificates of authorities (ca.crt) can't be read")
		}
	}
	if t.Mode == api.TLSMutual {
		pair, err := tls.X509KeyPair(a.Cert, a.Key)
		if err != nil {
			return nil, errors.New("the certificate and its key (tls.crt, tls.key) can't be read, or don't belong together") // the cause may quote them
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}

// httpClient gives a client that keeps no connection: it asks now and then.
func httpClient(t *tls.Config) *http.Client {
	return &http.Client{
		Transport:     &http.Transport{TLSClientConfig: t.Clone(), DisableKeepAlives: true, MaxResponseHeaderBytes: maxAnswer},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // credentials go nowhere else
	}
}

// askServers reads the list of an address server: one per line, "host" or "host:port".
func askServers(ctx context.Context, c *http.Client, from string, grpc uint16) ([]server, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Request-Module", "Naming")
	resp, err := c.Do(req)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok { // its text has the URL, and a query may be nobody's business
			err = wrapped.Err
		}
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(statusText(resp))
	}
	servers, err := parseList(io.LimitReader(resp.Body, maxAnswer), grpc)
	if err == nil && len(servers) == 0 {
		err = errors.New("it lists no server")
	}
	return servers, err
}

// parseList leaves out what is no address; only if nothing is one it fails.
func parseList(r io.Reader, grpc uint16) (out []server, err error) {
	words := bufio.NewScanner(r)
	words.Split(bufio.ScanWords)
	var first error
	for words.Scan() && len(out) < maxServers {
		s, err := parseServer(words.Text(), grpc)
		switch {
		case err != nil && first == nil:
			first = err
		case err == nil && !slices.Contains(out, s):
			out = append(out, s)
		}
	}
	if len(out) == 0 && first != nil {
		return nil, first
	}
	return out, words.Err()
}

// addressServer checks the URL of one.
func addressServer(text string) error {
	if text == "" {
		return nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Contains(text, "@") {
		return fmt.Errorf("addressServer %q is no URL of HTTP or HTTPS without user", api.HideUser(text))
	}
	return nil
}
