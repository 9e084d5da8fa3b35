package aggregate

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// patterns holds lists of values by host pattern: a host, "*.suffix" or "*", each under its patternKey. Hosts are compared
// without regard to case, as services of foreign registries may have capitals.
type patterns[T comparable] map[string][]T

// patternKey is a pattern as an index has it: a suffix of hosts without its star, which is the rest of a host's
// name without making a string of it; in lower case.
func patternKey(pattern string) string {
	pattern = strings.ToLower(pattern)
	if strings.HasPrefix(pattern, "*.") {
		return pattern[1:]
	}
	return pattern
}

// patternOf is the opposite.
func patternOf(key string) string {
	if strings.HasPrefix(key, ".") {
		return "*" + key
	}
	return key
}

// wild reports whether a patternKey is that of a suffix, or of all hosts.
func wild(key string) bool { return key != "" && (key[0] == '.' || key[0] == '*') }

func (p patterns[T]) add(pattern string, v T) {
	key := patternKey(pattern)
	p[key] = append(p[key], v)
}

// match gives the values of all patterns that a host, or every host of a pattern, is among: those of more specific
// ones first, then in their order.
func (p patterns[T]) match(host string) (out []T) {
	if len(p) == 0 {
		return nil
	}
	host = strings.ToLower(host)
	out = append(out, p[patternKey(host)]...)
	for i := range host {
		if host[i] == '.' && i > 0 && host[:i] != "*" {
			out = append(out, p[host[i:]]...)
		}
	}
	if host != "*" {
		out = append(out, p["*"]...)
	}
	return distinct(out)
}

// scan gives what match gives, from a look at every pattern.
func (p patterns[T]) scan(host string) (out []T) {
	host = strings.ToLower(host)
	keys := slices.SortedFunc(maps.Keys(p), func(a, b string) int {
		return cmp.Or(compareTrue(a == patternKey(host), b == patternKey(host)), cmp.Compare(len(b), len(a)))
	})
	for _, key := range keys {
		if key == patternKey(host) || key == "*" || wild(key) && len(key) < len(host) && strings.HasSuffix(host, key) {
			out = append(out, p[key]...)
		}
	}
	return distinct(out)
}

// distinct leaves out what is there already. Lists are short.
func distinct[T comparable](list []T) []T {
	out := list[:0]
	for _, v := range list {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// patternSet is a set of host patterns.
type patternSet map[string]struct{} // by patternKey

// comparePatterns adds the patterns of which two indexes hold different lists.
func comparePatterns[T comparable](s patternSet, a, b patterns[T]) {
	for key, list := range a {
		if !slices.Equal(list, b[key]) {
			s[key] = struct{}{}
		}
	}
	for key := range b {
		if _, both := a[key]; !both {
			s[key] = struct{}{}
		}
	}
}

// wild reports whether some pattern stands for more than one host.
func (s patternSet) wild() bool {
	for key := range s {
		if wild(key) {
			return true
		}
	}
	return false
}

// has reports whether a host, or every host of a pattern, is among those of a pattern.
func (s patternSet) has(host string) bool {
	host = strings.ToLower(host)
	if _, ok := s[patternKey(host)]; ok {
		return true
	}
	for i := range host {
		if host[i] == '.' && i > 0 {
			if _, ok := s[host[i:]]; ok {
				return true
			}
		}
	}
	_, ok := s["*"]
	return ok
}
