package aggregate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	networking "istio.io/api/networking/v1alpha3"

	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isthmus-mesh/isthmus/aggregate"
	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

func exact(s string) *networking.StringMatch {
	return &networking.StringMatch{MatchType: &networking.StringMatch_Exact{Exact: s}}
}

func prefix(s string) *networking.StringMatch {
	return &networking.StringMatch{MatchType: &networking.StringMatch_Prefix{Prefix: s}}
}

func regex(s string) *networking.StringMatch {
	return &networking.StringMatch{MatchType: &networking.StringMatch_Regex{Regex: s}}
}

func uri(m *networking.StringMatch) *networking.HTTPMatchRequest {
	return &networking.HTTPMatchRequest{Uri: m}
}

// delegating is a VirtualService all of whose requests that match are for a delegate.
func delegating(namespace, name string, matches ...*networking.HTTPMatchRequest) *networking.VirtualService {
	return &networking.VirtualService{Hosts: []string{"root"}, Http: []*networking.HTTPRoute{{
		Name: "r", Match: matches, Delegate: &networking.Delegate{Namespace: namespace, Name: name},
	}}}
}

// What a delegate matches must be among what is delegated to it; each combination that is becomes a condition.
func TestDelegatesMatchWithinTheirRoot(t *testing.T) {
	t.Parallel()
	header := func(k string, m *networking.StringMatch) *networking.HTTPMatchRequest {
		return &networking.HTTPMatchRequest{Headers: map[string]*networking.StringMatch{k: m}}
	}
	type matches = []*networking.HTTPMatchRequest
	for name, tc := range map[string]struct{ root, delegate, want matches }{
		"none":              {nil, nil, matches{}},
		"root only":         {matches{uri(prefix("/a"))}, nil, matches{uri(prefix("/a"))}},
		"delegate only":     {nil, matches{uri(prefix("/a"))}, matches{uri(prefix("/a"))}},
		"narrower prefix":   {matches{uri(prefix("/a"))}, matches{uri(prefix("/ab"))}, matches{uri(prefix("/ab"))}},
		"wider prefix":      {matches{uri(prefix("/ab"))}, matches{uri(prefix("/a"))}, nil},
		"exact in prefix":   {matches{uri(prefix("/a"))}, matches{uri(exact("/abc"))}, matches{uri(exact("/abc"))}},
		"exact elsewhere":   {matches{uri(prefix("/a"))}, matches{uri(exact("/b"))}, nil},
		"prefix in exact":   {matches{uri(exact("/a"))}, matches{uri(prefix("/a"))}, nil},
		"equal exact":       {matches{uri(exact("/a"))}, matches{uri(exact("/a"))}, matches{uri(exact("/a"))}},
		"other exact":       {matches{uri(exact("/a"))}, matches{uri(exact("/b"))}, nil},
		"regex and prefix":  {matches{uri(regex("/a"))}, matches{uri(prefix("/a"))}, nil},
		"prefix and regex":  {matches{uri(prefix("/a"))}, matches{uri(regex("/a"))}, nil},
		"other case":        {matches{uri(prefix("/a"))}, matches{{Uri: prefix("/a"), IgnoreUriCase: true}}, nil},
		"two properties":    {matches{uri(prefix("/a"))}, matches{header("h", exact("1"))}, matches{{Uri: prefix("/a"), Headers: map[string]*networking.StringMatch{"h": exact("1")}}}},
		"other header":      {matches{header("h", exact("2"))}, matches{header("h", exact("1"))}, nil},
		"headers of both":   {matches{header("h", exact("2"))}, matches{header("g", exact("1"))}, matches{{Headers: map[string]*networking.StringMatch{"h": exact("2"), "g": exact("1")}}}},
		"some combinations": {matches{uri(prefix("/a")), uri(prefix("/b"))}, matches{uri(prefix("/bc")), uri(prefix("/ad"))}, matches{uri(prefix("/bc")), uri(prefix("/ad"))}},
		"in two":            {matches{uri(prefix("/a")), uri(prefix("/ab"))}, matches{{Uri: prefix("/abc"), Name: "m"}, {Method: exact("GET")}}, matches{{Uri: prefix("/abc"), Name: "m"}, {Uri: prefix("/abc"), Name: "m"}, {Uri: prefix("/a"), Method: exact("GET")}, {Uri: prefix("/ab"), Method: exact("GET")}}},
		"other port":        {matches{{Port: 80}}, matches{{Port: 81}}, nil},
		"one port":          {matches{{Port: 80}}, matches{{Uri: prefix("/"), Name: "m", StatPrefix: "s"}}, matches{{Port: 80, Uri: prefix("/"), Name: "m", StatPrefix: "s"}}},
		"any namespace":     {matches{{SourceNamespace: "x"}}, matches{{Port: 80}}, nil},
		"other namespace":   {matches{{SourceNamespace: "x"}}, matches{{SourceNamespace: "y"}}, nil},
		"one namespace":     {matches{{Name: "n"}}, matches{{Name: "m", SourceNamespace: "y", Port: 1}}, matches{{Name: "n-m", SourceNamespace: "y", Port: 1}}},
		"other labels":      {matches{{SourceLabels: map[string]string{"a": "1"}}}, matches{{SourceLabels: map[string]string{"a": "2"}}}, nil},
		"labels of both":    {matches{{SourceLabels: map[string]string{"a": "1"}}}, matches{{SourceLabels: map[string]string{"b": "2"}}}, matches{{SourceLabels: map[string]string{"a": "1", "b": "2"}}}},
		"other gateway":     {matches{{Gateways: []string{"mesh"}}}, matches{{Gateways: []string{"ns/gw"}}}, nil},
		"one of gateways":   {matches{{Gateways: []string{"mesh", "ns/gw"}}}, matches{{Gateways: []string{"mesh"}}}, matches{{Gateways: []string{"mesh"}}}},
		"the rest":          {matches{{Method: exact("GET"), Scheme: exact("http")}}, matches{{Authority: exact("a"), WithoutHeaders: map[string]*networking.StringMatch{"w": exact("")}, QueryParams: map[string]*networking.StringMatch{"q": exact("1")}}}, matches{{Method: exact("GET"), Scheme: exact("http"), Authority: exact("a"), WithoutHeaders: map[string]*networking.StringMatch{"w": exact("")}, QueryParams: map[string]*networking.StringMatch{"q": exact("1")}}}},
	} {
		leaf := to("a", 80)
		leaf.Match = tc.delegate
		b := rebuild(virtual("ns", "root", 0, delegating("", "leaf", tc.root...)), virtual("ns", "leaf", 0, &networking.VirtualService{Http: []*networking.HTTPRoute{leaf}}))
		routes := b.VirtualServices[0].Spec.Http
		switch {
		case tc.want == nil:
			if got := strings.Join(conflictText(b.Conflicts), "\n"); len(routes) != 0 || got != "root over leaf: http[0] is left out of http[0]: match[0] is not among what is delegated to it" {
				t.Errorf("%s: routes %v, conflicts %s", name, routes, got)
			}
		case len(routes) != 1:
			t.Errorf("%s: %v", name, routes)
		default:
			if d := cmp.Diff(tc.want, append(matches{}, routes[0].Match...), protocmp.Transform()); d != "" {
				t.Errorf("%s: %s", name, d)
			}
		}
	}
}

