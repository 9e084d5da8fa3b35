package debug

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestHideUsers(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"a":"b"}`: `{"a":"b"}`,
		`{"a":"http://u:p@h:1/x","b":"tls://p@h"}`: `{"a":"http://…@h:1/x","b":"tls://…@h"}`,
		`"xds://u:p\u0026\"@x@h"`:                  `"xds://…@h"`,
		`"a://b/c@d e://f?g@h @ ://"`:              `"a://b/c@d e://f?g@h @ ://"`,
		`["https://h","u@h"]`:                      `["https://h","u@h"]`,
		`{"addressServer":"http://a/l?k=v\u0026\"w","a":"http://b?c","nacosAddressServer": "a?b"}`: `{"addressServer":"http://a/l?…","a":"http://b?c","nacosAddressServer": "a?…"}`,
		`"://@`: `"://@`,
	} {
		if got := string(hideUsers([]byte(in))); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func FuzzHideUsers(f *testing.F) {
	f.Add("user:pass", "host:80")
	f.Fuzz(func(t *testing.T, user, rest string) {
		js, err := json.Marshal([]string{"https://" + user + "@" + rest, user})
		if err != nil {
			t.Skip()
		}
		got := hideUsers(js)
		if !json.Valid(got) {
			t.Fatalf("%s: %s", js, got)
		}
		if again := hideUsers(bytes.Clone(got)); !bytes.Equal(again, got) {
			t.Errorf("%s: %s, and then %s", js, got, again)
		}
		var out []string
		if err := json.Unmarshal(got, &out); err != nil {
			t.Fatal(err)
		}
		if plain := !strings.ContainsAny(user, "/? "); plain && !strings.HasPrefix(out[0], "https://…@") && user != "" {
			t.Errorf("%s: %s", js, got)
		}
	})
}
