package golden_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/test/golden"
)

// spy notes failures instead of failing.
type spy struct {
	testing.TB
	failed string
}

func (*spy) Helper()                     {}
func (s *spy) Errorf(f string, a ...any) { s.failed = fmt.Sprintf(f, a...) }
func (s *spy) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }

func TestCompare(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "x.golden")
	if err := os.WriteFile(file, []byte("a\nb\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for got, want := range map[string]string{"a\nb\n": "", "a\nc\n": "x.golden"} {
		s := &spy{TB: t}
		golden.Compare(s, file, got)
		if (s.failed == "") != (want == "") || !strings.Contains(s.failed, want) {
			t.Errorf("%q: %q, want %q", got, s.failed, want)
		}
	}
}

func TestMissingFile(t *testing.T) {
	t.Parallel()
	defer func() {
		if p := fmt.Sprint(recover()); !strings.Contains(p, "-update") {
			t.Errorf("%s: the way out is not named", p)
		}
	}()
	golden.Compare(&spy{TB: t}, filepath.Join(t.TempDir(), "none"), "")
}