// A delegate's route of which one condition is not delegated to it is left out, and that is told.
func TestDelegatesMatchInPart(t *testing.T) {
	t.Parallel()
	part, whole := to("a", 80), to("b", 80)
	part.Match, whole.Match = []*networking.HTTPMatchRequest{uri(prefix("/a/x")), uri(prefix("/b"))}, []*networking.HTTPMatchRequest{uri(prefix("/a/y"))}
	b := rebuild(virtual("ns", "root", 0, delegating("", "leaf", uri(prefix("/a")))), virtual("ns", "leaf", 0, &networking.VirtualService{Http: []*networking.HTTPRoute{part, whole}}))
	if routes := b.VirtualServices[0].Spec.Http; len(routes) != 1 || routes[0].Route[0].Destination.Host != host("b") {
		t.Errorf("routes %v", routes)
	}
	if d := cmp.Diff([]string{"root over leaf: http[0] is left out of http[0]: match[1] is not among what is delegated to it"}, conflictText(b.Conflicts)); d != "" {
		t.Error(d)
	}
}

// What the delegate's route says counts; what it leaves out is as in the root.
func TestDelegatesFillInTheirRoot(t *testing.T) {
	t.Parallel()
	root := delegating("other", "leaf")
	root.Http[0].Timeout, root.Http[0].Retries = durationpb.New(time.Second), &networking.HTTPRetry{Attempts: 1}
	root.Http[0].Mirrors = []*networking.HTTPMirrorPolicy{{Destination: &networking.Destination{Host: "m"}}}
	root.Http = append(root.Http, to("last", 80))
	leaf := to("a", 0)
	leaf.Name, leaf.Timeout = "l", durationpb.New(time.Minute)
	redirect := &networking.HTTPRoute{Redirect: &networking.HTTPRedirect{Uri: "/"}, Mirrors: []*networking.HTTPMirrorPolicy{{Destination: &networking.Destination{Host: "own"}}}}
	b := rebuild(virtual("ns", "root", 0, root), virtual("other", "leaf", 0, &networking.VirtualService{Http: []*networking.HTTPRoute{leaf, redirect}}))
	if len(b.VirtualServices) != 1 || len(b.Conflicts) != 0 {
		t.Fatalf("%v, %v", virtualNames(b.VirtualServices), b.Conflicts)
	}
	v := b.VirtualServices[0]
	to := func(name string) *networking.Destination { return &networking.Destination{Host: name} }
	want := []*networking.HTTPRoute{
		{
			Name: "r-l", Timeout: durationpb.New(time.Minute), Retries: &networking.HTTPRetry{Attempts: 1}, Mirrors: []*networking.HTTPMirrorPolicy{{Destination: to(host("m"))}},
			Route: []*networking.HTTPRouteDestination{{Destination: to("a.other.svc.cluster.local")}}, // a short name of the delegate's namespace
		},
		{
			Name: "r", Timeout: durationpb.New(time.Second), Retries: &networking.HTTPRetry{Attempts: 1},
			Mirrors: []*networking.HTTPMirrorPolicy{{Destination: to("own.other.svc.cluster.local")}}, Redirect: &networking.HTTPRedirect{Uri: "/"},
		},
		{Route: []*networking.HTTPRouteDestination{{Destination: &networking.Destination{Host: host("last"), Port: &networking.PortSelector{Number: 80}}}}},
	}
	if d := cmp.Diff(want, v.Spec.Http, protocmp.Transform()); d != "" {
		t.Error(d)
	}
	if v.Delegate(0) != &v.Delegates[0] || v.Delegate(1) != &v.Delegates[0] || v.Delegate(2) != nil || v.Delegate(3) != nil {
		t.Errorf("routes are taken from %v", v.Origins)
	}
	if got := fmt.Sprint(v.Delegates[0].Object, destinationHosts(v)); got != "VirtualService/other/leaf [a.other.svc.cluster.local last.ns.svc.cluster.local m.ns.svc.cluster.local own.other.svc.cluster.local]" {
		t.Error(got)
	}
}

