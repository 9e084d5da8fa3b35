package evaluate

import (
	"slices"
	"strings"
	"testing"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// How a path is read, as a real Envoy does (see test/oracle). "" is a path that is refused.
func TestNormalise(t *testing.T) {
	t.Parallel()
	on := &hcmv3.HttpConnectionManager{NormalizePath: wrapperspb.Bool(true)}
	merging := &hcmv3.HttpConnectionManager{NormalizePath: wrapperspb.Bool(true), MergeSlashes: true}
	decoding := &hcmv3.HttpConnectionManager{NormalizePath: wrapperspb.Bool(true), MergeSlashes: true, PathWithEscapedSlashesAction: hcmv3.HttpConnectionManager_UNESCAPE_AND_FORWARD}
	refusing := &hcmv3.HttpConnectionManager{PathWithEscapedSlashesAction: hcmv3.HttpConnectionManager_REJECT_REQUEST}
	for _, c := range []struct {
		m          *hcmv3.HttpConnectionManager
		path, want string
	}{
		{on, "/", "/"}, {on, "/a/../b", "/b"}, {on, "/a/./b", "/a/b"}, {on, "/a/..", "/"}, {on, "/a/b/.", "/a/b/"}, {on, "/../a", "/a"}, {on, "/a/...", "/a/..."},
		{on, "/a/%2e%2E/b", "/b"}, {on, "/a/%2E", "/a/"}, {on, "/a%2eb", "/a.b"}, {on, "/%61%7e%2D", "/a~-"}, {on, "/a%2Fb", "/a%2Fb"}, {on, "/%c3%A4", "/%c3%A4"},
		{on, `/a\b`, "/a/b"}, {on, "/a//b", "/a//b"}, {on, "/ä\" ", "/%C3%A4%22%20"}, {on, "/%", "/%"}, {on, "/%zz", "/%zz"}, {on, "/a?b=../c//%61", "/a?b=../c//%61"}, {on, "/a?", "/a?"},
		{on, "/a%00", ""}, {on, "/a#b", ""}, {on, "/a?b#c", ""},
		{merging, "//a///b", "/a/b"}, {merging, "/a/%2F/b", "/a/%2F/b"}, {decoding, "/a%2f%5Cb", "/a/b"}, {decoding, "/a/x%2F..%2Fb", "/a/b"},
		{refusing, "/a%2Fb", ""}, {refusing, "/a?%2F", "/a?%2F"}, {&hcmv3.HttpConnectionManager{}, "/a/../%61%00", "/a/../%61%00"},
	} {
		r := Request{Path: c.path}.withDefaults()
		got := ""
		if normalise(c.m, &r) {
			got = r.Path
		}
		if got != c.want {
			t.Errorf("%q: got %q, want %q", c.path, got, c.want)
		}
	}
}

func FuzzCanonicalPath(f *testing.F) {
	for _, s := range []string{"/", "/a/../b/./c", "/%2e%2e/%", `/a\..\b`, "", "*", "//%zz%61"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := canonicalPath(s)
		if !strings.HasPrefix(got, "/") {
			t.Errorf("%q is read as %q", s, got)
		}
		for _, part := range strings.Split(got, "/") {
			if slices.Contains([]string{".", ".."}, part) || strings.ContainsFunc(part, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
				t.Errorf("%q is read as %q", s, got)
			}
		}
	})
}
