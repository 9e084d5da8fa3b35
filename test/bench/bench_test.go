package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain lets the test binary be the servers that it measures, as bench is.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		if err := serveRole(role); err != nil {
			fatal(err)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func TestTinyProfileMeasuresEverything(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	file := filepath.Join(t.TempDir(), "figures.json")
	o, err := parse([]string{"-profile", "tiny", "-json", file}, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	var out, progress bytes.Buffer
	if _, err := bench(ctx, o, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var results []result
	if err := json.Unmarshal(b, &results); err != nil || len(results) != 1 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	for _, proto := range []string{"sotw", "delta"} {
		for _, f := range figures() {
			if _, ok := results[0].Hub[proto][f.key]; !ok {
				t.Errorf("%s: %s was not measured", proto, f.key)
			}
		}
		checkWork(t, proto, results[0].Hub[proto])
	}
	for _, f := range writerFigures() {
		if results[0].Hub[stepWriter][f.key] <= 0 {
			t.Errorf("writer: %s was not measured", f.key)
		}
	}
	if !strings.Contains(out.String(), "| endpoint change to the last proxy, p50 |") {
		t.Errorf("table:\n%s", out.String())
	}
}

// checkWork looks at what was counted, which no load on the machine changes.
func checkWork(t *testing.T, proto string, f map[string]float64) {
	t.Helper()
	for key, most := range map[string]float64{
		"connect_refused": 0,
		"warm_builds_eds": 0, // a warm class: nothing is encoded again
		"warm_builds_rds": 0,
	} {
		if f[key] > most {
			t.Errorf("%s: %s is %v, want at most %v", proto, key, f[key], most)
		}
	}
	if f["change_mib"] <= 0 || f["change_builds"] <= 0 {
		t.Errorf("%s: a change sent %v MiB of %v resources", proto, f["change_mib"], f["change_builds"])
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string // "" or part of the error
	}{
		{[]string{"-profile", "big", "-proto", "delta", "-proxies", "7"}, ""},
		{[]string{"-only", "change"}, ""},
		{[]string{"-only", "writer"}, ""},
		{[]string{"-only", "lunch"}, `no step "lunch"`},
		{[]string{"-proto", "json"}, "-proto"},
		{[]string{"more"}, `no argument "more"`},
		{[]string{"-profile", "huge"}, `no profile "huge"`},
	} {
		var discard bytes.Buffer
		o, err := parse(c.args, &discard)
		if err == nil {
			_, err = o.chosen()
		}
		if c.want == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.args, err, c.want)
		}
	}
	o, _ := parse([]string{"-profile", "big", "-proxies", "7"}, os.Stderr)
	ps, err := o.chosen()
	if err != nil || len(ps) != 1 || ps[0].proxies != 7 || ps[0].spec.Members != 50 {
		t.Errorf("profiles %+v, %v", ps, err)
	}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	floor := map[string]float64{"x": 5}
	for _, c := range []struct {
		b     *budget
		proto string
		v     float64
		want  string
	}{
		{nil, "sotw", 1, "–"},
		{most(10), "sotw", 10, "ok"},
		{most(10), "delta", 10.5, "**missed**"},
		{most(10).delta(), "sotw", 99, "–"},
		{&budget{limit: 10, atLeast: true}, stepWriter, 9, "**missed**"},
		{&budget{limit: 10, plusFloor: "x"}, "delta", 14, "ok"},
		{&budget{limit: 10, plusFloor: "x"}, "delta", 16, "**missed**"},
		{&budget{limit: 10, plusFloor: "missing"}, "delta", 1, "–"},
	} {
		tb := table{result: &result{Floor: map[string]map[string]float64{"delta": floor}}}
		if got := tb.verdict(c.b, c.proto, c.v); got != c.want {
			t.Errorf("%+v, %s, %v: %s, want %s", c.b, c.proto, c.v, got, c.want)
		}
	}
}

// A change that is timed must reach every proxy: other changes may not overwrite it before it is sent.
func TestTimedServicesAreLeftAlone(t *testing.T) {
	t.Parallel()
	for _, services := range []int{2, 3, 20} {
		for range 1000 {
			a, b := timed(services), other(services)
			if a < 0 || a >= services || b < 0 || b >= services || a == b || a%2 != 0 || b%2 != 1 {
				t.Fatalf("of %d services, %d is timed and %d changed beside it", services, a, b)
			}
		}
	}
}
