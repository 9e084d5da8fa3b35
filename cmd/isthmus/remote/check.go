package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/isthmus-mesh/isthmus/secrets"
)

// Status is how a check came out.
type Status string

// The outcomes.
const (
	OK      Status = "ok"
	Warning Status = "warning" // it works, but not wholly or not for long
	Failed  Status = "failed"
)

// Result is one thing that was checked.
type Result struct {
	Cluster string `json:"cluster"`
	Secret  string `json:"secret,omitempty"` // name of the one that the credential is in, without the namespace
	Check   string `json:"check"`            // credential, name, connection, certificate, clock, identity, rights
	Status  Status `json:"status"`
	Detail  string `json:"detail"`
	Advice  string `json:"advice,omitempty"` // what to do
}

// Checker checks credentials against the API servers that they are for. Its zero value uses the network of
// this machine.
type Checker struct {
	Namespace string        // the remote's system namespace
	Reads     Reads         // what there must be rights for
	Timeout   time.Duration // of each check; 10 s if 0
	Lookup    func(ctx context.Context, host string) ([]string, error)
	Dial      func(ctx context.Context, network, address string) (net.Conn, error)
	Now       func() time.Time
}

func (c Checker) withDefaults() Checker {
	if c.Namespace == "" {
		c.Namespace = DefaultNamespace
	}
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	if c.Lookup == nil {
		c.Lookup = net.DefaultResolver.LookupHost
	}
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// attempt is the check of one credential.
type attempt struct {
	Checker
	cluster string
	cfg     *rest.Config
	url     *url.URL
	http    *http.Client
	release func() // its connections
	client  kubernetes.Interface
	user    string // as the server knows us; "" if it does not say
}

// Check goes from the name of the API server to the rights of the credential, and ends at the first
// failure, since nothing behind it can work.
func (c Checker) Check(ctx context.Context, cluster string, cfg *rest.Config) (out []Result) {
	a := &attempt{Checker: c.withDefaults(), cluster: cluster, cfg: rest.CopyConfig(cfg), release: func() {}}
	defer func() { a.release() }()
	steps := []struct {
		name string
		run  func(context.Context) Result
	}{
		{"credential", a.credential}, {"name", a.name}, {"connection", a.connection}, {"certificate", a.certificate},
		{"clock", a.clock}, {"identity", a.identity}, {"rights", a.rights},
	}
	for _, s := range steps {
		bounded, cancel := context.WithTimeout(ctx, a.Timeout)
		r := s.run(bounded)
		cancel()
		if r.Status == "" {
			continue // of no concern here
		}
		r.Cluster, r.Check = cluster, s.name
		out = append(out, r)
		if r.Status == Failed {
			break
		}
	}
	return out
}

func ok(format string, args ...any) Result {
	return Result{Status: OK, Detail: fmt.Sprintf(format, args...)}
}

func warning(advice, format string, args ...any) Result {
	return Result{Status: Warning, Detail: fmt.Sprintf(format, args...), Advice: advice}
}

func failed(advice, format string, args ...any) Result {
	return Result{Status: Failed, Detail: fmt.Sprintf(format, args...), Advice: advice}
}

// again is what gives a cluster a new credential.
func (a *attempt) again() string {
	return "renew it: isthmus cluster add CONTEXT --name " + a.cluster
}

// credential checks what can be read from the credential itself.
func (a *attempt) credential(context.Context) Result {
	host := a.cfg.Host
	if !strings.Contains(host, "://") {
		host = "https://" + host
	}
	u, err := url.Parse(host)
	if err != nil || u.Hostname() == "" {
		return failed(a.again(), "its server is not a URL")
	}
	a.url, a.cfg.Host = u, host
	a.cfg.QPS, a.cfg.Burst, a.cfg.Timeout = 50, 100, a.Timeout
	if a.cfg.Proxy == nil {
		a.cfg.Dial = a.Dial
	}
	if a.http, a.release, err = HTTPClient(a.cfg); err == nil {
		a.client, err = kubernetes.NewForConfigAndClient(a.cfg, a.http)
	}
	if err != nil {
		return failed(a.again(), "it can't be used: %v", err)
	}
	expires := secrets.Expiry(a.cfg)
	left := expires.Sub(a.Now())
	switch {
	case expires.IsZero():
		return ok("for %s; it has no expiry", a.url)
	case left <= 0:
		return failed(a.again(), "it expired at %s, %s ago", expires.Format(time.RFC3339), rough(-left))
	case left < 7*24*time.Hour:
		return warning(a.again(), "for %s, but only until %s, %s from now", a.url, expires.Format(time.RFC3339), rough(left))
	}
	return ok("for %s until %s", a.url, expires.Format(time.RFC3339))
}

// rough is a duration for people.
func rough(d time.Duration) string {
	if d >= 48*time.Hour {
		return fmt.Sprintf("%d days", int(d/(24*time.Hour)))
	}
	return d.Round(time.Second).String()
}

// name resolves the host of the server.
func (a *attempt) name(ctx context.Context) Result {
	host := a.url.Hostname()
	if a.cfg.Proxy != nil {
		return ok("not resolved here: the credential names a proxy")
	}
	if net.ParseIP(host) != nil {
		return Result{}
	}
	addresses, err := a.Lookup(ctx, host)
	switch {
	case err != nil:
		return failed("the hub must be able to resolve it; give another with 'isthmus cluster add CONTEXT --server URL'", "%s can't be resolved: %v", host, err)
	case len(addresses) == 0:
		return failed("the hub must be able to resolve it; give another with 'isthmus cluster add CONTEXT --server URL'", "%s has no address", host)
	}
	return ok("%s is %s", host, strings.Join(addresses, ", "))
}

// address is where the server is dialled.
func (a *attempt) address() string {
	port := a.url.Port()
	if port == "" {
		port = map[string]string{"http": "80"}[a.url.Scheme]
	}
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(a.url.Hostname(), port)
}

func (a *attempt) connection(ctx context.Context) Result {
	if a.cfg.Proxy != nil {
		return Result{}
	}
	conn, err := a.Dial(ctx, "tcp", a.address())
	if err != nil {
		return failed("open the way from the hub's network to the API server, or give an address that it can reach with 'isthmus cluster add CONTEXT --server URL'",
			"%s can't be reached: %v", a.address(), err)
	}
	conn.Close()
	return ok("%s accepts connections", a.address())
}

// clock compares the server's clock with ours: with too large a difference no token or certificate is valid.
func (a *attempt) clock(ctx context.Context) Result {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(a.url.String(), "/")+"/version", nil)
	if err != nil {
		return failed(a.again(), "its server is not a URL")
	}
	before := a.Now()
	res, err := a.http.Do(req)
	if err != nil && a.cfg.Proxy != nil {
		return failed("is the credential's proxy-url right, and does the proxy reach the API server?", "no answer through the proxy: %v", unwrapURL(err))
	} else if err != nil {
		return failed("see the API server's log", "the API server does not answer: %v", unwrapURL(err))
	}
	res.Body.Close()
	date, err := http.ParseTime(res.Header.Get("Date"))
	if err != nil {
		return Result{} // a server without a clock tells nothing of it
	}
	after := a.Now()
	skew := max(before.Add(-time.Second).Sub(date), date.Sub(after), 0) // the header has whole seconds
	const advice = "set the clocks by NTP, here and on the hub's and the API server's machines"
	switch {
	case skew >= 5*time.Minute:
		return failed(advice, "the API server's clock and this machine's are %s apart", rough(skew))
	case skew >= 10*time.Second:
		return warning(advice, "the API server's clock and this machine's are %s apart", rough(skew))
	}
	return ok("no difference that matters")
}

// unwrapURL takes the URL off an error: it is said beside it.
func unwrapURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// errNonsense stands for what the client library says of an answer that is no object of the API.
var errNonsense = errors.New("its answer makes no sense; is this the address of an API server?")

// plain is an error in words for people.
func plain(err error) error {
	if runtime.IsNotRegisteredError(err) || runtime.IsMissingKind(err) || runtime.IsMissingVersion(err) {
		return errNonsense
	}
	return unwrapURL(err)
}

// identity asks the server who we are.
func (a *attempt) identity(ctx context.Context) Result {
	r, err := a.client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authv1.SelfSubjectReview{}, metav1.CreateOptions{})
	switch {
	case apierrors.IsUnauthorized(err):
		return failed(a.again(), "the API server does not accept it: the token has expired, its ServiceAccount is gone, or it is of another cluster")
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		return ok("accepted")
	case err != nil:
		return failed("see the API server's log", "the API server does not say whom it takes us for: %v", plain(err))
	case r.Status.UserInfo.Username == "system:anonymous":
		return failed(a.again(), "the API server takes us for anybody: the credential holds no token and no certificate")
	}
	a.user = r.Status.UserInfo.Username
	return ok("%s", a.user)
}
