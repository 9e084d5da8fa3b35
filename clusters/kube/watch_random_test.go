package kube_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

// Whatever happens to a cluster and to contact with it, an instance that lived through it ends with the
// rows of one that starts then.
func TestRandomHistories(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			h := &history{t: t, s: newAPIServer(t), rnd: rand.New(rand.NewPCG(seed, 1))}
			h.s.define(istio, entries)
			o := options(h.s)
			o.Selectors = []*meshconfig.LabelSelector{{MatchLabels: map[string]string{"mesh": "on"}}}
			for range 30 {
				h.step()
			}
			w := watch(t, kube.New(o))
			for range 150 {
				h.step()
				if h.rnd.IntN(4) == 0 {
					w.turn()
				}
			}
			h.heal()
			fresh := watch(t, kube.New(o))
			fresh.awaitState(model.StateLive)
			fresh.await("the first truth", func() bool { return fresh.replaces == 1 })
			fresh.stop()
			want := texts(fresh.rows)
			w.awaitState(model.StateLive)
			defer func() {
				if d := cmp.Diff(want, texts(w.rows)); t.Failed() {
					t.Errorf("rows (-fresh +long-lived):\n%s", d)
				}
			}()
			w.await("the rows of a fresh instance", func() bool { return w.replaces == 1 && maps.Equal(texts(w.rows), want) })
		})
	}
}

// history does things to a cluster at random.
type history struct {
	t   *testing.T
	s   *apiServer
	rnd *rand.Rand
}

func (h *history) pick(of ...string) string { return of[h.rnd.IntN(len(of))] }

func (h *history) step() {
	h.t.Helper()
	ns, n := h.pick("shop", "bank"), h.rnd.IntN(4)
	meta := func(name string, labels object) object {
		return object{"name": fmt.Sprintf("%s-%d", name, n), "namespace": ns, "labels": labels}
	}
	switch h.rnd.IntN(14) {
	case 0, 1:
		h.s.set(object{"kind": "Service", "metadata": meta("svc", nil), "spec": object{"clusterIP": fmt.Sprint("10.0.0.", n+1), "ports": []object{{"name": "http", "port": 80 + h.rnd.IntN(3)}}}})
	case 2, 3:
		h.s.set(object{"kind": "EndpointSlice", "metadata": meta("slice", object{"kubernetes.io/service-name": fmt.Sprint("svc-", n)}), "addressType": "IPv4",
			"ports": []object{{"name": "http", "port": 8080}}, "endpoints": []object{{"addresses": []string{fmt.Sprint("10.1.0.", h.rnd.IntN(4)+1)},
				"targetRef": object{"kind": "Pod", "namespace": ns, "name": fmt.Sprint("pod-", h.rnd.IntN(4))}}}})
	case 4, 5:
		h.s.set(object{"kind": "Pod", "metadata": meta("pod", object{"app": h.pick("a", "b")}), "spec": object{"nodeName": h.pick("n1", "n2")},
			"status": object{"podIP": fmt.Sprint("10.1.0.", n+1), "phase": "Running"}})
	case 6:
		h.s.set(object{"kind": "Node", "metadata": object{"name": h.pick("n1", "n2"), "labels": object{"topology.kubernetes.io/zone": h.pick("z1", "z2")}}})
	case 7:
		h.s.set(object{"kind": "Namespace", "metadata": object{"name": ns, "labels": object{"mesh": h.pick("on", "on", "off")}}})
	case 8:
		h.s.set(object{"kind": "WorkloadEntry", "metadata": meta("vm", nil), "spec": object{"address": fmt.Sprint("10.9.0.", h.rnd.IntN(3)+1)}})
	case 9, 10:
		h.remove()
	case 11:
		h.s.drop()
	case 12:
		h.s.expire()
	case 13:
		h.trouble()
	}
}

func (h *history) remove() {
	h.s.mu.Lock()
	var all [][2]string
	for res, objects := range h.s.objects {
		for k := range objects {
			if res != "customresourcedefinitions.apiextensions.k8s.io" {
				all = append(all, [2]string{res, k})
			}
		}
	}
	h.s.mu.Unlock()
	slices.SortFunc(all, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	if len(all) > 0 {
		o := all[h.rnd.IntN(len(all))]
		h.s.remove(o[0], o[1])
	}
}

// trouble makes contact fail in one way, or heals it.
func (h *history) trouble() {
	what := h.pick("", "list pods", "watch services", "workloadentries.networking.istio.io", "get apis")
	switch h.rnd.IntN(6) {
	case 0:
		h.s.fail(what, http.StatusInternalServerError)
	case 1:
		h.s.deny(what)
	case 2:
		h.s.withdraw(istio, entries)
	case 3:
		h.s.line.hang(true)
	default:
		h.heal()
	}
}

func (h *history) heal() {
	h.s.line.hang(false)
	h.s.change(func() {
		clear(h.s.failing)
		clear(h.s.denied)
		h.s.served[istio] = []string{entries}
	})
}

var revisions = regexp.MustCompile(`"(Revision|Time|Created)":"[^"]*"`)

// texts are rows without what an instance may have seen at another time.
func texts(rows map[model.RowKey]model.Object) map[model.RowKey]string {
	out := make(map[model.RowKey]string, len(rows))
	for k, o := range rows {
		js, err := json.Marshal(o)
		if err != nil {
			panic(err)
		}
		out[k] = string(revisions.ReplaceAll(js, nil))
	}
	return out
}
