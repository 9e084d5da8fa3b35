package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// report writes the tables and tells whether all budgets hold.
func report(out io.Writer, results []*result, took time.Duration) (bool, error) {
	var b strings.Builder
	held, failed := 0, 0
	fmt.Fprintf(&b, "`%s`, %s\n", command(os.Args[1:]), machine())
	for _, r := range results {
		t := table{result: r}
		t.writer()
		t.protocols()
		fmt.Fprintf(&b, "\n### %s\n\n%s.\n\n%s", r.Profile, r.About, t.text.String())
		held, failed = held+t.held, failed+t.failed
	}
	fmt.Fprintf(&b, "\n%d of %d budgets hold. Measured in %s.\n", held, held+failed, took.Round(time.Second))
	_, err := io.WriteString(out, b.String())
	return failed == 0, err
}

func command(args []string) string {
	if len(args) == 0 {
		return "make bench"
	}
	return fmt.Sprintf("make bench ARGS=%q", strings.Join(args, " "))
}

// machine says what the figures were measured on.
func machine() string {
	model := "unknown CPU"
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
				model = strings.TrimSpace(v)
				break
			}
		}
	}
	return fmt.Sprintf("%d cores of %s, %s, %s/%s", runtime.NumCPU(), model, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

type table struct {
	*result
	text         strings.Builder
	held, failed int
}

func (t *table) writer() {
	w := t.Hub[stepWriter]
	if w == nil {
		return
	}
	t.text.WriteString("| the writer alone | | budget | |\n|---|---|---|---|\n")
	for _, f := range writerFigures() {
		v, ok := w[f.key]
		if !ok {
			continue
		}
		b := f.budget(t.Profile)
		fmt.Fprintf(&t.text, "| %s | %s | %s | %s |\n", f.label, f.format(v), t.wanted(f, b), t.verdict(b, stepWriter, v))
	}
	t.text.WriteString("\n")
}

func (t *table) protocols() {
	if t.Hub["sotw"] == nil && t.Hub["delta"] == nil {
		return
	}
	t.text.WriteString("| figure | SotW | delta | floor SotW | floor delta | budget | SotW / delta |\n|---|---|---|---|---|---|---|\n")
	for _, f := range figures() {
		if t.has(f.key) {
			t.line(f)
		}
	}
}

func (t *table) has(key string) bool {
	for _, m := range []map[string]float64{t.Hub["sotw"], t.Hub["delta"]} {
		if _, ok := m[key]; ok {
			return true
		}
	}
	return false
}

func (t *table) line(f figure) {
	b := f.budget(t.Profile)
	var verdicts []string
	fmt.Fprintf(&t.text, "| %s ", f.label)
	for _, proto := range []string{"sotw", "delta"} {
		v, ok := t.Hub[proto][f.key]
		if !ok {
			t.text.WriteString("| ")
			verdicts = append(verdicts, "–")
			continue
		}
		fmt.Fprintf(&t.text, "| %s%s ", f.format(v), multiple(v, t.Floor[proto], f.key))
		verdicts = append(verdicts, t.verdict(b, proto, v))
	}
	for _, proto := range []string{"sotw", "delta"} {
		text := ""
		if v, ok := t.Floor[proto][f.key]; ok {
			text = f.format(v)
		}
		fmt.Fprintf(&t.text, "| %s ", text)
	}
	verdict := ""
	if b != nil {
		verdict = strings.Join(verdicts, " / ")
	}
	fmt.Fprintf(&t.text, "| %s | %s |\n", t.wanted(f, b), verdict)
}

// multiple gives how many times the floor a figure is.
func multiple(v float64, floor map[string]float64, key string) string {
	low, ok := floor[key]
	compared := strings.Contains(key, "_cpu_ms") || strings.Contains(key, "_cpu_s") || strings.Contains(key, "50_ms") || strings.Contains(key, "99_ms") || strings.HasSuffix(key, "_mib")
	if !ok || low <= 0 || v <= 0 || !compared || strings.HasPrefix(key, "start") {
		return ""
	}
	return " (" + strconv.FormatFloat(v/low, 'f', 1, 64) + "×)"
}

func (f figure) format(v float64) string {
	s := strconv.FormatFloat(v, 'f', f.digits, 64)
	if f.unit != "" {
		s += " " + f.unit
	}
	return s
}

func (t *table) wanted(f figure, b *budget) string {
	if b == nil {
		return ""
	}
	sign, extra := "≤ ", ""
	if b.atLeast {
		sign = "≥ "
	}
	if b.plusFloor != "" {
		extra = " + floor"
	}
	if b.only != "" {
		extra += " (" + b.only + ")"
	}
	f.digits = 0
	if b.limit != float64(int(b.limit)) {
		f.digits = 1
	}
	return sign + f.format(b.limit) + extra
}

func (t *table) verdict(b *budget, proto string, v float64) string {
	bound, ok := b.bound(proto, t.Floor[proto])
	if !ok {
		return "–"
	}
	if b.holds(v, bound) {
		t.held++
		return "ok"
	}
	t.failed++
	return "**missed**"
}
