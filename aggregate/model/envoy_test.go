package model_test

import (
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// What Envoy's engine reads otherwise than Go is told apart, and sizes count bytes. (Real Envoys are asked in xds/gen.)
func TestRegexSize(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{
		"": false, "(": false, `a+`: true, `\x{100}`: false, `\x{ff}`: true, `\777`: false, `\p{Letter}`: false, `\p{Greek}`: true, `[日-龍]`: true,
	} {
		if _, ok := model.RegexSize(s); ok != want {
			t.Errorf("%q: %v", s, ok)
		}
	}
	small, _ := model.RegexSize("abc")
	large, ok := model.RegexSize(strings.Repeat("(.{900})", 100))
	if !ok || small > 100 || large <= model.MaxRegexSize {
		t.Error(small, large, ok)
	}
}
