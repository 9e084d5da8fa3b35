package envoytest

import "testing"

const metricsText = `# HELP a_total things
# TYPE a_total counter
a_total{type="cds"} 3
a_total{type="eds",node="x y"} 4
a_total_more 100
b 2.5
b_bucket{le="+Inf"} 7
`

func TestSumMetric(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		pairs []string
		want  float64
	}{
		{"a_total", nil, 7},
		{"a_total", []string{`type="eds"`}, 4},
		{"a_total", []string{`type="eds"`, `node="z"`}, 0},
		{"b", nil, 2.5},
		{"b_bucket", nil, 7},
		{"c", nil, 0},
	} {
		got, err := sumMetric([]byte(metricsText), tt.name, tt.pairs)
		if err != nil || got != tt.want {
			t.Errorf("%s %v: %v, %v; want %v", tt.name, tt.pairs, got, err, tt.want)
		}
	}
	if _, err := sumMetric([]byte("a ten\n"), "a", nil); err == nil {
		t.Error("a value that is no number is no error")
	}
}
