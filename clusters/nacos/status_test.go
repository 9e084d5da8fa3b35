package nacos

import (
	"fmt"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/foreign"
)

// counter counts what it is told.
type counter struct {
	published
	statuses int
}

func (c *counter) Status(s model.Status) {
	c.published.Status(s)
	c.statuses++
}

// crowd is a watcher of many services, none of which can be read, and the time that it sees.
func crowd(n int) (w *watcher, out *counter, now *time.Time) {
	w, _ = bareWatcher()
	out = &counter{published: published{services: map[string]foreign.Service{}}}
	at := time.Unix(1e9, 0)
	w.pub, w.timing, w.maxServices, w.backoff = out, defaultTiming, n, func(int) time.Duration { return time.Second }
	w.clock = func() time.Time { return at }
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("s%05d", i)
	}
	w.found(w.scopes[scope{publicNamespace, defaultGroup}], append(names, "x", "y"))
	return w, out, &at
}

// Where many services have problems these are not looked through for each: all of them are told soon, the first by name.
func TestManyProblemsAreToldAtAPace(t *testing.T) {
	t.Parallel()
	const n = 5000
	w, out, now := crowd(n)
	denied := &serverError{class: classSubscribe, code: errorNoRight}
	for i := range n {
		w.subscribed(w.services[public(fmt.Sprintf("s%05d", i))], 1, nil, denied)
		w.flush()
		*now = now.Add(time.Millisecond)
	}
	if most := maxListed + 1 + int(n*time.Millisecond/pace) + 1; out.statuses > most {
		t.Errorf("%d statuses, want at most %d", out.statuses, most)
	}
	if at := w.wakeAt(); at.After(now.Add(pace)) {
		t.Errorf("the rest is told in %v", at.Sub(*now))
	}
	*now = now.Add(pace)
	w.flush()
	p := out.status.Problems
	if len(p) != maxListed+1 || p[0].Item != "services" || !p[0].Broad || p[1].Item != "DEFAULT_GROUP@@s00000" || p[1].Broad || p[maxListed].More != n+1-maxListed {
		t.Errorf("%d problems: %+v … %+v", len(p), p[:min(len(p), 2)], p[len(p)-1])
	}

	w.subscribed(w.services[public("s00000")], 2, &serviceInfo{}, nil)
	was := out.statuses
	if w.flush(); out.statuses != was {
		t.Error("one is told of at once")
	}
	w.setStatus(model.StateStale, "no contact")
	if w.flush(); out.statuses != was+1 || out.status.Err != "no contact" || out.status.Problems[1].Item != "DEFAULT_GROUP@@s00001" {
		t.Errorf("how the registry is waits: %s, %+v", out.status.Err, out.status.Problems[1])
	}
	for _, svc := range w.services {
		w.subscribed(svc, 3, &serviceInfo{}, nil)
	}
	*now = now.Add(pace)
	if w.flush(); len(out.status.Problems) != 1 || len(w.troubled) != 0 || !w.told {
		t.Errorf("what is left: %+v", out.status.Problems)
	}
}
