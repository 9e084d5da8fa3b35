package kube

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// quietSink takes what it is told.
type quietSink struct{ status model.Status }

func (*quietSink) Replace(*model.ShardState) {}
func (*quietSink) Put(...model.Event)        {}
func (q *quietSink) Status(s model.Status)   { q.status = s }

func idleRun(t testing.TB, out model.Sink) *run {
	t.Helper()
	r, err := newRun(Options{Cluster: "c1", Config: &rest.Config{Host: "https://127.0.0.1:1"}, MCS: true}.withDefaults(), model.ShardKey{}, out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.api.Close)
	return r
}

// odd sets an export of no service.
func (r *run) odd(i int) {
	e := &mcsv1beta1.ServiceExport{}
	e.Namespace, e.Name = "shop", fmt.Sprint("odd-", i)
	o, _ := NewObject(KindServiceExport, e)
	r.store.Set(o)
}

// What is wrong is looked at when it has changed, and, if that takes long, not again at once.
func TestProblemsAreLookedAtWhenTheyChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &quietSink{}
		r := idleRun(t, sink)
		r.odd(1)
		r.report()
		if got := sink.status.Problems; len(got) != 1 || got[0].Item != "ServiceExport/shop/odd-1" {
			t.Fatalf("problems %v", got)
		}
		r.found.problems = nil // as a mark
		r.report()
		if len(sink.status.Problems) > 0 {
			t.Error("looked at though nothing has changed")
		}
		r.queue.complain()
		r.report()
		if len(sink.status.Problems) != 1 {
			t.Error("not looked at")
		}
		r.found.next = time.Now().Add(time.Second) // it took a twentieth of that
		r.odd(2)
		for range 3 {
			r.report()
		}
		if len(sink.status.Problems) != 1 {
			t.Error("looked at too soon")
		}
		<-r.queue.wake // by complain
		<-r.queue.wake // when it is time
		r.report()
		if len(sink.status.Problems) != 2 || r.found.later != nil {
			t.Errorf("problems %v", sink.status.Problems)
		}
	})
}

// A turn costs what the problems that are told cost, 200 at most, and not what all odd objects do.
func BenchmarkTurnWithProblems(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint("problems=", n), func(b *testing.B) {
			r := idleRun(b, &quietSink{})
			for i := range n {
				r.odd(i)
			}
			r.report()
			for b.Loop() {
				r.report()
			}
		})
	}
}
