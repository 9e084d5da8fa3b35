package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/xds"
)

// diffGroup is a change and the proxies that it reaches.
type diffGroup struct {
	Proxies []string       `json:"proxies"` // "POD.NAMESPACE in CLUSTER"
	Changes []resourceDiff `json:"changes"`
}

// resourceDiff is what becomes of a resource.
type resourceDiff struct {
	Type   string      `json:"type"` // "cds" …
	Name   string      `json:"name"`
	Change string      `json:"change"` // added, removed or changed
	Fields []fieldDiff `json:"fields,omitempty"`
}

// fieldDiff is a field that differs; a side is left out if it has no such field.
type fieldDiff struct {
	Path   string          `json:"path"`
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}

// pair is a proxy before and after; one that comes or goes is nil on one side.
type pair struct{ was, is *proxyNode }

func (p pair) name() string {
	if p.is != nil {
		return p.is.name()
	}
	return p.was.name()
}

// diffs compares resources, each pair of bodies once.
type diffs struct{ known map[[3]string]resourceDiff }

// diffProxies gives the differences, grouped by what they are, in the order of the proxies.
func diffProxies(before, after *offline, list []pair, types []string) ([]diffGroup, error) {
	groups := []diffGroup{}
	at := map[string]int{}
	d := &diffs{known: map[[3]string]resourceDiff{}}
	for _, p := range list {
		var was, is []xds.Rendered
		var err error
		if p.was != nil {
			if was, err = p.was.render(before, types...); err != nil {
				return nil, err
			}
		}
		if p.is != nil {
			if is, err = p.is.render(after, types...); err != nil {
				return nil, err
			}
		}
		changes, key, err := d.compare(was, is)
		if err != nil {
			return nil, err
		}
		if len(changes) == 0 {
			continue
		}
		i, known := at[key]
		if !known {
			i = len(groups)
			at[key] = i
			groups = append(groups, diffGroup{Changes: changes})
		}
		groups[i].Proxies = append(groups[i].Proxies, p.name())
	}
	return groups, nil
}

// compare gives the differences between two states, and a key that is the same for the same differences.
func (d *diffs) compare(was, is []xds.Rendered) (out []resourceDiff, key string, err error) {
	type id struct{ typ, name string }
	old := map[id]xds.Rendered{}
	for _, r := range was {
		old[id{r.TypeURL, r.Name}] = r
	}
	var b strings.Builder
	note := func(x resourceDiff) {
		out = append(out, x)
		b.Write(encoded(x))
	}
	for _, r := range is {
		k := id{r.TypeURL, r.Name}
		o, there := old[k]
		delete(old, k)
		switch {
		case !there:
			note(resourceDiff{Type: r.Short, Name: r.Name, Change: "added"})
		case string(o.Body) != string(r.Body):
			x, err := d.changed(o, r)
			if err != nil {
				return nil, "", err
			}
			note(x)
		}
	}
	for _, r := range was {
		if _, gone := old[id{r.TypeURL, r.Name}]; gone {
			note(resourceDiff{Type: r.Short, Name: r.Name, Change: "removed"})
		}
	}
	return out, b.String(), nil
}

func (d *diffs) changed(o, r xds.Rendered) (resourceDiff, error) {
	k := [3]string{r.TypeURL + " " + r.Name, string(o.Body), string(r.Body)}
	if x, ok := d.known[k]; ok {
		return x, nil
	}
	x := resourceDiff{Type: r.Short, Name: r.Name, Change: "changed"}
	var sides [2]any
	for i, side := range []xds.Rendered{o, r} {
		raw, err := resourceJSON(side)
		if err != nil {
			return x, err
		}
		if err := json.Unmarshal(raw, &sides[i]); err != nil {
			return x, err
		}
	}
	x.Fields = diffValues("", sides[0], sides[1])
	d.known[k] = x
	return x, nil
}

