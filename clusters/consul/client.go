package consul

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/foreign"
)

const (
	maxBody  = 64 << 20         // bytes of an answer that are read
	maxError = 4 << 10          // bytes of an error's text that are read
	maxSaid  = 200              // and told
	slack    = 30 * time.Second // how long an answer may take beyond the time that the server was asked to wait
	dialTime = 5 * time.Second
)

// client asks the servers of one cluster, another one if one does not answer. It is safe for concurrent use. Nothing of it
// comes from the environment.
type client struct {
	http        *http.Client
	servers     []string // "scheme://host:port"
	token       string
	consistency string // query parameter, "" for the default
	maxStale    time.Duration
	limit       *rate.Limiter
	metrics     *foreign.Metrics
	name        string        // of the registry, for metrics
	at          atomic.Uint32 // the server that is asked first
}

// query is a request. With an index it waits for a change.
type query struct {
	path   string
	params url.Values
	index  uint64
	wait   time.Duration // at most, with an index
	known  uint64        // if the answer has this index the body is that of before, and is not looked at
}

// answer is what is said beside the body.
type answer struct {
	index    uint64
	filtered bool          // the token may not see all of it
	deny     bool          // who shows no token may see nothing unless told otherwise
	same     bool          // as query.known has it
	age      time.Duration // how far the server may be behind the leader
	took     time.Duration // to make sense of it
}

// failure is a request without an answer that can be used.
type failure struct {
	result string // as in metrics
	status int    // of HTTP; 0 if there was no answer
	text   string
}

func (f *failure) Error() string { return f.text }

// lost reports whether an error says nothing about what was asked, only about the contact.
func lost(err error) bool {
	var f *failure
	return errors.As(err, &f) && f.result != foreign.RequestRefused && (f.status < 400 || f.status >= 500 || f.status == http.StatusTooManyRequests)
}

// refused reports whether the credentials do not do.
func refused(err error) bool {
	var f *failure
	return errors.As(err, &f) && f.result == foreign.RequestRefused
}

func status(err error) int {
	var f *failure
	if errors.As(err, &f) {
		return f.status
	}
	return 0
}

var (
	errBody    = errors.New("its answer can't be read")
	errNothing = &failure{result: foreign.RequestRefused, text: "the token may see nothing: service:read and node:read are needed"}
)

func newClient(spec *api.RegistrySpec, access foreign.Access, metrics *foreign.Metrics, name string, connections int) (*client, error) {
	encrypted := spec.TLS != nil && spec.TLS.Mode != api.TLSDisabled
	c := &client{
		token: access.Token, maxStale: spec.Consul.MaxStale.Duration, metrics: metrics, name: name,
		limit: rate.NewLimiter(rate.Limit(spec.Limits.RequestsPerSecond), int(max(spec.Limits.RequestsPerSecond/2, 1))),
	}
	if m := spec.Consul.Consistency; m == "stale" || m == "consistent" {
		c.consistency = m
	}
	for _, a := range spec.Addresses {
		s, err := server(a, encrypted)
		if err != nil {
			return nil, err
		}
		c.servers = append(c.servers, s)
	}
	if len(c.servers) == 0 {
		return nil, errors.New("no address is given")
	}
	believes, err := tlsConfig(spec.TLS, access)
	if err != nil {
		return nil, err
	}
	c.http = &http.Client{Transport: transport(believes, connections), CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // the token is for the servers that were named
	}}
	return c, nil
}

// server gives the base of a server's URLs.
func server(address string, encrypted bool) (string, error) {
	scheme, host, has := strings.Cut(address, "://")
	if !has {
		scheme, host = "http", address
	}
	if encrypted {
		scheme = "https"
	}
	host = strings.TrimSuffix(host, "/")
	if scheme != "http" && scheme != "https" || host == "" || strings.ContainsAny(host, "@/?#") {
		return "", errors.New("an address is neither host:port nor a URL of http or https without user and path")
	}
	if _, err := url.Parse(scheme + "://" + host); err != nil {
		return "", errors.New("an address can't be read")
	}
	return scheme + "://" + host, nil
}

func transport(believes *tls.Config, connections int) *http.Transport {
	dial := &net.Dialer{Timeout: dialTime, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 15 * time.Second, Count: 4}}
	return &http.Transport{
		Proxy: nil, DialContext: dial.DialContext, TLSClientConfig: believes, TLSHandshakeTimeout: 2 * dialTime, ForceAttemptHTTP2: true,
		MaxConnsPerHost: connections, MaxIdleConnsPerHost: connections, IdleConnTimeout: 90 * time.Second, MaxResponseHeaderBytes: 64 << 10,
	}
}