// A delegate that can't be used leaves its place empty, and that is told.
func TestUnusableDelegates(t *testing.T) {
	t.Parallel()
	leaf := func(edit func(*networking.VirtualService)) *networking.VirtualService {
		v := &networking.VirtualService{Http: []*networking.HTTPRoute{to("a", 80)}}
		edit(v)
		return v
	}
	for name, tc := range map[string]struct {
		leaf *networking.VirtualService
		want string
	}{
		"absent":     {nil, "leaf over root: http[0] is left out: there is no such VirtualService without hosts to delegate to"},
		"with hosts": {leaf(func(v *networking.VirtualService) { v.Hosts = []string{"x"} }), "leaf over root: http[0] is left out: there is no such VirtualService without hosts to delegate to"},
		"private":    {leaf(func(v *networking.VirtualService) { v.ExportTo = []string{"."} }), "leaf over root: http[0] is left out: it delegates to a VirtualService that is not exported to its namespace"},
		"nested":     {leaf(func(v *networking.VirtualService) { v.Http[0].Delegate = &networking.Delegate{Name: "x"} }), "root over leaf: http[0] is left out of http[0]: a delegate can't delegate"},
	} {
		rows := []model.Object{virtual("ns", "root", 0, delegating("other", "leaf"))}
		if tc.leaf != nil {
			rows = append(rows, virtual("other", "leaf", 0, tc.leaf))
		}
		b := rebuild(rows...)
		i := len(b.VirtualServices) - 1
		if virtualNames(b.VirtualServices)[i] != "ns/root" {
			i = 0
		}
		if n := len(b.VirtualServices[i].Spec.Http); n != 0 {
			t.Errorf("%s: %d routes", name, n)
		}
		if d := cmp.Diff([]string{tc.want}, conflictText(b.Conflicts)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// What delegates make of a small object is bounded: what is too much is left out, and that is told.
func TestDelegatesAreBounded(t *testing.T) {
	t.Parallel()
	var many []*networking.HTTPMatchRequest
	for i := range 200 {
		many = append(many, uri(prefix(fmt.Sprint("/", i))))
	}
	root, leaf := delegating("", "leaf", many...), &networking.VirtualService{}
	for range 3 {
		h := to("a", 80)
		h.Match = many
		leaf.Http = append(leaf.Http, h)
	}
	b := rebuild(virtual("ns", "root", 0, root), virtual("ns", "leaf", 0, leaf))
	if n := len(b.VirtualServices[0].Spec.Http); n != 1 {
		t.Errorf("%d routes", n)
	}
	want := "http[%d] is left out of http[0]: there are more than 100000 conditions together: split the VirtualService"
	if d := cmp.Diff([]string{"root over leaf: " + fmt.Sprintf(want, 1), "root over leaf: " + fmt.Sprintf(want, 2)}, conflictText(b.Conflicts)); d != "" {
		t.Error(d)
	}
}

// A changed delegate changes the VirtualServices that delegate to it, and no others.
func TestDelegatesChange(t *testing.T) {
	inBubble(t, aggregate.Options{ConfigCluster: "c1"}, func(h *hub) {
		c1 := kube("c1")
		other := virtual("ns", "other", 0, &networking.VirtualService{Hosts: []string{"b"}, Http: []*networking.HTTPRoute{to("b", 80)}})
		r := registry(c1, service(c1, "root"), service(c1, "b"), virtual("ns", "root", 0, delegating("", "leaf")), other)
		h.Attach(r)
		h.start()
		unrelated := h.quiet().VirtualServices
		for i, n := range []int{1, 2, 0} {
			h.deltas = nil
			leaf := &networking.VirtualService{}
			for range n {
				leaf.Http = append(leaf.Http, to("b", 80))
			}
			c := virtual("ns", "leaf", 0, leaf)
			r.Put(keyOf(c), c)
			pc := h.quiet()
			if got := h.service("root").Shape.VirtualServices[0]; len(got.Spec.Http) != n || len(got.Origins) != n {
				t.Errorf("%d: %d routes of %d", i, len(got.Spec.Http), len(got.Origins))
			}
			if pc.VirtualServices[0] != unrelated[0] || len(h.deltas) != 1 || len(h.deltas[0].Shape) != 1 {
				t.Errorf("%d: %+v", i, h.deltas)
			}
		}
	})
}

// Routes that only come from other delegates than before are other routes: they name where they are from.
func TestDelegatesExchangeRoutes(t *testing.T) {
	inBubble(t, aggregate.Options{ConfigCluster: "c1"}, func(h *hub) {
		c1 := kube("c1")
		root := delegating("", "leaf1")
		root.Http = append(root.Http, &networking.HTTPRoute{Name: "r", Delegate: &networking.Delegate{Name: "leaf2"}})
		leaf := func(name string, n int) *model.Config {
			return virtual("ns", name, 0, &networking.VirtualService{Http: slices.Repeat([]*networking.HTTPRoute{to("b", 80)}, n)})
		}
		r := registry(c1, service(c1, "root"), virtual("ns", "root", 0, root), leaf("leaf1", 1), leaf("leaf2", 2))
		h.Attach(r)
		h.start()
		h.quiet()
		for _, c := range []*model.Config{leaf("leaf1", 2), leaf("leaf2", 1)} {
			r.Put(keyOf(c), c)
		}
		h.quiet()
		if got := h.service("root").Shape.VirtualServices[0].Origins; !slices.Equal(got, []int{0, 0, 1}) {
			t.Errorf("routes are from %v", got)
		}
	})
}
