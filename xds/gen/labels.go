package gen

import (
	"maps"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Labels are a proxy's labels in a form that can be compared, as a Class must be. The zero value is
// none.
type Labels string

// labelEnd ends each key and each value; neither holds it.
const labelEnd = "\x00"

// NewLabels keeps all pairs but those that no label can have.
func NewLabels(l model.Labels) Labels {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(l)) {
		if !strings.Contains(k+l[k], labelEnd) {
			b.WriteString(k + labelEnd + l[k] + labelEnd)
		}
	}
	return Labels(b.String())
}

// cut gives the first pair and what follows it.
func (l Labels) cut() (key, value string, rest Labels) {
	key, after, _ := strings.Cut(string(l), labelEnd)
	value, after, _ = strings.Cut(after, labelEnd)
	return key, value, Labels(after)
}

// Value gives the value of a label, "" if it is not there.
func (l Labels) Value(key string) string {
	for l != "" {
		var k, v string
		if k, v, l = l.cut(); k == key {
			return v
		}
	}
	return ""
}

// Match reports whether the labels have all pairs of a selector.
func (l Labels) Match(selector model.Labels) bool {
	for k, v := range selector {
		if l.Value(k) != v {
			return false
		}
	}
	return true
}

// Keys are the labels' names, sorted.
func (l Labels) Keys() []string {
	var out []string
	for l != "" {
		var k string
		k, _, l = l.cut()
		out = append(out, k)
	}
	return out
}

// Only gives the labels of these names, which are sorted. A name that is not there is kept without
// value, so that the result says which were asked for.
func (l Labels) Only(keys []string) Labels {
	var b strings.Builder
	for _, k := range keys {
		b.WriteString(k + labelEnd + l.Value(k) + labelEnd)
	}
	return Labels(b.String())
}
