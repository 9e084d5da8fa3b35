package gen

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

func TestLabels(t *testing.T) {
	t.Parallel()
	l := NewLabels(model.Labels{"b": "2", "a": "1", "c": "", "d\x00": "x", "e": "y\x00", "": "empty"})
	for k, want := range map[string]string{"a": "1", "b": "2", "c": "", "d": "", "e": "", "x": "", "1": "", "": "empty"} {
		if got := l.Value(k); got != want {
			t.Errorf("%q has %q, want %q", k, got, want)
		}
	}
	if d := cmp.Diff([]string{"", "a", "b", "c"}, l.Keys()); d != "" {
		t.Error(d)
	}
	if NewLabels(nil) != "" || Labels("").Keys() != nil || Labels("").Only(nil) != "" {
		t.Error("no labels are something")
	}
}

// Proxies that differ in other labels alone are equal once narrowed, whether or not they have those asked for.
func TestLabelsOnly(t *testing.T) {
	t.Parallel()
	of := func(l model.Labels) Labels { return NewLabels(l).Only([]string{"tier", "zone"}) }
	gold := of(model.Labels{"tier": "gold", "hash": "1"})
	if gold != of(model.Labels{"tier": "gold", "hash": "2", "app": "x"}) || gold == of(model.Labels{"tier": "silver"}) {
		t.Error("labels that nobody asked for count, or those asked for do not")
	}
	if of(nil) != of(model.Labels{"tier": "", "hash": "1"}) {
		t.Error("a label that is not there differs from an empty one")
	}
	if d := cmp.Diff([]string{"tier", "zone"}, of(nil).Keys()); d != "" {
		t.Error(d)
	}
}

func FuzzLabels(f *testing.F) {
	f.Add("a", "1", "b", "2")
	f.Add("a\x00", "", "", "\x00")
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string) {
		in := model.Labels{k1: v1, k2: v2}
		l := NewLabels(in)
		for _, k := range l.Keys() {
			if l.Value(k) != in[k] {
				t.Errorf("%q: %q became %q", k, in[k], l.Value(k))
			}
		}
		if !slices.IsSorted(l.Keys()) || l.Only(l.Keys()) != l {
			t.Errorf("%q", l)
		}
	})
}
