package gen_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// regexParts are the ways in which Go and Envoy's engine read, and misread, single characters and conditions.
var regexParts = []string{
	"a", "é", "日", "😀", ".", `\d`, `\w`, `\S`, `\pL`, `\p{Greek}`, `\PN`, `\p{Any}`, `\p{^Lu}`, `\p{Letter}`, `\p{greek}`, `\pLu`, `[a-z]`, `[^a]`, `[é-ü]`, `[日-龍]`, `[😀-😎]`,
	`[[:alpha:]]`, `[[:^word:]]`, `[\d\pL]`, `[]a]`, `[^]a]`, `[a\]]`, `[^\x00-\x{7f}]`, `[^\n]`, `[a-\d]`, `\x41`, `\x{ff}`, `\x{100}`, `\101`, `\777`, `\0`, `\1`, `\Qa*b\E`, `\b`, `\B`, "^", "$",
	`\A`, `\z`, `\Z`, `\C`, `\R`, `\t`, `\-`, `\/`, "(?i:k)", "(?i)ſ", "(?i)[k-s]", "(?s:.)", "(?U)a+", "(?m)", "(?-i)", "(?P<n>x)", "(?<m>y)", "(?=a)", "(?#c)", "()", "|", "{", "}", "]", "-", "\x7f", "\u2028",
}

var repetitions = []string{"*", "+", "?", "*?", "+?", "{3}", "{2,}", "{0,40}", "{100}", "{900}", "{1000}", "{1001}", "{,3}", "**", "{2}{3}", "{30}?"}

func randomRegex(r *rand.Rand, depth int) string {
	if depth == 0 {
		return regexParts[r.IntN(len(regexParts))]
	}
	next := func() string { return randomRegex(r, depth-1) }
	switch r.IntN(6) {
	case 0:
		return "(" + next() + "|" + next() + ")"
	case 1:
		return next() + repetitions[r.IntN(len(repetitions))]
	case 2:
		return "(?:" + next() + "){" + fmt.Sprint(1+r.IntN(40)) + ",}"
	case 3:
		return "(" + next() + "){2,9}"
	}
	return next() + next() + next()
}

// What is kept of random regular expressions, and that is some, is what a real Envoy takes.
func TestEnvoyAcceptsRegexes(t *testing.T) {
	t.Parallel()
	envoy := os.Getenv("ISTHMUS_ENVOY")
	if envoy == "" {
		t.Skip("ISTHMUS_ENVOY does not name an Envoy binary: regular expressions are not read by a real proxy here")
	}
	r := rand.New(rand.NewPCG(1, 2))
	const n = 2000
	v := &pushcontext.VirtualService{Gateways: []string{pushcontext.MeshGateway}, Export: pushcontext.Export{Public: true}, Spec: &networking.VirtualService{}}
	for range n {
		match := &networking.HTTPMatchRequest{Uri: &networking.StringMatch{MatchType: &networking.StringMatch_Regex{Regex: randomRegex(r, r.IntN(5))}}}
		v.Spec.Http = append(v.Spec.Http, &networking.HTTPRoute{Match: []*networking.HTTPMatchRequest{match}, Redirect: &networking.HTTPRedirect{Uri: "/"}})
	}
	m := tableOf(t, v)
	if kept := len(virtualHostNamed(m, cartHost+":80").Routes); kept < n/8 {
		t.Errorf("%d of %d are kept", kept, n)
	}
	if why := refused(t, envoy, m); why != "" {
		t.Error(why[max(0, len(why)-500):])
	}
}

// An expression that can't be read costs its match alone.
func TestRegexesThatEnvoyRefusesMatchNothing(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]bool{
		"a+": true, "": false, "(": false, `\x{ff}`: true, `\x{100}`: false, `\x{zz}`: false, `\377`: true, `\400`: false, `\p{Lu}`: true, `\p{Uppercase_Letter}`: false, `\pé`: false,
		`\\x{100}`: true, `\\\x{100}`: false, `\p{`: false, `\p{Any}`: true, `(?<n>a)`: true, `(a{100}){10}`: true, `(a{100}){11}`: false, `[é日]{1000}`: true, `\w{1000}`: true,
		strings.Repeat(`\pL{900}`, 3): false, strings.Repeat("a", 10_000): true, strings.Repeat("a", 100_000): false,
	} {
		m := tableOf(t, &pushcontext.VirtualService{Gateways: []string{pushcontext.MeshGateway}, Export: pushcontext.Export{Public: true}, Spec: &networking.VirtualService{Http: []*networking.HTTPRoute{{
			Match:    []*networking.HTTPMatchRequest{{Uri: &networking.StringMatch{MatchType: &networking.StringMatch_Regex{Regex: expression}}}},
			Redirect: &networking.HTTPRedirect{Uri: "/"}}}}})
		if got := len(virtualHostNamed(m, cartHost+":80").Routes) == 1; got != want {
			t.Errorf("%.40q: %v, want %v", expression, got, want)
		}
	}
}
