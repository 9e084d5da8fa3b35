package xds

import (
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// census is a gauge that counts streams by labels whose values clients choose. It has series only for
// what there is, and no more than most: the first label of what is beyond is "other".
type census struct {
	gauge *prometheus.GaugeVec
	most  int

	mu     sync.Mutex
	counts map[string]int // guarded by mu; by labels, joined
}

func newCensus(g *prometheus.GaugeVec, most int) *census {
	return &census{gauge: g, most: most, counts: map[string]int{}}
}

// join counts one more; call the result once to count it no more.
func (c *census) join(labels ...string) (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts[key(labels)] == 0 && len(c.counts) >= c.most {
		labels[0] = otherLabel
	}
	c.counts[key(labels)]++
	c.gauge.WithLabelValues(labels...).Inc()
	return func() { c.leave(labels) }
}

func (c *census) leave(labels []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := key(labels)
	c.gauge.WithLabelValues(labels...).Dec()
	if c.counts[k]--; c.counts[k] == 0 {
		delete(c.counts, k)
		c.gauge.DeleteLabelValues(labels...)
	}
}

func key(labels []string) string { return strings.Join(labels, "\x00") }
