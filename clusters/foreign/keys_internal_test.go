package foreign

import (
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
)

// TestAddressesInBrackets: addresses of version 6 are such with brackets too; what is neither an address nor a name is not looked up.
func TestAddressesInBrackets(t *testing.T) {
	t.Parallel()
	conv := converterOf(api.RegistrySpec{})
	odd := []string{"[fd00::2]:80", "[10.0.0.1]", "[db.internal]", "10.0.0.1:80", "http://10.0.0.1"}
	in := []Instance{up("[fd00::1]", 80)}
	want := []string{"service orders.g.public.nacos http:80/http", "endpoint [fd00::1]:80 http healthy weight=1 "}
	for _, a := range odd {
		in = append(in, up(a, 80))
	}
	if names := dnsNames(in); len(names) > 0 {
		t.Errorf("%v are looked up", names)
	}
	got := shown(conv.rows(orders(in...), nil, nil, holders{"G@@orders", "G@@orders"}, model.Source{}))
	if d := cmp.Diff(want, got[:2]); d != "" {
		t.Error(d)
	}
	for i, line := range got[2 : 2+len(odd)] {
		if !strings.Contains(line, "Invalid its address is neither an IP address nor a DNS name") {
			t.Errorf("%d: %s", i, line)
		}
	}
}

// TestRowsOfOddKeys: the row of a service's other name is never that of another service.
func TestRowsOfOddKeys(t *testing.T) {
	t.Parallel()
	conv := converterOf(api.RegistrySpec{Hosts: &api.HostNaming{Mode: api.NamingHigress}})
	rows := map[model.RowKey]string{}
	for _, key := range []string{"G@@a_b", "G@@a_b/alias"} {
		s := Service{Key: key, Name: "a_b", Suffix: "G.public.nacos", Instances: []Instance{up("10.0.0.1", 80)}}
		for k := range conv.rows(s, nil, nil, holders{key, key}, model.Source{}).rows {
			if was, there := rows[k]; there {
				t.Errorf("%s and %s have the row %v", was, key, k)
			}
			rows[k] = key
		}
	}
}

func FuzzKeyPart(f *testing.F) {
	f.Add("orders", "a/b%")
	f.Add("a%2Fb", "a/b")
	f.Fuzz(func(t *testing.T, a, b string) {
		if back, err := url.PathUnescape(KeyPart(a)); err != nil || back != a || strings.Contains(KeyPart(a), "/") {
			t.Errorf("%q is %q, which comes back as %q (%v)", a, KeyPart(a), back, err)
		}
		if a != b && KeyPart(a) == KeyPart(b) {
			t.Errorf("%q and %q are both %q", a, b, KeyPart(a))
		}
	})
}
