package secrets_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-mesh/isthmus/secrets"
)

// refused are kubeconfigs that must not be used as they are.
func refused(t testing.TB) map[string]struct {
	file  []byte
	field string // that the reason names
	allow string // what makes it usable, "" if nothing does
} {
	cert, key := pair(t, time.Now().Add(time.Hour))
	type row = struct {
		file  []byte
		field string
		allow string
	}
	other := func(user object) func(object) {
		return func(c object) { c["users"] = append(c["users"].([]any), object{"name": "unused", "user": user}) }
	}
	program := object{"command": "/bin/prog-x1", "apiVersion": "client.authentication.k8s.io/v1", "args": []any{"arg-x2"}, "interactiveMode": "Never",
		"env": []any{object{"name": "NAME_X3", "value": "value-x4"}}}
	return map[string]row{
		"exec":                         {kubeconfig(t, with(), with("exec", program)), "exec", "exec"},
		"exec of another user":         {kubeconfig(t, with(), with("token", "token-x1"), other(with("exec", program))), "exec", "exec"},
		"certificate file":             {kubeconfig(t, with(), with("client-certificate", "/etc/cert-x1", "client-key-data", key)), "client-certificate", "clientCertificate"},
		"key file":                     {kubeconfig(t, with(), with("client-certificate-data", cert, "client-key", "/etc/key-x1")), "client-key", "clientKey"},
		"key file of another user":     {kubeconfig(t, with(), with("token", "token-x1"), other(with("client-key", "/etc/key-x1"))), "client-key", ""},
		"token file":                   {kubeconfig(t, with(), with("tokenFile", "/var/token-x1")), "tokenFile", "tokenFile"},
		"token file beside a token":    {kubeconfig(t, with(), with("tokenFile", "/var/token-x1", "token", "token-x2")), "tokenFile", "tokenFile"},
		"certificate authority file":   {kubeconfig(t, with("certificate-authority", "/etc/ca-x1"), with("token", "token-x1")), "certificate-authority", "certificateAuthority"},
		"auth provider gcp":            {kubeconfig(t, with(), with("auth-provider", object{"name": "gcp", "config": object{"cmd-path": "/bin/gcloud-x1"}})), "auth-provider", ""},
		"auth provider without a name": {kubeconfig(t, with(), with("auth-provider", object{"config": object{"k-x1": "v-x1"}})), "auth-provider", ""},
		"file of an OIDC issuer": {kubeconfig(t, with(), with("auth-provider", object{"name": "oidc", "config": object{
			"idp-issuer-url": "https://issuer-x1", "client-id": "id-x1", "idp-certificate-authority": "/etc/ca-x1"}})), "idp-certificate-authority", ""},
		"OIDC without an issuer":    {kubeconfig(t, with(), with("auth-provider", object{"name": "oidc", "config": object{"client-id": "id-x1"}})), "idp-issuer-url", ""},
		"OIDC without settings":     {kubeconfig(t, with(), with("auth-provider", object{"name": "oidc"})), "idp-issuer-url", ""},
		"plain HTTP":                {kubeconfig(t, with("server", "http://host-x1"), with("token", "token-x1")), "server", "http"},
		"no server":                 {kubeconfig(t, with("server", ""), with("token", "token-x1")), "server", ""},
		"server without scheme":     {kubeconfig(t, with("server", "host-x1:6443"), with("token", "token-x1")), "server", ""},
		"server is a file":          {kubeconfig(t, with("server", "file:///etc/passwd-x1"), with("token", "token-x1")), "server", ""},
		"server with a user":        {kubeconfig(t, with("server", "https://user-x1:pass-x2@host-x3"), with("token", "token-x1")), "server", ""},
		"server with a query":       {kubeconfig(t, with("server", "https://host-x3/?q=x4"), with("token", "token-x1")), "server", ""},
		"server that is no URL":     {kubeconfig(t, with("server", "https://host-x1:port-x2"), with("token", "token-x1")), "server", ""},
		"proxy of odd kind":         {kubeconfig(t, with("proxy-url", "ftp://proxy-x1"), with("token", "token-x1")), "proxy-url", ""},
		"proxy that is no URL":      {kubeconfig(t, with("proxy-url", "http://user-x1:pass-x2@[proxy-x3"), with("token", "token-x1")), "proxy-url", ""},
		"two ways to log in":        {kubeconfig(t, with(), with("token", "token-x1", "username", "user-x2", "password", "pass-x3")), "more than one", ""},
		"certificate without key":   {kubeconfig(t, with(), with("client-certificate-data", cert)), "client-key", ""},
		"key that is none":          {kubeconfig(t, with(), with("client-certificate-data", cert, "client-key-data", []byte("key-x1"))), "client-key-data", ""},
		"authority that is none":    {kubeconfig(t, with("certificate-authority-data", []byte("ca-x1")), with("token", "token-x1")), "certificate-authority-data", ""},
		"authority and none":        {kubeconfig(t, with("certificate-authority-data", cert, "insecure-skip-tls-verify", true), with("token", "token-x1")), "insecure-skip-tls-verify", ""},
		"token with a line break":   {kubeconfig(t, with(), with("token", "token-x1\r\nX-Header: x2")), "token", ""},
		"groups of nobody":          {kubeconfig(t, with(), with("token", "token-x1", "as-groups", []any{"group-x1"})), "as-groups", ""},
		"extra of nobody":           {kubeconfig(t, with(), with("token", "token-x1", "as-user-extra", object{"key-x1": []any{"value-x2"}})), "as-user-extra", ""},
		"context that is not there": {kubeconfig(t, with(), with("token", "token-x1"), func(c object) { c["current-context"] = "gone-x1" }), "current-context", ""},
		"user that is not there": {kubeconfig(t, with(), with("token", "token-x1"), func(c object) {
			c["contexts"] = []any{object{"name": "at", "context": object{"cluster": "east", "user": "gone-x1"}}}
		}), "user", ""},
		"cluster that is not there": {kubeconfig(t, with(), with("token", "token-x1"), func(c object) {
			c["contexts"] = []any{object{"name": "at", "context": object{"cluster": "gone-x1", "user": "reader"}}}
		}), "cluster", ""},
		"no context":              {kubeconfig(t, with(), with("token", "token-x1"), func(c object) { delete(c, "contexts"); delete(c, "current-context") }), "context", ""},
		"a name twice":            {kubeconfig(t, with(), with("token", "token-x1"), func(c object) { c["users"] = append(c["users"].([]any), c["users"].([]any)...) }), "twice", ""},
		"a value of another type": {kubeconfig(t, with(), with("token", object{"k-x1": "v-x2"})), "wrong type", ""},
		"data that is no base64":  {kubeconfig(t, with("certificate-authority-data", "!!ca-x1"), with("token", "token-x1")), "kubeconfig", ""},
		"another kind":            {[]byte("apiVersion: v1\nkind: Secret\nstringData: {token: token-x1}\n"), "kubeconfig", ""},
		"no YAML":                 {[]byte("users: [token-x1\n  - : {{"), "kubeconfig", ""},
		"empty":                   {nil, "empty", ""},
		"blank":                   {[]byte(" \n\t\n"), "empty", ""},
		"an empty map":            {[]byte("{}"), "context", ""},
		"too large":               {append(kubeconfig(t, with(), with("token", "token-x1")), bytes.Repeat([]byte("#"), secrets.MaxKubeconfig)...), "larger", ""},
	}
}

