package model_test

import (
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	fields := []string{"retries", "timeout", "match", "route", "redirect", "exportTo", "mirror"}
	for word, want := range map[string]string{
		"reties": "retries", "timeOut": "timeout", "time_out": "timeout", "rotue": "route", "mach": "match", "export-to": "exportTo", "mirrors": "mirror",
		"subst": "", "x": "", "": "", "timeout": "", "headers": "",
	} {
		if got := model.Nearest(word, fields); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
	if got := model.Nearest("v3", []string{"v1", "v2"}); got != "" {
		t.Errorf("another version is no typing error: %q", got)
	}
	if got := model.Nearest("ratngs", []string{"rating", "ratings"}); got != "ratings" {
		t.Errorf("the nearest, not the first: %q", got)
	}
}

func FuzzNearest(f *testing.F) {
	f.Add("reties", "retries")
	f.Fuzz(func(t *testing.T, word, name string) {
		if got := model.Nearest(word, []string{name}); got != "" && got != name {
			t.Errorf("%q", got)
		}
	})
}
