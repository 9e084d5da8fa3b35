package main

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/analysis"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/registries"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

const (
	mostQuarantined = 20               // items are named in a status, which an API server keeps; how many more there are is said
	countsEvery     = 30 * time.Second // is how often a status is written for numbers alone
)

// registryStatuses makes the status of Registry objects. It is used by one goroutine.
type registryStatuses struct {
	now        func() time.Time
	last, next map[model.Source]told // what was told in the last round, and is in this one
}

// begin begins a look at all objects.
func (r *registryStatuses) begin() { r.last, r.next = r.next, map[model.Source]told{} }

// told is what was told last.
type told struct {
	status api.RegistryStatus
	at     time.Time
}

// of gives the status of a Registry. Numbers that change all the time are told now and then.
func (r *registryStatuses) of(c *model.Config, list []debug.Registry, findings []model.Finding) *api.RegistryStatus {
	s := registryStatus(c, list, findings)
	key := model.Source{Shard: c.Source.Shard, Object: c.Source.Object}
	now := r.now()
	old, known := r.last[key]
	if known && now.Sub(old.at) < countsEvery && sameButNumbers(s, old.status) {
		r.next[key] = old
		return &old.status
	}
	r.next[key] = told{s, now}
	return &s
}

// sameButNumbers compares what somebody would want to know at once.
func sameButNumbers(a, b api.RegistryStatus) bool {
	return a.State == b.State && a.Reason == b.Reason && a.ObservedGeneration == b.ObservedGeneration && slices.Equal(a.Conditions, b.Conditions) &&
		slices.EqualFunc(a.Quarantined, b.Quarantined, sameButNumber) && (a.Services == 0) == (b.Services == 0) && (a.Endpoints == 0) == (b.Endpoints == 0)
}

// sameButNumber compares items; one without a name says how many more there are.
func sameButNumber(a, b api.QuarantinedItem) bool { return a == b || a.Item == "" && b.Item == "" }

// quarantined names as many problems as a status has room for.
func quarantined(problems []debug.Problem) (out []api.QuarantinedItem) {
	list := make([]model.Problem, len(problems))
	for i, p := range problems {
		list[i] = model.Problem(p)
	}
	for _, p := range model.ListProblems(time.Time{}, list, nil, mostQuarantined) {
		out = append(out, api.QuarantinedItem{Item: p.Item, Reason: p.Reason})
	}
	return out
}

// registryStatus is what the hub makes of a Registry, by what it attached for it.
func registryStatus(c *model.Config, list []debug.Registry, findings []model.Finding) api.RegistryStatus {
	out := api.RegistryStatus{ObservedGeneration: c.Generation}
	accepted := metav1.Condition{Type: "Accepted", Status: metav1.ConditionTrue, Reason: "Valid", ObservedGeneration: c.Generation}
	for _, f := range findings {
		if f.Severity == model.SeverityError || f.Code == registries.CodeNotInForce || f.Code == registries.CodeTaken {
			accepted.Status, accepted.Reason, accepted.Message = metav1.ConditionFalse, f.Code, (api.Fault{Field: f.Field, Message: f.Message}).String()
			break
		}
	}
	synced := metav1.Condition{Type: "Synced", Status: metav1.ConditionFalse, Reason: "NotInForce", ObservedGeneration: c.Generation}
	i := slices.IndexFunc(list, func(x debug.Registry) bool {
		return x.DeclaredBy != nil && x.DeclaredBy.Source.Shard == c.Source.Shard.String() && x.DeclaredBy.Source.Object == c.Source.Object.String()
	})
	if i >= 0 {
		x := &list[i]
		out.State, out.Reason, out.Services, out.Endpoints = x.State, registryReason(*x), int32(x.Services), int32(x.Endpoints)
		if !x.LastEvent.IsZero() {
			out.LastEvent = &metav1.Time{Time: x.LastEvent.UTC().Truncate(time.Minute)}
		}
		out.Quarantined = quarantined(x.Problems)
		out.Effective = x.Effective
		synced.Reason, synced.Message = "NotSynced", cmp.Or(out.Reason, "it has not delivered everything yet")
		if x.Synced {
			synced.Status, synced.Reason, synced.Message = metav1.ConditionTrue, "Synced", ""
		}
	}
	out.Conditions = []metav1.Condition{accepted, synced}
	return out
}

// own gives the status of an object of our own kinds, nil for others.
func (s *statusWriter) own(pc *pushcontext.PushContext, c *model.Config, list []debug.Registry, findings map[model.Source][]model.Finding) any {
	switch c.Kind {
	case model.ConfigRegistry:
		return s.statuses.of(c, list, findings[model.Source{Shard: c.Source.Shard, Object: c.Source.Object}])
	case model.ConfigFederatedService:
		status := analysis.FederatedStatus(pc, c)
		return &status
	}
	return nil
}