// TestIncident16HostileKubeconfigs: a kubeconfig that makes the hub run programs or read its files is refused, by
// the name of the field, and what it says shows nowhere.
func TestIncident16HostileKubeconfigs(t *testing.T) {
	t.Parallel()
	for name, c := range refused(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, err := secrets.Sanitise(c.file, nil)
			if err == nil || cfg != nil {
				t.Fatal("it is not refused")
			}
			if !strings.Contains(err.Error(), c.field) {
				t.Errorf("%q does not name %q", err, c.field)
			}
			for _, v := range values(c.file) {
				if strings.Contains(err.Error(), v) {
					t.Errorf("%q shows %q of the kubeconfig", err, v)
				}
			}
			if c.allow == "" {
				return
			}
			if !strings.HasSuffix(err.Error(), "(or --insecure-kubeconfig-options "+string(c.allow)+")") {
				t.Errorf("%q does not say that %q may be allowed", err, c.allow)
			}
			if _, err := secrets.Sanitise(c.file, secrets.Allow{c.allow}); err != nil {
				t.Errorf("refused although allowed: %v", err)
			}
			for _, other := range secrets.AllowNames() {
				if other == c.allow {
					continue
				}
				if _, err := secrets.Sanitise(c.file, secrets.Allow{other}); err == nil {
					t.Errorf("%q makes it usable", other)
				}
			}
		})
	}
}

