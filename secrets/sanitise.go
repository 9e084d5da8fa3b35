package secrets

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	_ "k8s.io/client-go/plugin/pkg/client/auth/oidc" // the one auth-provider that stays within a kubeconfig
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// MaxKubeconfig is how many bytes a kubeconfig may have. A Secret has no room for more.
const MaxKubeconfig = 1 << 20

// The requests per second that a client may make, and in a burst: Istio's --kubernetesApiQPS and
// --kubernetesApiBurst.
const (
	DefaultQPS   = 80
	DefaultBurst = 160
)

// Sanitise makes the configuration of a client from a kubeconfig that somebody else wrote. Whatever it
// says, using the result runs no program and reads no file, unless allow has it: a kubeconfig in a Secret
// could otherwise have the hub run commands, or send local files to a server of its author's choice.
//
// Allowed are tokens, inline certificates and keys, user name and password, impersonation, an OIDC
// auth-provider, and proxy-url; insecure-skip-tls-verify too, as Istio does. A disallowed field is refused
// wherever in the file it stands, also in a user that is not the current one. The current context decides; if
// the file names none, the first by name that is complete.
//
// Errors name fields and never contain anything that the kubeconfig says.
func Sanitise(kubeconfig []byte, allow Allow) (*rest.Config, error) {
	cfg, err := load(kubeconfig)
	if err != nil {
		return nil, err
	}
	return (&sanitiser{allow: allow}).sanitise(cfg)
}

// load parses. What the parser says may quote the input, so it is not passed on.
func load(kubeconfig []byte) (*api.Config, error) {
	switch {
	case len(kubeconfig) > MaxKubeconfig:
		return nil, fmt.Errorf("larger than the %d bytes that a kubeconfig may have", MaxKubeconfig)
	case len(strings.TrimSpace(string(kubeconfig))) == 0:
		return nil, errors.New("empty")
	}
	cfg, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, errors.New("not a kubeconfig: malformed YAML, a value of the wrong type, or a name used twice")
	}
	return cfg, nil
}

// sanitiser turns one kubeconfig into a configuration.
type sanitiser struct {
	allow Allow
	dir   string // what relative paths are relative to
}

func (s *sanitiser) sanitise(cfg *api.Config) (*rest.Config, error) {
	for _, name := range slices.Sorted(maps.Keys(cfg.Clusters)) {
		if err := s.check(clusterRefusals(cfg.Clusters[name])); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.AuthInfos)) {
		if err := s.check(userRefusals(cfg.AuthInfos[name])); err != nil {
			return nil, err
		}
	}
	at, err := current(cfg)
	if err != nil {
		return nil, err
	}
	return s.build(cfg.Clusters[at.Cluster], cfg.AuthInfos[at.AuthInfo])
}

// refusal is a field that is only taken if it is allowed.
type refusal struct {
	found bool
	allow string // "" = never
	text  string
}

const (
	aFile    = "names a file of the hub's machine"
	aProgram = "would run a program"
)

func clusterRefusals(c *api.Cluster) []refusal {
	return []refusal{
		{c.CertificateAuthority != "", AllowCertificateAuthority, "certificate-authority " + aFile + "; put the content into certificate-authority-data"},
	}
}

func userRefusals(u *api.AuthInfo) []refusal {
	out := []refusal{
		{u.Exec != nil, AllowExec, "exec " + aProgram + ", which the hub's image does not have; use a token or a certificate"},
		{u.ClientCertificate != "", AllowClientCertificate, "client-certificate " + aFile + "; put the content into client-certificate-data"},
		{u.ClientKey != "", AllowClientKey, "client-key " + aFile + "; put the content into client-key-data"},
		{u.TokenFile != "", AllowTokenFile, "tokenFile " + aFile + "; put the content into token"},
	}
	if p := u.AuthProvider; p != nil {
		out = append(out,
			refusal{p.Name != oidc, "", "auth-provider is none but oidc; the others are gone from Kubernetes clients"},
			refusal{p.Config[oidcCA] != "", AllowCertificateAuthority, "auth-provider.config." + oidcCA + " " + aFile + "; put the content into " + oidcCA + "-data"})
	}
	return out
}

