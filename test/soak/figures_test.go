package soak_test

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// sampled has the hub remember where about one of as many bytes was made: more often than by default, so that sums of a megabyte are right to 3%.
const sampled = 512

// figures are what the hub's process takes. How many bytes live in all is told, but proves nothing: buffers of connections and what
// libraries keep for the next use come and go, a megabyte or two of them. What the hub's own code made does not.
type figures struct {
	goroutines int
	own        made
	heap       int // bytes that live after a collection
	resident   int // bytes, as the kernel counts
}

func (f figures) String() string {
	return fmt.Sprintf("%d goroutines, %.2f MB of its own, heap %.2f MB, %.0f MB resident", f.goroutines, f.own.sum()/1e6, float64(f.heap)/1e6, float64(f.resident)/1e6)
}

// made are how many bytes live, about, by the function of the hub that made them.
type made map[string]float64

func (o made) sum() (n float64) {
	for _, more := range o {
		n += more
	}
	return n
}

// growth lists the functions that made most of what there was not before.
func (o made) growth(before made) string {
	by := map[string]float64{}
	for f, n := range o {
		by[f] = n - before[f]
	}
	most := slices.SortedFunc(maps.Keys(by), func(a, b string) int { return cmp.Or(cmp.Compare(by[b], by[a]), strings.Compare(a, b)) })
	var out strings.Builder
	for _, f := range most[:min(len(most), 25)] {
		fmt.Fprintf(&out, "\n%+.0f %s", by[f], f)
	}
	return out.String()
}

const (
	own = "github.com/isthmus-mesh/isthmus/"
	// history makes what is remembered of the last 1024 changes, which are more and more until there were so many.
	history = own + "pushcontext.(*step).delta"
)

var (
	total     = regexp.MustCompile(`(?m)^goroutine profile: total (\d+)`)
	heapAlloc = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)`)
	site      = regexp.MustCompile(`(?m)^(\d+): (\d+) \[\d+: \d+\] @`)
	frame     = regexp.MustCompile(`(?m)^#\t0x[0-9a-f]+\t(.+)\+0x[0-9a-f]+\t`)
)

// madeByHub reads a heap profile in the form with debug=1.
func madeByHub(profile string) made {
	out := made{}
	for record := range strings.SplitSeq(profile, "\n\n") {
		live := site.FindStringSubmatch(record)
		if live == nil || live[1] == "0" || strings.Contains(record, history) {
			continue
		}
		if f, ours := strings.CutPrefix(maker(record), own); ours {
			out[f] += estimate(live[1], live[2])
		}
	}
	return out
}

// estimate is how many bytes stand behind those of a sample, which has the larger objects rather.
func estimate(objects, bytes string) float64 {
	n, _ := strconv.ParseFloat(objects, 64) // digits
	b, _ := strconv.ParseFloat(bytes, 64)
	return b / -math.Expm1(-b/n/sampled)
}

// maker is the function that made the objects of a record: the first that is no part of the runtime, which is not told, or of what stands
// for a few lines of its caller.
func maker(record string) string {
	for _, f := range frame.FindAllStringSubmatch(record, 4) {
		if !strings.HasPrefix(f[1], "slices.") && !strings.HasPrefix(f[1], "maps.") {
			return f[1]
		}
	}
	return ""
}

func TestMadeByHub(t *testing.T) {
	t.Parallel()
	const (
		run     = "#\t0x1\t" + own + "xds.(*stream).run+0x1\t/a.go:1\n"
		profile = "heap profile: 7: 96 [9: 128] @ heap/1024\n" +
			"2: 1024 [3: 48] @ 0x1 0x2\n" + run + "#\t0x2\tmain.main+0x2\t/b.go:2\n\n" +
			"1: 102400 [1: 16] @ 0x3 0x1\n#\t0x3\tslices.Clone[...]+0x9\t/s.go:1\n" + run + "\n" +
			"0: 0 [1: 16] @ 0x1\n#\t0x1\t" + own + "xds.gone+0x1\t/a.go:1\n\n" +
			"8: 128 [1: 16] @ 0x1 0x5\n#\t0x1\t" + own + "pushcontext.names+0x1\t/a.go:1\n#\t0x5\t" + history + "+0x1\t/a.go:1\n\n" +
			"4: 64 [4: 64] @ 0x4 0x1\n#\t0x4\tnet/http.Get+0x4\t/h.go:1\n" + run + "\n" +
			"# runtime.MemStats\n# HeapAlloc = 17\n"
	)
	// Of objects of 512 bytes 63% are in the sample.
	if got := madeByHub(profile); len(got) != 1 || math.Round(got["xds.(*stream).run"]) != 102400+1620 {
		t.Errorf("%v", got)
	}
}

// figures collects the hub's garbage and measures.
func (m *mesh) figures() figures {
	m.Helper()
	// What a collection finalises, and what pools let go of, is free after the next.
	m.page("/debug/pprof/heap?gc=1")
	heap := m.page("/debug/pprof/heap?gc=1&debug=1")
	resident, err := m.hub.Metric(m.Context(), "process_resident_memory_bytes")
	if err != nil {
		m.Fatal(err)
	}
	return figures{
		goroutines: m.number(total, m.page("/debug/pprof/goroutine?debug=1")), own: madeByHub(heap), heap: m.number(heapAlloc, heap), resident: int(resident),
	}
}

func (m *mesh) page(path string) string {
	m.Helper()
	body, err := m.hub.Get(m.Context(), m.hub.URL+path)
	if err != nil {
		m.Fatal(err)
	}
	return string(body)
}

func (m *mesh) number(pattern *regexp.Regexp, text string) int {
	m.Helper()
	found := pattern.FindStringSubmatch(text)
	if found == nil {
		m.Fatalf("no %s in %.200q", pattern, text)
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		m.Fatal(err)
	}
	return n
}

// still measures once the number of goroutines has stayed the same for a while.
func (m *mesh) still() (now figures) {
	m.Helper()
	const looks = 15
	last, same := 0, 0
	m.eventually("goroutines that stay", func() error {
		n := m.number(total, m.page("/debug/pprof/goroutine?debug=1"))
		if same++; n != last {
			last, same = n, 0
		}
		if same < looks {
			return fmt.Errorf("%d goroutines", n)
		}
		return nil
	})
	return m.figures()
}

// spare is how many goroutines may come and go.
const spare = 6

// least is less than how many bytes of the hub's own any registry has, with its tables and rows.
const least = 10_000

// flat waits until the hub takes what it took before, and at most so many bytes of its own more. Connections in the midst of ending and beginning
// are goroutines, and what they hold is free a while later.
func (m *mesh) flat(before figures, more int) (now figures) {
	m.Helper()
	m.eventually("the goroutines and the memory that there were", func() error {
		now = m.figures()
		switch {
		case now.goroutines > before.goroutines+spare:
			return fmt.Errorf("%v; before: %v; they are:\n%s", now, before, m.page("/debug/pprof/goroutine?debug=1"))
		case now.own.sum() > before.own.sum()+float64(more):
			return fmt.Errorf("%v; before: %v; made by:%s", now, before, now.own.growth(before.own))
		}
		return nil
	})
	return now
}
