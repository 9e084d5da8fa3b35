package registries

import (
	"fmt"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/foreign"
)

func secretOf(pairs ...string) *known {
	k := &known{data: map[string][]byte{}}
	for _, p := range pairs {
		name, v, _ := strings.Cut(p, "=")
		k.data[name] = []byte(v)
	}
	return k
}

func same(a, b foreign.Access) bool {
	text := func(a foreign.Access) string {
		return fmt.Sprintf("%q", []string{a.Token, a.Username, a.Password, a.AccessKey, a.SecretKey, string(a.CA), string(a.Cert), string(a.Key)})
	}
	return text(a) == text(b)
}

func TestAccess(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		provider   api.Provider
		tls        api.TLSMode
		cred, cert *known
		want       foreign.Access
		why        string
	}{
		{api.Consul, "", secretOf("token=t\r\n"), nil, foreign.Access{Token: "t"}, ""},
		{api.Consul, "", secretOf("consulToken=t"), nil, foreign.Access{Token: "t"}, ""},
		{api.Consul, "", secretOf("token=", "consulToken=t"), nil, foreign.Access{Token: "t"}, ""},
		{api.Consul, "", secretOf("token=\r\n"), nil, foreign.Access{}, "its key token is empty"},
		{api.MCP, "", secretOf("consulToken="), nil, foreign.Access{}, "its key consulToken is empty"},
		{api.MCP, "", secretOf("password=t"), nil, foreign.Access{}, "token"},
		{api.Nacos, "", secretOf("username=u", "password=p"), nil, foreign.Access{Username: "u", Password: "p"}, ""},
		{api.Nacos, "", secretOf("nacosUsername=u", "nacosPassword=p", "x=y"), nil, foreign.Access{Username: "u", Password: "p"}, ""},
		{api.Nacos, "", secretOf("accessKey=a", "secretKey=s"), nil, foreign.Access{AccessKey: "a", SecretKey: "s"}, ""},
		{api.Nacos, "", secretOf("username=u"), nil, foreign.Access{}, "not both"},
		{api.Nacos, "", secretOf("accessKey=u"), nil, foreign.Access{}, "not both"},
		{api.Nacos, "", secretOf("token=u"), nil, foreign.Access{}, "neither"},
		{api.Consul, api.TLSSimple, nil, secretOf("ca.crt=ca", "tls.crt=x"), foreign.Access{CA: []byte("ca")}, ""},
		{api.Consul, api.TLSSimple, nil, secretOf(), foreign.Access{}, ""},
		{api.Consul, api.TLSMutual, nil, secretOf("ca.crt=ca"), foreign.Access{}, "tls.crt"},
		{api.Consul, api.TLSMutual, secretOf("token=t"), secretOf("tls.crt=c", "tls.key=k"), foreign.Access{Token: "t", Cert: []byte("c"), Key: []byte("k")}, ""},
	} {
		d := Declared{Spec: &api.RegistrySpec{Provider: tc.provider}, Key: model.ShardKey{Provider: model.ProviderID(tc.provider)}}
		all := map[string]*known{}
		if tc.cred != nil {
			d.Spec.Credentials, all["cred"] = &api.Credentials{SecretName: "cred"}, tc.cred
		}
		if tc.tls != "" {
			d.Spec.TLS, all["cert"] = &api.TLS{Mode: tc.tls, SecretName: "cert"}, tc.cert
		}
		got, _, short := d.access(all)
		switch {
		case tc.why == "" && (short != nil || !same(got, tc.want)):
			t.Errorf("%+v: short of %v", tc, short)
		case tc.why != "" && (short == nil || !strings.Contains(short.why, tc.why)):
			t.Errorf("%+v: short of %v, want %q", tc, short, tc.why)
		}
	}
}

// What tells credentials apart tells nobody what they are, and settings and credentials can't be taken for one another.
func TestSum(t *testing.T) {
	t.Parallel()
	sum := func(change func(*desired)) string {
		d := desired{Declared: Declared{Spec: &api.RegistrySpec{Provider: api.Consul, Addresses: []string{"a"}}}}
		change(&d)
		return d.sum()
	}
	seen := map[string]bool{}
	for _, change := range []func(*desired){
		func(*desired) {}, func(d *desired) { d.access.Token = "hush" }, func(d *desired) { d.access.Username = "hush" }, func(d *desired) { d.access.CA = []byte("hush") },
		func(d *desired) { d.Spec.Addresses = []string{"b"} }, func(d *desired) { d.short = &shortfall{why: "hush"} }, func(d *desired) { d.access.Username, d.access.Password = "a", "b 1 c" },
		func(d *desired) { d.access.Username, d.access.Password = "a 1 b", "c" },
	} {
		s := sum(change)
		if seen[s] || strings.Contains(s, "hush") {
			t.Errorf("%s again", s)
		}
		seen[s] = true
	}
}
