package nacos

import (
	"net/url"
	"strings"
	"testing"
)

// unkey reads a key of serviceName.String.
func unkey(t *testing.T, key string) serviceName {
	t.Helper()
	where, name, ok := strings.Cut(key, serviceKeySeparator)
	namespace, group, there := strings.Cut(where, "/")
	if !there {
		namespace, group = publicNamespace, where
	}
	if !ok || strings.Contains(group+name, "/") {
		t.Fatalf("%q is no key", key)
	}
	out := serviceName{namespace, group, name}
	for _, part := range []*string{&out.namespace, &out.group, &out.name} {
		var err error
		if *part, err = url.PathUnescape(*part); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func TestKeys(t *testing.T) {
	t.Parallel()
	for name, want := range map[serviceName]string{
		{"public", "DEFAULT_GROUP", "orders"}:  "DEFAULT_GROUP@@orders",
		{"prod", "PAY:a.b-c", "a@b:c"}:         "prod/PAY:a.b-c@@a@b:c",
		{"public", "a/b", "c"}:                 "a%2Fb@@c",
		{"a", "b", "c/d"}:                      "a/b@@c%2Fd",
		{"a@@b", "c@@d", "@e@@f"}:              "a%40%40b/c%40%40d@@@e@@f",
		{"a%2Fb", "c", "d%25"}:                 "a%252Fb/c@@d%2525",
		{"public", "providers:x.Y:1.0:", "支付"}: "providers:x.Y:1.0:@@支付",
	} {
		if got := name.String(); got != want || unkey(t, got) != name {
			t.Errorf("%+v is %s, want %s", name, got, want)
		}
	}
}

// Of all names that are made of what parts keys, no two have the same key, nor have their instances, whatever their ids.
func TestKeysDoNotCollide(t *testing.T) {
	t.Parallel()
	words := []string{"a", "public"}
	for _, a := range []string{"/", "@", "%", "a", "%2F", "%40"} {
		words = append(words, a, a+"@", a+"/", "@"+a)
	}
	names, instances := map[string]serviceName{}, map[string]string{}
	for _, namespace := range words {
		for _, group := range words {
			for _, name := range words {
				n := serviceName{namespace, group, name}
				if was, there := names[n.String()]; there && was != n {
					t.Fatalf("%+v and %+v have the key %s", was, n, n)
				}
				names[n.String()] = n
				for _, id := range []string{"i", "a/i", "@@a/i", "a@@a/i", "/i", "%2Fi"} {
					key := n.String() + "/" + id
					if was, there := instances[key]; there && was != n.String() {
						t.Fatalf("instances of %s and %s have the key %s", was, n, key)
					}
					instances[key] = n.String()
				}
			}
		}
	}
}

func FuzzKeys(f *testing.F) {
	f.Add("prod", "DEFAULT_GROUP", "orders", "public", "prod/DEFAULT_GROUP", "orders")
	f.Add("a@@b", "c", "d", "a", "b@@c", "d/e%")
	f.Fuzz(func(t *testing.T, ns1, group1, name1, ns2, group2, name2 string) {
		a, b := serviceName{ns1, group1, name1}, serviceName{ns2, group2, name2}
		if got := unkey(t, a.String()); got != a {
			t.Errorf("%+v comes back as %+v", a, got)
		}
		if a != b && a.String() == b.String() {
			t.Errorf("%+v and %+v have the key %s", a, b, a)
		}
	})
}
