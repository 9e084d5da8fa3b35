// Package output prints what a command found: aligned tables for people, JSON and YAML for programs.
package output

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// The formats.
const (
	Text = "table"
	Wide = "wide" // a table with more columns
	JSON = "json"
	YAML = "yaml"
)

// Formats are the values of -o.
func Formats() []string { return []string{Text, Wide, JSON, YAML} }

// Table is rows of equally many cells. Empty cells print as "-", so that every line has as many
// words as columns as long as cells hold no spaces.
type Table struct {
	Header []string
	Rows   [][]string
}

// Add appends a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// Drop removes the last n columns.
func (t *Table) Drop(n int) {
	t.Header = t.Header[:len(t.Header)-n]
	for i, r := range t.Rows {
		t.Rows[i] = r[:len(r)-n]
	}
}

// Without removes the named columns.
func (t *Table) Without(names ...string) {
	keep := func(row []string) []string {
		out := make([]string, 0, len(row))
		for i, c := range row {
			if !slices.Contains(names, t.Header[i]) {
				out = append(out, c)
			}
		}
		return out
	}
	for i, r := range t.Rows {
		t.Rows[i] = keep(r)
	}
	t.Header = keep(t.Header)
}

// Write prints the table, its columns three spaces apart, without trailing spaces.
func (t *Table) Write(w io.Writer) error {
	width := make([]int, len(t.Header))
	lines := append([][]string{t.Header}, t.Rows...)
	for _, r := range lines {
		for i, c := range r {
			width[i] = max(width[i], utf8.RuneCountInString(cell(c)))
		}
	}
	var b strings.Builder
	for _, r := range lines {
		for i, c := range r {
			c = cell(c)
			b.WriteString(c)
			if i < len(r)-1 {
				b.WriteString(strings.Repeat(" ", width[i]-utf8.RuneCountInString(c)+3))
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func cell(s string) string {
	if s == "" {
		return "-"
	}
	return strings.ReplaceAll(s, "\n", " ")
}

// Encode prints v as JSON or YAML.
func Encode(w io.Writer, format string, v any) error {
	out, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	out = append(out, '\n')
	if format == YAML {
		if out, err = yaml.JSONToYAML(out); err != nil {
			return fmt.Errorf("encode: %w", err)
		}
	}
	_, err = w.Write(out)
	return err
}
