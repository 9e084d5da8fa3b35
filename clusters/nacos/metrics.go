package nacos

import (
	"errors"
	"time"

	"github.com/isthmus-mesh/isthmus/clusters/foreign"
)

// metrics are those of one registry.
type metrics struct {
	*foreign.Metrics
	registry string
	now      func() time.Time
}

func (m *metrics) request(err error) {
	result := foreign.RequestOK
	switch {
	case errors.Is(err, errDenied):
		result = foreign.RequestRefused
	case err != nil:
		result = foreign.RequestFailed
	}
	m.Request(m.registry, result)
}

func (m *metrics) connected()      { m.Connected(m.registry) }
func (m *metrics) repaired()       { m.Repaired(m.registry) }
func (m *metrics) unchanged()      { m.Unchanged(m.registry) }
func (m *metrics) watches(n int)   { m.Watches(m.registry, n) }
func (m *metrics) protected(n int) { m.Protected(m.registry, n) }

// put notes when the notice came that was published now.
func (m *metrics) put(notice time.Time) {
	if !notice.IsZero() {
		m.Put(m.registry, m.now().Sub(notice))
	}
}

// discovered notes how long a service may have been there unknown: since the last list was begun, unless the server tells of names.
func (m *metrics) discovered(n *names, now time.Time) {
	delay := now.Sub(n.since)
	if n.watched {
		delay = 0
	}
	m.Discovered(m.registry, delay)
}