// tlsConfig says which servers are believed, and what they are shown.
func tlsConfig(t *api.TLS, access foreign.Access) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if t != nil {
		c.ServerName, c.InsecureSkipVerify = t.ServerName, t.InsecureSkipVerify
	}
	if len(access.CA) > 0 {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(access.CA) {
			return nil, errors.New("the authorities (ca.crt) hold no certificate")
		}
	}
	if t != nil && t.Mode == api.TLSMutual {
		pair, err := tls.X509KeyPair(access.Cert, access.Key)
		if err != nil {
			return nil, errors.New("tls.crt and tls.key are no certificate with its key")
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// get asks for something; into takes the body. The servers are tried in turn until one answers; indexes are those of the
// cluster, whoever is asked.
func (c *client) get(ctx context.Context, q query, into any) (answer, error) {
	first := c.at.Load()
	var errs []string
	for i := range uint32(len(c.servers)) {
		n := (first + i) % uint32(len(c.servers))
		a, err := c.ask(ctx, c.servers[n], q, into)
		if ctx.Err() != nil {
			return answer{}, ctx.Err()
		}
		c.count(err)
		if err == nil || !lost(err) {
			if i > 0 {
				c.at.Store(n)
			}
			return a, err
		}
		errs = append(errs, err.Error())
		if i == uint32(len(c.servers))-1 {
			var f *failure
			errors.As(err, &f)
			return answer{}, &failure{result: f.result, status: f.status, text: strings.Join(errs, "; ")}
		}
	}
	return answer{}, errors.New("no server")
}

func (c *client) count(err error) {
	var f *failure
	result := foreign.RequestOK
	switch {
	case errors.As(err, &f):
		result = f.result
	case err != nil:
		result = foreign.RequestFailed
	}
	c.metrics.Request(c.name, result)
}

// ask asks one server.
func (c *client) ask(ctx context.Context, server string, q query, into any) (answer, error) {
	if err := c.limit.Wait(ctx); err != nil {
		return answer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, q.patience())
	defer cancel()
	fail := func(err error) (answer, error) {
		return answer{}, &failure{result: foreign.RequestFailed, text: strings.TrimPrefix(server, "http://") + ": " + c.plain(err)}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server+q.path+"?"+c.parameters(q).Encode(), nil)
	if err != nil {
		return fail(err)
	}
	if c.token != "" {
		req.Header.Set("X-Consul-Token", c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fail(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return answer{}, c.refusal(server, resp)
	}
	a := read(resp.Header)
	if a.age, err = c.doubt(server, resp.Header); err != nil {
		return answer{}, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		return fail(err)
	case len(body) > maxBody:
		return answer{}, fmt.Errorf("%w: it has more than %d bytes", errBody, maxBody)
	}
	if a.same = q.known != 0 && a.index == q.known; a.same {
		return a, nil
	}
	if strings.HasPrefix(q.path, "/v1/catalog/") || strings.HasPrefix(q.path, "/v1/health/") {
		if string(bytes.TrimSpace(body)) == "null" { // which Consul does not say for an empty list there
			return answer{}, fmt.Errorf("%w: it is null", errBody)
		}
	}
	began := time.Now()
	if err := json.Unmarshal(body, into); err != nil {
		return answer{}, fmt.Errorf("%w: %w", errBody, err)
	}
	a.took = time.Since(began)
	return a, nil
}

// patience is how long an answer may take: servers add up to a sixteenth to the time that they are to wait.
func (q query) patience() time.Duration {
	if q.index == 0 {
		return slack
	}
	return q.wait + q.wait/16 + slack
}

func (c *client) parameters(q query) url.Values {
	v := url.Values{}
	for k, values := range q.params {
		v[k] = values
	}
	if c.consistency != "" {
		v.Set(c.consistency, "")
	}
	if q.index > 0 {
		v.Set("index", strconv.FormatUint(q.index, 10))
		v.Set("wait", strconv.FormatInt(max(q.wait.Milliseconds(), 1), 10)+"ms")
	}
	return v
}

func read(h http.Header) answer {
	index, _ := strconv.ParseUint(h.Get("X-Consul-Index"), 10, 64) // 0 if there is none
	return answer{
		index: index, filtered: h.Get("X-Consul-Results-Filtered-By-ACLs") == "true",
		deny: h.Get("X-Consul-Default-ACL-Policy") == "deny",
	}
}

// doubt says how old an answer may be, and why it is not to be believed: what comes from a server that knows no leader, or has not
// heard of it for long, may lack what is there.
func (c *client) doubt(server string, h http.Header) (age time.Duration, why error) {
	text := ""
	contact, err := strconv.ParseUint(h.Get("X-Consul-LastContact"), 10, 42)
	age = time.Duration(contact) * time.Millisecond
	switch {
	case h.Get("X-Consul-KnownLeader") == "false":
		text = "the server knows no leader"
	case h.Get("X-Consul-LastContact") != "" && err != nil, c.consistency == "stale" && age > c.maxStale:
		text = fmt.Sprintf("the server is behind the leader for more than %v", c.maxStale)
	default:
		return age, nil
	}
	return 0, &failure{result: foreign.RequestUncertain, text: strings.TrimPrefix(server, "http://") + ": " + text}
}

// refusal is an answer other than 200.
func (c *client) refusal(server string, resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxError)) // what there is of it
	f := &failure{result: foreign.RequestFailed, status: resp.StatusCode}
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		f.result = foreign.RequestRefused
	case http.StatusTooManyRequests:
		f.result = foreign.RequestBusy
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	line = c.clean(line)
	f.text = strings.TrimPrefix(server, "http://") + ": " + strings.TrimSuffix(strings.TrimSpace(resp.Status)+": "+line[:min(len(line), maxSaid)], ": ")
	return f
}

// clean takes the token out of a text that came from elsewhere, and what can't be printed.
func (c *client) clean(text string) string {
	if c.token != "" {
		text = strings.ReplaceAll(text, c.token, "…")
	}
	return strings.Map(func(r rune) rune {
		if strconv.IsPrint(r) {
			return r
		}
		return -1
	}, strings.ToValidUTF8(text, ""))
}

// plain gives an error's text, the same each time: without URLs, and ports of ours.
func (c *client) plain(err error) string {
	var dns *net.DNSError
	var op *net.OpError
	var u *url.Error
	switch {
	case errors.As(err, &u) && u.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case errors.As(err, &dns):
		return cmp.Or(dns.Err, "its name can't be resolved")
	case errors.As(err, &op):
		return c.clean(op.Err.Error())
	case errors.As(err, &u):
		return c.clean(u.Err.Error())
	}
	return c.clean(err.Error())
}

func (c *client) close() { c.http.CloseIdleConnections() }
