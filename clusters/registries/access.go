package registries

import (
	"fmt"
	"slices"
	"strings"

	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/foreign"
	"github.com/isthmus-mesh/isthmus/secrets"
)

// known is what is known of a Secret.
type known struct {
	data    map[string][]byte // as it was when it was last there; nil if it never was
	gone    bool              // it was there
	none    bool              // it never was
	err     string            // why nothing is known
	pending bool              // that may change at any moment
}

// take notes what is told of a Secret: that it can't be read is no news of one that was.
func (k *known) take(s secrets.Secret) {
	switch {
	case s.Data != nil:
		*k = known{data: s.Data}
	case s.Err == "":
		k.gone, k.none, k.err = k.data != nil, k.data == nil, ""
	case k.data == nil:
		k.err, k.pending = s.Err, true
	}
}

// The keys of Secrets, by what they hold; those of a McpBridge's Secret second.
var (
	tokenKeys     = []string{"token", "consulToken"}
	usernameKeys  = []string{"username", "nacosUsername"}
	passwordKeys  = []string{"password", "nacosPassword"}
	accessKeyKeys = []string{"accessKey", "nacosAccessKey"}
	secretKeyKeys = []string{"secretKey", "nacosSecretKey"}
)

// secretNames are the Secrets that a declaration needs.
func (d *Declared) secretNames() (out []string) {
	if d.Spec == nil {
		return nil
	}
	if c := d.Spec.Credentials; c != nil {
		out = append(out, c.SecretName)
	}
	if t := d.Spec.TLS; t != nil && t.SecretName != "" {
		out = append(out, t.SecretName)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// shortfall is why there are no credentials. Pending says that nobody has been able to look yet.
type shortfall struct {
	why     string
	pending bool
}

// access gives what a registry shows and believes, by the Secrets that it names, and what is wrong with these although they do; or why
// there is nothing to show.
func (d *Declared) access(all map[string]*known) (a foreign.Access, problems []string, short *shortfall) {
	a = d.plain
	for _, name := range d.secretNames() {
		k := all[name]
		switch {
		case k == nil:
			return a, nil, &shortfall{fmt.Sprintf("the Secret %s/%s has not been read yet", d.namespace, name), true}
		case k.none:
			return a, nil, &shortfall{why: fmt.Sprintf("the Secret %s/%s does not exist", d.namespace, name)}
		case k.data == nil:
			return a, nil, &shortfall{fmt.Sprintf("the Secret %s/%s: %s", d.namespace, name, k.err), k.pending}
		case k.gone:
			problems = append(problems, fmt.Sprintf("the Secret %s/%s is gone; what it held last is used", d.namespace, name))
		}
	}
	if d.Spec == nil {
		return a, nil, nil
	}
	if c := d.Spec.Credentials; c != nil {
		if why := credentials(&a, d.Spec.Provider, all[c.SecretName].data); why != "" {
			return a, nil, &shortfall{why: fmt.Sprintf("the Secret %s/%s: %s", d.namespace, c.SecretName, why)}
		}
	}
	if t := d.Spec.TLS; t != nil && t.SecretName != "" {
		if why := certificates(&a, t.Mode, all[t.SecretName].data); why != "" {
			return a, nil, &shortfall{why: fmt.Sprintf("the Secret %s/%s: %s", d.namespace, t.SecretName, why)}
		}
	}
	return a, problems, nil
}

// credentials reads them from a Secret, or says what it lacks.
func credentials(a *foreign.Access, p api.Provider, data map[string][]byte) (why string) {
	if p != api.Nacos {
		if a.Token = value(data, tokenKeys); a.Token == "" {
			for _, k := range tokenKeys {
				if _, has := data[k]; has {
					return "its key " + k + " is empty"
				}
			}
			return "it has no key " + strings.Join(tokenKeys, " or ")
		}
		return ""
	}
	a.Username, a.Password = value(data, usernameKeys), value(data, passwordKeys)
	if id, secret := value(data, accessKeyKeys), value(data, secretKeyKeys); id != "" || secret != "" {
		a.AccessKey, a.SecretKey = id, secret
	}
	switch {
	case (a.Username == "") != (a.Password == ""):
		return "it has one of username and password, not both"
	case (a.AccessKey == "") != (a.SecretKey == ""):
		return "it has one of accessKey and secretKey, not both"
	case a.Username == "" && a.AccessKey == "":
		return "it has neither username and password nor accessKey and secretKey"
	}
	return ""
}

// certificates reads those of TLS, or says what is missing.
func certificates(a *foreign.Access, mode api.TLSMode, data map[string][]byte) (why string) {
	a.CA = data["ca.crt"]
	if mode != api.TLSMutual {
		return ""
	}
	a.Cert, a.Key = data["tls.crt"], data["tls.key"]
	if len(a.Cert) == 0 || len(a.Key) == 0 {
		return "it lacks tls.crt or tls.key"
	}
	return ""
}

// value is that of the first of some keys, without the line break that editors leave at the end of files.
func value(data map[string][]byte, keys []string) string {
	for _, k := range keys {
		if v := strings.TrimRight(string(data[k]), "\r\n"); v != "" {
			return v
		}
	}
	return ""
}
