package aggregate

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"

	networking "istio.io/api/networking/v1alpha3"
)

func randomPattern(r *rand.Rand) string {
	out := []string{"", "", "*.", "*.", "*", "*-"}[r.IntN(6)]
	for range 1 + r.IntN(3) {
		out += []string{"a.", "b.", "ab.", "b-a."}[r.IntN(4)]
	}
	if r.IntN(12) == 0 {
		return "*"
	}
	return strings.TrimSuffix(out, ".")
}

// The index of patterns finds what a look at every pattern finds, in the same order, and what matches by definition.
func TestPatternsFindWhatMatches(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	for range 3000 {
		p, all := patterns[int]{}, map[int]string{}
		for i := range r.IntN(8) {
			all[i] = randomPattern(r)
			p.add(all[i], i)
		}
		host := randomPattern(r)
		got := p.match(host)
		if want := p.scan(host); !slices.Equal(got, want) {
			t.Fatalf("%q among %v: %v, want %v", host, all, got, want)
		}
		set := &patternSet{}
		comparePatterns(set, &p, &patterns[int]{})
		if set.has(host) != (len(got) > 0) {
			t.Fatalf("%q among %v: %v", host, all, got)
		}
		for i, pattern := range all {
			if slices.Contains(got, i) != pushcontext.HostMatches(pattern, host) {
				t.Fatalf("%q and %q", host, pattern)
			}
		}
		for i := range got[:max(len(got), 1)-1] {
			if len(all[got[i]]) < len(all[got[i+1]]) && all[got[i]] != host {
				t.Fatalf("%q among %v: %v: a wider pattern goes first", host, all, got)
			}
		}
	}
}

// Hosts are looked up at the beginning of labels only, unless there are patterns whose star is a part of one.
func TestPatternsLookUpLabels(t *testing.T) {
	t.Parallel()
	for host, c := range map[string]struct {
		patterns []string
		want     []string
	}{
		"x-eu.A.example": {[]string{"*.example", "*", "a"}, []string{"x-eu.a.example", ".a.example", ".example", "*"}},
		"x-eu.a.example": {[]string{"*-EU.a.example", "*-us.a.example", "*e"}, []string{"x-eu.a.example", "*-eu.a.example", ".a.example", ".example", "*e", "*"}},
		"*-eu.a.example": {[]string{"*-eu.a.example", "*u.a.example"}, []string{"*-eu.a.example", "*u.a.example", ".a.example", ".example", "*"}},
		"*.a.example":    {[]string{"*a.example"}, []string{".a.example", "*a.example", ".example", "*"}},
		"-eu.a.example":  {[]string{"*-eu.a.example"}, []string{"-eu.a.example", ".a.example", ".example", "*"}},
		"*":              {[]string{"*e"}, []string{"*"}},
	} {
		p := patterns[int]{}
		for i, x := range c.patterns {
			p.add(x, i)
		}
		if d := cmp.Diff(c.want, slices.Collect(keysFor(host, p.partial))); d != "" {
			t.Errorf("%s among %v: %s", host, c.patterns, d)
		}
	}
}

// Two indexes differ in the patterns that hold other values.
func TestPatternsDiffer(t *testing.T) {
	t.Parallel()
	a, b := patterns[int]{}, patterns[int]{}
	a.add("x", 1)
	b.add("x", 1)
	a.add("*.same", 2)
	b.add("*.same", 2)
	s := &patternSet{}
	if comparePatterns(s, &a, &b); len(s.keys) != 0 || s.wild() {
		t.Errorf("%v", s)
	}
	a.add("x", 2)
	b.add("y", 3)
	if comparePatterns(s, &a, &b); len(s.keys) != 2 || s.wild() || !s.has("x") || !s.has("y") || s.has("z") {
		t.Errorf("%v", s)
	}
	b.add("*", 3)
	if comparePatterns(s, &a, &b); len(s.keys) != 3 || !s.wild() || !s.has("z") {
		t.Errorf("%v", s)
	}
}

// FuzzNames: whatever names an author writes, they are read without fault, and reading them again changes nothing.
func FuzzNames(f *testing.F) {
	for _, s := range []string{"", "*", "a", "a.b", "ns/a", "./a", "~/*", "*/*.a", "a.b.svc.c", "mesh", "/", "a/b/c", "*a.b", "A.B."} {
		f.Add(s, "ns")
	}
	f.Fuzz(func(t *testing.T, s, namespace string) {
		if strings.ContainsAny(namespace, "./*") || namespace == "" || strings.ToLower(namespace) != namespace {
			t.Skip()
		}
		if g := gatewayName(s, namespace); g != gatewayName(g, "other") && !strings.HasPrefix(g, "./") {
			t.Errorf("gateway %q is %q, then %q", s, g, gatewayName(g, "other"))
		}
		for _, h := range routeHosts([]string{s}, namespace, "cluster.local") {
			if again := routeHosts([]string{h}, "other", "cluster.local"); (len(again) != 1 || again[0] != h) && !strings.Contains(s, "..") {
				t.Errorf("host %q is %q, then %q", s, h, again)
			}
			p := patterns[int]{}
			p.add(h, 1)
			if !slices.Equal(p.match(h), p.scan(h)) || len(p.match(h)) != 1 {
				t.Errorf("host %q is not found", h)
			}
		}
		if h, ok := gatewayHost(s, namespace); ok {
			h.Admits(&pushcontext.VirtualService{Hosts: []string{h.Host}})
		}
		r := pushcontext.NewSidecarRule(model.Source{}, &networking.Sidecar{Egress: []*networking.IstioEgressListener{{Hosts: []string{s}}, nil}})
		r.ImportsRoute(&pushcontext.VirtualService{Namespace: namespace, Hosts: []string{s}})
	})
}

// FuzzDelegates: whatever two matches say, what comes of them is within the first.
func FuzzDelegates(f *testing.F) {
	f.Add(uint8(0), "/a", uint8(1), "/ab", uint32(80), uint32(0))
	f.Add(uint8(1), "/a", uint8(0), "/ab", uint32(80), uint32(81))
	f.Add(uint8(2), "/a", uint8(2), "/a", uint32(0), uint32(1))
	f.Fuzz(func(t *testing.T, ka uint8, a string, kb uint8, b string, pa, pb uint32) {
		of := func(k uint8, s string) *networking.StringMatch {
			switch k % 4 {
			case 0:
				return &networking.StringMatch{MatchType: &networking.StringMatch_Exact{Exact: s}}
			case 1:
				return &networking.StringMatch{MatchType: &networking.StringMatch_Prefix{Prefix: s}}
			case 2:
				return &networking.StringMatch{MatchType: &networking.StringMatch_Regex{Regex: s}}
			}
			return nil
		}
		root := &networking.HTTPMatchRequest{Uri: of(ka, a), Port: pa}
		out, outside := mergeMatches([]*networking.HTTPMatchRequest{root}, []*networking.HTTPMatchRequest{{Uri: of(kb, b), Port: pb}})
		if outside >= 0 {
			return
		}
		if len(out) != 1 || root.Uri != nil && !(ka%4 == 2 && out[0].Uri.GetRegex() == a) && !stringWithin(root.Uri, out[0].Uri) || pa != 0 && out[0].Port != pa {
			t.Errorf("%v and %v %q: %v", root, kb, b, out)
		}
	})
}
