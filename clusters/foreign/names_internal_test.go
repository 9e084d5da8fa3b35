package foreign

import (
	"regexp"
	"strings"
	"testing"

	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
)

func TestHosts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode               api.NamingMode
		name, suffix, over string
		host, alias        string
	}{
		{"DNS", "orders", "DEFAULT_GROUP.public.nacos", "", "orders.default-x5fgroup.public.nacos", ""},
		{"DNS", "Orders_v2", "dc1.consul", "", "orders-x5fv2.dc1.consul", ""},
		{"DNS", "a-xb", "dc1.consul", "", "a-x2dxb.dc1.consul", ""},
		{"DNS", "_a", "dc1.consul", "", "x-x-5fa.dc1.consul", ""},
		{"DNS", "a..b-", "dc1.consul", "", "a.x-x-2eb-x2d.dc1.consul", ""},
		{"DNS", "orders", "dc1.consul", "internal", "orders.internal", ""},
		// The forms that routes of Higress name: '_' becomes '-' behind the name alone, and case stays.
		{"Higress", "ledger", "PAY_GROUP.prod.nacos", "", "ledger.PAY-GROUP.prod.nacos", ""},
		{"Higress", "ledger", "DEFAULT_GROUP.public.nacos", "", "ledger.DEFAULT-GROUP.public.nacos", ""},
		{"Higress", "my_svc", "dc_1.consul", "", "my_svc.dc-1.consul", "my-x5fsvc.dc-1.consul"},
		{"Higress", "providers:com.acme.Pay:1.0.0:g", "DEFAULT_GROUP.public.nacos", "", "providers:com.acme.Pay:1.0.0:g.DEFAULT-GROUP.public.nacos",
			"providers-x3acom.acme.pay-x3a1.0.0-x3ag.default-group.public.nacos"},
	} {
		conv := newConverter(Options{Spec: api.RegistrySpec{Hosts: &api.HostNaming{Mode: c.mode, Suffix: c.over}}.Effective("ns")})
		s := Service{Name: c.name, Suffix: c.suffix}
		if got := conv.host(s); got != c.host {
			t.Errorf("%s %s: host %s, want %s", c.mode, c.name, got, c.host)
		}
		if got := conv.alias(s); got != c.alias {
			t.Errorf("%s %s: alias %q, want %q", c.mode, c.name, got, c.alias)
		}
	}
}

// TestHostsThatMeanSomethingElse: names of proxies' clusters are parted by '|', a '*' is a pattern that takes other services' requests, and
// no request has spaces in its host.
func TestHostsThatMeanSomethingElse(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"*.dc1.consul", "*.pay.dc1.consul", "a*.dc1.consul", "a|b.dc1.consul", "a b.dc1.consul", "a\nb.dc1.consul", "a\x7fb.dc1.consul", "a\xffb.dc1.consul"} {
		if why := invalidHost(host); !strings.Contains(why, "use the naming mode DNS") {
			t.Errorf("%q: %q", host, why)
		}
		if plain := escaped(host); invalidHost(plain) != "" {
			t.Errorf("%q: %s", plain, invalidHost(plain))
		}
	}
	for _, host := range []string{"my_svc.dc-1.consul", "providers:com.acme.Pay:1.0.0:g.DEFAULT-GROUP.public.nacos", "服务.dc1.consul", "a/b.dc1.consul"} {
		if why := invalidHost(host); why != "" {
			t.Errorf("%q: %q", host, why)
		}
	}
}

var label = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

var escape = regexp.MustCompile(`(^|\.)x-x-[0-9a-f]{2}|-x[0-9a-f]{2}`)

// unescaped undoes escaped: that it can be undone is why no two names become one.
func unescaped(s string) string {
	return escape.ReplaceAllStringFunc(s, func(m string) string {
		dot := strings.Repeat(".", strings.Count(m, "."))
		return dot + unhex(m[len(m)-2:])
	})
}

func unhex(s string) string {
	const digits = "0123456789abcdef"
	return string([]byte{byte(strings.IndexByte(digits, s[0])<<4 | strings.IndexByte(digits, s[1]))})
}

func FuzzEscaped(f *testing.F) {
	for _, s := range []string{"orders", "a_b", "-x", "x-x-5f", "..", "a.-x5f.", "x_\xab", "_abc", "x-x-", "-", "A-X"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got := escaped(name)
		if name == "" {
			return
		}
		for l := range strings.SplitSeq(got, ".") {
			if !label.MatchString(l) {
				t.Errorf("%q gives %q: %q is no label", name, got, l)
			}
		}
		if back := unescaped(got); back != strings.ToLower(name) {
			t.Errorf("%q gives %q, which is %q", name, got, back)
		}
	})
}

func TestFilter(t *testing.T) {
	t.Parallel()
	f := NewFilter(&api.ServiceFilter{Include: []string{"pay-*", "orders"}, Exclude: []string{"*-canary", "["}})
	for name, want := range map[string]bool{"pay-a": true, "orders": true, "orders2": false, "pay-a-canary": false, "": false} {
		if f.Takes(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
	if !NewFilter(nil).Takes("x") {
		t.Error("without a filter everything is taken")
	}
}