const (
	oidc   = "oidc"
	oidcCA = "idp-certificate-authority"
)

func (s *sanitiser) check(all []refusal) error {
	for _, r := range all {
		switch {
		case !r.found || r.allow != "" && s.allow.has(r.allow):
		case r.allow == "":
			return errors.New(r.text)
		default:
			return fmt.Errorf("%s (or --insecure-kubeconfig-options %s)", r.text, r.allow)
		}
	}
	return nil
}

// current chooses the context.
func current(cfg *api.Config) (*api.Context, error) {
	if cfg.CurrentContext != "" {
		at := cfg.Contexts[cfg.CurrentContext]
		switch {
		case at == nil:
			return nil, errors.New("current-context is not among the contexts")
		case cfg.Clusters[at.Cluster] == nil:
			return nil, errors.New("the cluster of current-context is not among the clusters")
		case cfg.AuthInfos[at.AuthInfo] == nil:
			return nil, errors.New("the user of current-context is not among the users")
		}
		return at, nil
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Contexts)) {
		if at := cfg.Contexts[name]; cfg.Clusters[at.Cluster] != nil && cfg.AuthInfos[at.AuthInfo] != nil {
			return at, nil
		}
	}
	return nil, errors.New("current-context is missing, and no context is complete")
}

func (s *sanitiser) build(c *api.Cluster, u *api.AuthInfo) (*rest.Config, error) {
	out := &rest.Config{
		Host: c.Server, DisableCompression: c.DisableCompression, QPS: DefaultQPS, Burst: DefaultBurst,
		WarningHandler: rest.NoWarnings{}, // else the server writes to our log
		TLSClientConfig: rest.TLSClientConfig{
			ServerName: c.TLSServerName, Insecure: c.InsecureSkipTLSVerify, CAData: c.CertificateAuthorityData, CAFile: s.path(c.CertificateAuthority),
		},
	}
	secure, err := s.server(c.Server)
	if err != nil {
		return nil, err
	}
	for _, step := range []func(*rest.Config) error{
		func(out *rest.Config) error { return proxy(out, c.ProxyURL) },
		checkAuthority,
		func(out *rest.Config) error { return impersonate(out, u) },
		func(out *rest.Config) error {
			if !secure {
				return nil // as all Kubernetes clients do
			}
			return s.identify(out, u)
		},
	} {
		if err := step(out); err != nil {
			return nil, err
		}
	}
	if !secure {
		out.TLSClientConfig = rest.TLSClientConfig{}
	}
	return out, nil
}

// path makes a file's path absolute.
func (s *sanitiser) path(p string) string {
	if p == "" || filepath.IsAbs(p) || s.dir == "" {
		return p
	}
	return filepath.Join(s.dir, p)
}

func (s *sanitiser) server(text string) (secure bool, err error) {
	u, err := url.Parse(text)
	switch {
	case text == "":
		return false, errors.New("server is missing")
	case err != nil || u.Host == "" || u.Opaque != "":
		return false, errors.New("server must be a URL like https://HOST:PORT")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return false, errors.New("server must have no user, query or fragment")
	case u.Scheme == "https":
		return true, nil
	case u.Scheme != "http":
		return false, errors.New("server must be a URL like https://HOST:PORT")
	case !s.allow.has(AllowHTTP):
		return false, fmt.Errorf("server must use https (or --insecure-kubeconfig-options %s)", AllowHTTP)
	}
	return false, nil
}

func proxy(out *rest.Config, text string) error {
	if text == "" {
		return nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) {
		return errors.New("proxy-url must be a URL with http, https or socks5")
	}
	out.Proxy = http.ProxyURL(u)
	return nil
}

func checkAuthority(out *rest.Config) error {
	switch {
	case out.Insecure && (len(out.CAData) > 0 || out.CAFile != ""):
		return errors.New("insecure-skip-tls-verify and certificate-authority exclude each other")
	case len(out.CAData) > 0 && !x509.NewCertPool().AppendCertsFromPEM(out.CAData):
		return errors.New("certificate-authority-data holds no certificate in PEM")
	}
	return nil
}

