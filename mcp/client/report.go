package client

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// maxProblems bounds what a server can make us tell of its faults.
const maxProblems = 200

// report tells the state of the contact, and what can't be used, if that is news.
func (r *run) report(now time.Time) {
	next := model.Status{State: model.StateSyncing, Since: now, Err: r.why}
	switch {
	case r.synced && r.why != "":
		next.State = model.StateStale
	case r.synced:
		next.State = model.StateLive
	}
	before := &r.reporter.status
	if !r.store.ProblemsChanged() && !r.news && next.State == before.State && next.Err == before.Err {
		return // as after most responses, and there may be many problems to go through
	}
	r.news = false
	if next, news := r.reporter.next(next, r.problems(now)); news {
		r.out.Status(next)
	}
}

// problems lists what is wrong, in any order.
func (r *run) problems(now time.Time) (out []model.Problem) {
	add := func(item, why string) {
		out = append(out, model.Problem{Item: item, Reason: why, Broad: !strings.Contains(item, "/")}) // of a kind
	}
	for ref, reasons := range r.store.Problems() {
		for _, why := range reasons {
			add(ref.String(), why)
		}
	}
	for _, k := range r.kinds {
		if r.live && !k.settled && r.enough(now) {
			add(k.Name, "the server does not answer for this kind: what was known of it stays")
		}
		for _, f := range k.feeds {
			for name, why := range f.faults {
				add(strings.Trim(k.Name+"/"+name, "/"), why)
			}
		}
	}
	return out
}

// reporter turns what is known into a status, and logs each change and each problem once. Owned by the run.
type reporter struct {
	log    *slog.Logger
	status model.Status
}

// next gives the status and whether it differs from the last one.
func (r *reporter) next(s model.Status, problems []model.Problem) (model.Status, bool) {
	before := r.status
	s.Problems = model.ListProblems(s.Since, problems, before.Problems, maxProblems)
	s, news := s.Follow(before)
	if news {
		r.announce(before, s)
		r.status = s
	}
	return s, news
}

func (r *reporter) announce(before, now model.Status) {
	switch {
	case now.Err != "" && now.Err != before.Err && now.State == model.StateSyncing:
		r.log.Warn("MCP server can't be read yet; it is tried again", "err", now.Err)
	case now.Err != "" && now.Err != before.Err:
		r.log.Warn("contact with the MCP server is lost; what is known stays, and it is tried again", "err", now.Err)
	case now.State == model.StateLive && before.State == model.StateStale:
		r.log.Info("contact with the MCP server is back", "after", now.Since.Sub(before.Since).Round(time.Millisecond))
	case now.State == model.StateLive && before.State != model.StateLive:
		r.log.Info("MCP server has been read")
	}
	for _, p := range now.Problems {
		if !slices.ContainsFunc(before.Problems, func(o model.Problem) bool { return o.Item == p.Item && o.Reason == p.Reason }) {
			r.log.Warn("problem with what an MCP server says", "object", p.Item, "reason", p.Reason)
		}
	}
}

// reason is why a stream ended, in words.
func reason(err error) string {
	s, ok := status.FromError(err)
	if !ok {
		return err.Error()
	}
	return fmt.Sprintf("%s (%s)", s.Message(), s.Code())
}
