package aggregate

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
)

// patterns holds lists of values by host pattern: a host, "*.suffix", "*-part.suffix" or "*". Hosts are compared without regard
// to case, as services of foreign registries may have capitals.
type patterns[T comparable] struct {
	lists   map[string][]T // by patternKey
	partial lengths
}

// lengths are those of the keys of patterns whose star is a part of a label only. Where there are none, nobody looks for them.
type lengths map[int]struct{}

// note gives the lengths with that of a key.
func (l lengths) note(key string) lengths {
	if partial(key) {
		if l == nil {
			l = lengths{}
		}
		l[len(key)] = struct{}{}
	}
	return l
}

// patternKey is a pattern as an index has it: a suffix of whole labels without its star, which is the rest of a host's
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

// partial reports whether a patternKey is that of a suffix that begins within a label.
func partial(key string) bool { return len(key) > 1 && key[0] == '*' }

// keysFor gives the keys under which an index may have the patterns that a host, or every host of a pattern, is among: more
// specific ones first.
func keysFor(host string, parts lengths) iter.Seq[string] {
	return func(yield func(string) bool) {
		host := strings.ToLower(host)
		if !yield(patternKey(host)) || host == "*" {
			return
		}
		for i := 1; i < len(host); i++ {
			key := host[i:]
			if host[i] != '.' {
				if len(parts) == 0 {
					continue
				}
				if _, some := parts[len(key)+1]; !some {
					continue
				}
				key = "*" + key
			}
			if host[:i] != "*" && !yield(key) {
				return
			}
		}
		yield("*")
	}
}

func (p *patterns[T]) add(pattern string, v T) {
	key := patternKey(pattern)
	p.set(key, append(p.lists[key], v))
}

func (p *patterns[T]) set(key string, list []T) {
	if p.lists == nil {
		p.lists = map[string][]T{}
	}
	p.lists[key], p.partial = list, p.partial.note(key)
}

// match gives the values of all patterns that a host, or every host of a pattern, is among: those of more specific
// ones first, then in their order.
func (p *patterns[T]) match(host string) (out []T) {
	if len(p.lists) == 0 {
		return nil
	}
	for key := range keysFor(host, p.partial) {
		out = append(out, p.lists[key]...)
	}
	return distinct(out)
}

// scan gives what match gives, from a look at every pattern.
func (p *patterns[T]) scan(host string) (out []T) {
	host = strings.ToLower(host)
	keys := slices.SortedFunc(maps.Keys(p.lists), func(a, b string) int {
		return cmp.Or(compareTrue(a == patternKey(host), b == patternKey(host)), cmp.Compare(len(patternOf(b)), len(patternOf(a))))
	})
	for _, key := range keys {
		suffix, wild := strings.CutPrefix(patternOf(key), "*")
		if key == patternKey(host) || key == "*" || wild && len(suffix) < len(host) && strings.HasSuffix(host, suffix) {
			out = append(out, p.lists[key]...)
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
type patternSet struct {
	keys    map[string]struct{} // by patternKey
	partial lengths
}

func (s *patternSet) add(pattern string) { s.addKey(patternKey(pattern)) }

func (s *patternSet) addKey(key string) {
	if s.keys == nil {
		s.keys = map[string]struct{}{}
	}
	s.keys[key], s.partial = struct{}{}, s.partial.note(key)
}

// comparePatterns adds the patterns of which two indexes hold different lists.
func comparePatterns[T comparable](s *patternSet, a, b *patterns[T]) {
	for key, list := range a.lists {
		if !slices.Equal(list, b.lists[key]) {
			s.addKey(key)
		}
	}
	for key := range b.lists {
		if _, both := a.lists[key]; !both {
			s.addKey(key)
		}
	}
}

// wild reports whether some pattern stands for more than one host.
func (s *patternSet) wild() bool {
	for key := range s.keys {
		if wild(key) {
			return true
		}
	}
	return false
}

// has reports whether a host, or every host of a pattern, is among those of a pattern.
func (s *patternSet) has(host string) bool {
	for key := range keysFor(host, s.partial) {
		if _, ok := s.keys[key]; ok {
			return true
		}
	}
	return false
}