func impersonate(out *rest.Config, u *api.AuthInfo) error {
	out.Impersonate = rest.ImpersonationConfig{UserName: u.Impersonate, UID: u.ImpersonateUID, Groups: u.ImpersonateGroups, Extra: u.ImpersonateUserExtra}
	if u.Impersonate == "" && (u.ImpersonateUID != "" || len(u.ImpersonateGroups) > 0 || len(u.ImpersonateUserExtra) > 0) {
		return errors.New("as-uid, as-groups and as-user-extra need as")
	}
	return nil
}

// identify says who the hub is to the API server.
func (s *sanitiser) identify(out *rest.Config, u *api.AuthInfo) error {
	out.BearerToken, out.BearerTokenFile = strings.TrimSpace(u.Token), s.path(u.TokenFile)
	out.Username, out.Password = u.Username, u.Password
	out.CertData, out.CertFile = u.ClientCertificateData, s.path(u.ClientCertificate)
	out.KeyData, out.KeyFile = u.ClientKeyData, s.path(u.ClientKey)
	out.ExecProvider = u.Exec
	ways := 0
	for _, has := range []bool{out.BearerToken != "" || out.BearerTokenFile != "", u.Username != "" || u.Password != "", u.Exec != nil, u.AuthProvider != nil} {
		if has {
			ways++
		}
	}
	switch {
	case ways > 1:
		return errors.New("more than one of token, username, exec and auth-provider; use one")
	case strings.ContainsFunc(out.BearerToken, func(c rune) bool { return c <= ' ' || c > '~' }):
		return errors.New("token holds a character that no token has")
	}
	if u.Exec != nil {
		if err := checkExec(u.Exec); err != nil {
			return err
		}
	}
	if err := checkPair(out); err != nil {
		return err
	}
	return s.authProvider(out, u.AuthProvider)
}

// checkExec makes sure that a program, which is allowed, can be run without anybody at the keyboard.
func checkExec(e *api.ExecConfig) error {
	if e.Command == "" || e.APIVersion == "" {
		return errors.New("exec needs command and apiVersion")
	}
	if e.InteractiveMode == api.AlwaysExecInteractiveMode {
		return errors.New("exec.interactiveMode must not be Always: nobody is at the keyboard")
	}
	e.InteractiveMode = api.NeverExecInteractiveMode
	return nil
}

func checkPair(out *rest.Config) error {
	cert, key := len(out.CertData) > 0, len(out.KeyData) > 0
	switch {
	case (cert || out.CertFile != "") != (key || out.KeyFile != ""):
		return errors.New("client-certificate and client-key need each other")
	case cert && key:
		if _, err := tls.X509KeyPair(out.CertData, out.KeyData); err != nil {
			return errors.New("client-certificate-data and client-key-data are no pair of certificate and key in PEM")
		}
	}
	return nil
}

// authProvider makes the plugin here: the client library would use the first one of an issuer for ever, and go on
// using its tokens when the kubeconfig has others. It keeps each plugin until the program ends, so there is one for each
// content of auth-provider that an API server's kubeconfig has had, some kilobytes each, and not for each kubeconfig.
func (s *sanitiser) authProvider(out *rest.Config, p *api.AuthProviderConfig) error {
	if p == nil {
		return nil
	}
	p = p.DeepCopy()
	if ca := p.Config[oidcCA]; ca != "" {
		p.Config[oidcCA] = s.path(ca)
	}
	plugin, err := rest.GetAuthProvider(out.Host+"#"+Hash(fmt.Appendf(nil, "%q", p.Config)), p, nil)
	if err != nil {
		return errors.New("auth-provider.config needs idp-issuer-url, client-id, and a proper idp-certificate-authority-data if any")
	}
	out.WrapTransport = plugin.WrapTransport
	return nil
}

// clusterName is what a kubeconfig calls its cluster: that of its context, else the first by name; "" if it
// has none.
func clusterName(cfg *api.Config) string {
	if at, err := current(cfg); err == nil {
		return at.Cluster
	}
	if at := cfg.Contexts[cfg.CurrentContext]; at != nil && at.Cluster != "" {
		return at.Cluster
	}
	return cmp.Or(slices.Sorted(maps.Keys(cfg.Clusters))...)
}