// diffValues compares two values of JSON and gives the smallest parts that differ.
func diffValues(path string, a, b any) []fieldDiff {
	if x, ok := a.(map[string]any); ok {
		if y, ok := b.(map[string]any); ok {
			return diffMaps(path, x, y)
		}
	}
	if x, ok := a.([]any); ok {
		if y, ok := b.([]any); ok {
			return diffLists(path, x, y)
		}
	}
	before, after := encoded(a), encoded(b)
	if string(before) == string(after) {
		return nil
	}
	return []fieldDiff{{Path: path, Before: before, After: after}}
}

// encoded is a value as JSON; nil stands for what is not there.
func encoded(v any) json.RawMessage {
	if v == nil {
		return nil
	}
	raw, err := json.Marshal(v)
	if err != nil { // it was read from JSON
		panic(err)
	}
	return raw
}

func diffMaps(path string, a, b map[string]any) (out []fieldDiff) {
	keys := maps.Clone(a)
	maps.Copy(keys, b)
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		at := k
		if path != "" {
			at = path + "." + k
		}
		out = append(out, diffValues(at, a[k], b[k])...)
	}
	return out
}

// diffLists compares elements of one name, or those at one index if any has none.
func diffLists(path string, a, b []any) (out []fieldDiff) {
	x, named := byName(a)
	y, alsoNamed := byName(b)
	if !named || !alsoNamed {
		for i := range max(len(a), len(b)) {
			out = append(out, diffValues(fmt.Sprintf("%s[%d]", path, i), element(a, i), element(b, i))...)
		}
		return out
	}
	var left, right []string
	for _, e := range a {
		n := nameOf(e)
		if _, both := y[n]; both {
			left = append(left, n)
		}
		out = append(out, diffValues(fmt.Sprintf("%s[%s]", path, n), e, y[n])...)
	}
	for _, e := range b {
		n := nameOf(e)
		if _, both := x[n]; both {
			right = append(right, n)
		} else {
			out = append(out, diffValues(fmt.Sprintf("%s[%s]", path, n), nil, e)...)
		}
	}
	if !slices.Equal(left, right) {
		out = append(out, fieldDiff{Path: path + " (order)", Before: encoded(left), After: encoded(right)})
	}
	return out
}

func element(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return nil
}

// byName gives the elements by what they are called; false if some have no name, or two have one.
func byName(list []any) (map[string]any, bool) {
	out := map[string]any{}
	for _, e := range list {
		n := nameOf(e)
		if _, twice := out[n]; n == "" || twice {
			return nil, false
		}
		out[n] = e
	}
	return out, true
}

// nameOf is what an element of a list is called: its name, or the address of an endpoint.
func nameOf(e any) string {
	m, _ := e.(map[string]any)
	if n, ok := m["name"].(string); ok {
		return n
	}
	endpoint, _ := m["endpoint"].(map[string]any)
	if endpoint == nil {
		return ""
	}
	return string(encoded(endpoint["address"]))
}

// shownProxies is how many proxies of a group are named.
const shownProxies = 8

// shownValue is how many bytes of a value are shown.
const shownValue = 300

func writeDiff(w io.Writer, groups []diffGroup) error {
	signs := map[string]string{"added": "+", "removed": "-", "changed": "~"}
	var b strings.Builder
	for i, g := range groups {
		if i > 0 {
			b.WriteByte('\n')
		}
		shown := g.Proxies[:min(len(g.Proxies), shownProxies)]
		fmt.Fprintf(&b, "%s", strings.Join(shown, ", "))
		if more := len(g.Proxies) - len(shown); more > 0 {
			fmt.Fprintf(&b, " and %d more", more)
		}
		b.WriteByte('\n')
		for _, c := range g.Changes {
			fmt.Fprintf(&b, "  %s %s %s\n", signs[c.Change], c.Type, c.Name)
			for _, f := range c.Fields {
				fmt.Fprintf(&b, "      %s: %s -> %s\n", f.Path, valueText(f.Before), valueText(f.After))
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func valueText(v json.RawMessage) string {
	switch s := string(v); {
	case s == "":
		return "none"
	case len(s) > shownValue:
		return strings.ToValidUTF8(s[:shownValue], "") + "…"
	default:
		return s
	}
}