// values are all strings of a piece of YAML that are told apart from words of ours by their mark, or the whole if it
// is none.
func values(file []byte) (out []string) {
	var all any
	if err := yaml.Unmarshal(file, &all); err != nil {
		return []string{"token-x1"}
	}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			if v != "" && !known[v] {
				out = append(out, v)
			}
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for _, e := range v {
				walk(e)
			}
		}
	}
	walk(all)
	return out
}

// known are strings that a kubeconfig and an error may share by chance.
var known = map[string]bool{"at": true, "v1": true, "oidc": true, "Config": true, "Never": true, "reader": true}

func TestAllowedKubeconfigs(t *testing.T) {
	t.Parallel()
	cert, key := pair(t, time.Now().Add(time.Hour))
	for name, c := range map[string]struct {
		file  []byte
		check func(*rest.Config) bool
	}{
		"token":       {kubeconfig(t, with("certificate-authority-data", cert), with("token", "abc\n")), func(c *rest.Config) bool { return c.BearerToken == "abc" && bytes.Equal(c.CAData, cert) }},
		"certificate": {kubeconfig(t, with(), with("client-certificate-data", cert, "client-key-data", key)), func(c *rest.Config) bool { return bytes.Equal(c.KeyData, key) }},
		"password":    {kubeconfig(t, with(), with("username", "u", "password", "p")), func(c *rest.Config) bool { return c.Username == "u" && c.Password == "p" }},
		"impersonation": {kubeconfig(t, with(), with("token", "abc", "as", "me", "as-uid", "1", "as-groups", []any{"g"}, "as-user-extra", object{"k": []any{"v"}})), func(c *rest.Config) bool {
			return c.Impersonate.UserName == "me" && c.Impersonate.UID == "1" && len(c.Impersonate.Groups) == 1 && len(c.Impersonate.Extra) == 1
		}},
		"insecure":    {kubeconfig(t, with("insecure-skip-tls-verify", true), with("token", "abc")), func(c *rest.Config) bool { return c.Insecure }},
		"server name": {kubeconfig(t, with("tls-server-name", "n"), with("token", "abc")), func(c *rest.Config) bool { return c.ServerName == "n" }},
		"proxy":       {kubeconfig(t, with("proxy-url", "socks5://proxy:1"), with("token", "abc")), func(c *rest.Config) bool { u, err := c.Proxy(nil); return err == nil && u.Host == "proxy:1" }},
		"path":        {kubeconfig(t, with("server", "https://rancher/k8s/clusters/c-1"), with("token", "abc")), func(c *rest.Config) bool { return c.Host == "https://rancher/k8s/clusters/c-1" }},
		"anonymous":   {kubeconfig(t, with(), with()), func(c *rest.Config) bool { return c.BearerToken == "" }},
		"limits":      {kubeconfig(t, with(), with("token", "abc")), func(c *rest.Config) bool { return c.QPS == 80 && c.Burst == 160 }},
		"several contexts": {kubeconfig(t, with(), with("token", "abc"), func(c object) {
			c["clusters"] = append(c["clusters"].([]any), object{"name": "west", "cluster": object{"server": "https://west"}})
			c["contexts"] = append(c["contexts"].([]any), object{"name": "an", "context": object{"cluster": "west", "user": "reader"}})
		}), func(c *rest.Config) bool { return c.Host == "https://api.example:6443" }},
		"no current context": {kubeconfig(t, with(), with("token", "abc"), func(c object) {
			delete(c, "current-context")
			c["contexts"] = append(c["contexts"].([]any), object{"name": "an", "context": object{"cluster": "gone", "user": "reader"}})
		}), func(c *rest.Config) bool { return c.Host == "https://api.example:6443" }},
		"unknown fields": {kubeconfig(t, with("x", "y"), with("token", "abc", "z", 1), func(c object) { c["extensions"] = []any{object{"name": "n", "extension": object{"a": 1}}} }), func(c *rest.Config) bool { return c.BearerToken == "abc" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, err := secrets.Sanitise(c.file, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !c.check(cfg) {
				t.Errorf("got %v", cfg)
			}
			if _, err := kubernetes.NewForConfig(cfg); err != nil {
				t.Errorf("no client can be made of it: %v", err)
			}
		})
	}
}

// TestHTTPIsSentNoCredential: an API server without TLS may be allowed, but it learns no secret.
func TestHTTPIsSentNoCredential(t *testing.T) {
	t.Parallel()
	cfg, err := secrets.Sanitise(kubeconfig(t, with("server", "http://plain"), with("token", "abc")), secrets.Allow{secrets.AllowHTTP})
	if err != nil || cfg.BearerToken != "" {
		t.Errorf("got %v, %v", cfg, err)
	}
}

// TestIncident2OIDCRotation: a kubeconfig with a new OIDC token is used with that token, although issuer and client
// are the same as before.
func TestIncident2OIDCRotation(t *testing.T) {
	t.Parallel()
	for i := range 2 {
		id := token(t, time.Now().Add(time.Duration(i+1)*time.Hour))
		cfg, err := secrets.Sanitise(kubeconfig(t, with(), with("auth-provider", object{"name": "oidc", "config": object{
			"idp-issuer-url": "https://issuer", "client-id": "hub", "id-token": id}})), nil)
		if err != nil {
			t.Fatal(err)
		}
		var sent string
		resp, err := cfg.WrapTransport(roundTripper(func(r *http.Request) (*http.Response, error) {
			sent = r.Header.Get("Authorization")
			return &http.Response{Body: http.NoBody}, nil
		})).RoundTrip(&http.Request{Header: http.Header{}})
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if sent != "Bearer "+id {
			t.Errorf("rotation %d: another token is sent", i)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// reaches lists what the use of a configuration would touch beside the network.
func reaches(c *rest.Config) (out []string) {
	for what, path := range map[string]string{"CAFile": c.CAFile, "CertFile": c.CertFile, "KeyFile": c.KeyFile, "BearerTokenFile": c.BearerTokenFile} {
		if path != "" {
			out = append(out, fmt.Sprintf("%s %q", what, path))
		}
	}
	if c.ExecProvider != nil {
		out = append(out, "ExecProvider")
	}
	if c.AuthProvider != nil {
		out = append(out, "AuthProvider")
	}
	return out
}

// TestParseAllow reads what the flag takes.
func TestParseAllow(t *testing.T) {
	t.Parallel()
	got, err := secrets.ParseAllow(" exec, clientKey,,")
	if err != nil || fmt.Sprint(got) != "[exec clientKey]" {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := secrets.ParseAllow("gcp"); err == nil || !strings.Contains(err.Error(), "tokenFile") {
		t.Errorf("got %v, want an error that lists what can be allowed", err)
	}
	if got, err := secrets.ParseAllow(""); err != nil || len(got) > 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

// FuzzSanitise: whatever is in a Secret, nothing panics, and what is accepted reaches nothing on this machine.
func FuzzSanitise(f *testing.F) {
	for _, c := range refused(f) {
		if len(c.file) < 1<<16 {
			f.Add(c.file)
		}
	}
	cert, key := pair(f, time.Now())
	f.Add(kubeconfig(f, with("certificate-authority-data", cert), with("client-certificate-data", cert, "client-key-data", key)))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, file []byte) {
		cfg, err := secrets.Sanitise(file, nil)
		if err != nil {
			if strings.Contains(err.Error(), "-x1") {
				t.Errorf("%q shows a value", err)
			}
			return
		}
		if r := reaches(cfg); len(r) > 0 {
			t.Errorf("reaches %v", r)
		}
		if !strings.HasPrefix(strings.ToLower(cfg.Host), "https://") {
			t.Errorf("host %q", cfg.Host)
		}
	})
}
