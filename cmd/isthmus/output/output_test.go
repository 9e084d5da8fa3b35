package output_test

import (
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/output"
)

func TestTable(t *testing.T) {
	t.Parallel()
	table := output.Table{Header: []string{"NAME", "STATE", "NOTE"}}
	table.Add("east", "live", "")
	table.Add("süd-west", "", "two\nlines")
	var b strings.Builder
	if err := table.Write(&b); err != nil {
		t.Fatal(err)
	}
	const want = "NAME       STATE   NOTE\n" +
		"east       live    -\n" +
		"süd-west   -       two lines\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

func TestDrop(t *testing.T) {
	t.Parallel()
	table := output.Table{Header: []string{"A", "B", "C"}}
	table.Add("1", "2", "3")
	table.Drop(2)
	var b strings.Builder
	if err := table.Write(&b); err != nil {
		t.Fatal(err)
	}
	if b.String() != "A\n1\n" {
		t.Errorf("got %q", b.String())
	}
}

func TestEncode(t *testing.T) {
	t.Parallel()
	v := map[string]any{"name": "east", "rows": 2}
	for format, want := range map[string]string{
		output.JSON: "{\n  \"name\": \"east\",\n  \"rows\": 2\n}\n",
		output.YAML: "name: east\nrows: 2\n",
	} {
		var b strings.Builder
		if err := output.Encode(&b, format, v); err != nil {
			t.Fatal(err)
		}
		if b.String() != want {
			t.Errorf("%s: got %q, want %q", format, b.String(), want)
		}
	}
}
