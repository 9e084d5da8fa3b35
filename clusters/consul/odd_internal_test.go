package consul

import (
	"net/url"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/clusters/foreign"
	"github.com/isthmus-mesh/isthmus/test/env"
)

// oddNames are of services that can't be asked for.
var oddNames = map[string]string{
	"a\nb": `"a\nb"`, "a\x00b": `"a\x00b"`, "c\td": `"c\td"`, "e\u2028f": `"e\u2028f"`, ".": `"."`, "..": `".."`,
}

// plainNames look odd, and can be.
var plainNames = []string{"a b", "x/y", "ü", "a|b", "*", "A", "a?b#c%d", "...", "a/../b", "x//y"}

func TestNamesThatCanBeAsked(t *testing.T) {
	t.Parallel()
	for name := range oddNames {
		if askable(name) {
			t.Errorf("%q", name)
		}
	}
	for _, name := range plainNames {
		if !askable(name) {
			t.Errorf("%q", name)
		}
	}
	if askable("a\xffb") {
		t.Error("what is no text")
	}
}

// A service whose name no request can have is left out, and told of; others follow its registration all the same.
func TestNameThatCannotBeAsked(t *testing.T) {
	pair(t, scripted(), func(w *world) {
		w.set("a\nb", at("10.0.0.9"))
		w.want(one, two)
		const problem = `"a\nb": left out: Consul answers no request for a service of this name`
		if p := w.problems(); p != problem {
			w.t.Errorf("problems %q", p)
		}
		w.set("c\td", at("10.0.0.9"))
		w.set("a", at("10.0.0.3"))
		w.want("a.dc1.consul [80/http]: 10.0.0.3:80 healthy 1", two)
		if p := w.problems(); p != problem+"\n"+strings.Replace(problem, `a\nb`, `c\td`, 1) {
			w.t.Errorf("problems %q", p)
		}
		w.remove("a\nb")
		w.remove("c\td")
		w.want("a.dc1.consul [80/http]: 10.0.0.3:80 healthy 1", two)
		w.wantState("live")
		if p := w.problems(); p != "" || w.count("/v1/health/service/a\n") > 0 {
			w.t.Errorf("problems %q", p)
		}
	})
}

// A real server refuses what is called so here, and nothing else: every name is known, or is a problem.
func TestRealOddNames(t *testing.T) {
	t.Parallel()
	server := env.StartConsul(t, env.ConsulOptions{})
	for name := range oddNames {
		if !strings.Contains(name, "\x00") { // the server would have it among those of "a"
			instanceOf(name, "10.1.0.1").register(t, server, name)
		}
	}
	for _, name := range plainNames {
		instanceOf(name, "10.1.0.2").register(t, server, name)
	}
	s := follow(t, at8500(server.URL))
	s.awaitState(t, "live")
	o := at8500(server.URL)
	c, err := newClient(&o.Spec, o.Access, nil, "consul/legacy", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	for name, item := range oddNames {
		if _, err := c.get(t.Context(), query{path: "/v1/health/service/" + url.PathEscape(name)}, &entries{}); err == nil {
			t.Errorf("the server answers for %q", name)
		}
		if !strings.Contains(name, "\x00") && !strings.Contains(s.problems(), item+": left out: ") {
			t.Errorf("%q is no problem: %s", name, s.problems())
		}
	}
	for _, name := range plainNames {
		if known := strings.Contains(s.content(), name+".dc1.consul [8080/http]: 10.1.0.2:8080 healthy"); known == strings.Contains(s.problems(), "Service/ns/"+foreign.KeyPart(name)+": ") {
			t.Errorf("%q is known: %v", name, known)
		}
	}
	if strings.Contains(s.problems(), "not read") {
		t.Errorf("problems %s", s.problems())
	}
}
