package kube_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

const (
	istio   = "networking.istio.io/v1"
	entries = "workloadentries"
	entry   = `
kind: WorkloadEntry
metadata: {name: vm, namespace: shop}
spec: {address: 10.9.0.1}`
	entryRow = "workload WorkloadEntry/shop/vm"
)

// lists counts the lists of a resource.
func (s *apiServer) lists(resource string) int {
	return s.count(func(r request) bool { return r.verb == "list" && r.resource == resource })
}

func TestKindThatIsServedLater(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	w := watch(t, kube.New(options(s)))
	w.awaitState(model.StateLive)
	w.awaitRows()
	w.awaitNoProblem()
	s.define(istio, entries)
	s.apply(entry)
	w.awaitRows(entryRow)
	if n := len(w.status.Problems); n > 0 {
		t.Errorf("problems: %v", w.status.Problems)
	}
}

// Without the right to see definitions it is looked for from time to time, and nothing is said of that.
func TestKindThatIsServedLaterWithoutRightToDefinitions(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.deny("list customresourcedefinitions.apiextensions.k8s.io")
	w := watch(t, kube.New(options(s)))
	w.awaitState(model.StateLive)
	w.awaitNoProblem()
	s.serve(istio, entries)
	s.apply(entry)
	w.awaitRows(entryRow)
	s.withdraw(istio, entries)
	w.awaitRows()
	w.awaitNoProblem()
}

func TestKindThatGoes(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.define(istio, entries)
	s.apply(entry)
	reg := kube.New(options(s))
	w := watch(t, reg)
	w.awaitRows(entryRow)
	if got := reg.Serves(); !slices.Equal(got, []string{"ConfigMap/isthmus", "ConfigMap/istio", kube.KindWorkloadEntry}) {
		t.Errorf("serves %v", got)
	}
	s.undefine(istio, entries)
	w.awaitRows()
	s.define(istio, entries)
	s.apply(entry)
	w.awaitRows(entryRow)
}

// A server that starts may not serve a kind yet whose definition exists.
func TestKindThatIsNotServedForAMoment(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.define(istio, entries)
	s.apply(entry)
	w := watch(t, kube.New(options(s)))
	w.awaitRows(entryRow)
	s.withdraw(istio, entries)
	looks := func() int { return s.count(func(r request) bool { return r.verb == "get" && r.resource == "apis" }) }
	before := looks()
	w.until("five looks", func() bool { return looks() >= before+5 })
	w.awaitRows(entryRow)
	s.serve(istio, entries)
	s.apply(strings.ReplaceAll(entry, "vm", "vm2"))
	w.awaitRows(entryRow, entryRow+"2")
	if w.deleted() {
		t.Error("rows were deleted meanwhile")
	}
}

// Of the versions of one kind only one is read, the newest; the change to another changes no row.
func TestNewestServedVersionIsRead(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.define("networking.istio.io/v1alpha3", entries)
	s.serve("networking.istio.io/v1beta1", entries)
	s.apply(entry)
	w := watch(t, kube.New(options(s)))
	w.awaitRows(entryRow)
	if n := s.lists(entries + ".networking.istio.io"); n != 1 {
		t.Errorf("%d lists, want 1", n)
	}
	s.serve(istio, entries)
	s.withdraw("networking.istio.io/v1alpha3", entries)
	s.withdraw("networking.istio.io/v1beta1", entries)
	s.apply(strings.ReplaceAll(entry, "vm", "vm2"))
	w.awaitRows(entryRow, entryRow+"2")
	if w.deleted() {
		t.Error("rows were deleted meanwhile")
	}
}

// An optional kind that may not be read is one problem that says what to add, and nothing else suffers.
func TestIncident14MissingRightOfAnOptionalKind(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.define(istio, entries)
	s.apply(web)
	s.apply(entry)
	s.deny("list workloadentries.networking.istio.io")
	logs := &logBook{}
	o := options(s)
	o.Log = logs.logger()
	reg := kube.New(o)
	w := watch(t, reg)
	w.awaitRows(webRows...)
	w.awaitState(model.StateLive)
	w.awaitProblem("workloadentries.networking.istio.io", "list workloadentries.networking.istio.io is missing (403)", "allow list and watch of it", "deploy/rbac-remote.yaml")
	if strings.Contains(fmt.Sprint(w.status.Problems), "what was read before") {
		t.Errorf("nothing was read before: %v", w.status.Problems)
	}
	if slices.Contains(reg.Serves(), kube.KindWorkloadEntry) {
		t.Errorf("serves %v", reg.Serves())
	}
	before := s.lists("workloadentries.networking.istio.io")
	w.until("five lists", func() bool { return s.lists("workloadentries.networking.istio.io") >= before+5 })
	if n := logs.count("workloadentries"); n != 1 {
		t.Errorf("%d log lines, want 1:\n%s", n, logs)
	}
	s.allow("list workloadentries.networking.istio.io")
	w.awaitRows(append(webRows, entryRow)...)
	w.awaitNoProblem()
}

// A server that has just started refuses what it will allow in a moment: the first truth lacks nothing.
func TestIncident14MomentsOfRefusal(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"list workloadentries.networking.istio.io", "get apis", "get apis/" + istio, "list configmaps"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newAPIServer(t)
			s.define(istio, entries)
			s.apply(web)
			s.apply(entry)
			s.denyTimes(what, 3)
			w := watch(t, kube.New(options(s)))
			w.awaitRows(append(webRows, entryRow)...)
			w.awaitState(model.StateLive)
			w.awaitNoProblem()
			if len(w.puts) > 0 {
				t.Errorf("the first truth lacks %v", w.puts)
			}
		})
	}
}

// Kinds of a group that can't be looked at are a problem, and nothing waits for them.
func TestIncident14OneGroupCannotBeLookedAt(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	const gateways = "gateway.networking.k8s.io/v1"
	s.define(istio, entries)
	s.serve(gateways, "gateways")
	s.apply(web)
	s.apply(entry)
	s.fail("get apis/"+gateways, http.StatusServiceUnavailable)
	reg := kube.New(options(s))
	w := watch(t, reg)
	w.awaitRows(append(webRows, entryRow)...)
	w.awaitState(model.StateLive)
	w.awaitProblem("gateways.gateway.networking.k8s.io", "tell of gateways.gateway.networking.k8s.io (503)")
	if slices.Contains(reg.Serves(), kube.KindKubernetesGateway) {
		t.Errorf("serves %v", reg.Serves())
	}
	// A kind that is read goes on while its group can't be looked at.
	s.fail("get apis/"+istio, http.StatusServiceUnavailable)
	s.apply(strings.ReplaceAll(entry, "vm", "vm2"))
	w.awaitRows(append(webRows, entryRow, entryRow+"2")...)
	s.fail("get apis/"+gateways, 0)
	w.awaitNoProblem()
	w.until("gateways", func() bool { return slices.Contains(reg.Serves(), kube.KindKubernetesGateway) })
	s.fail("get apis/"+istio, 0)
	s.undefine(istio, entries)
	w.awaitRows(webRows...)
	w.awaitNoProblem()
}

// A group that stops to be served while it could not be looked at is no problem any more.
func TestGroupThatGoesInDoubt(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.serve(istio, entries)
	s.fail("get apis/"+istio, http.StatusServiceUnavailable)
	w := watch(t, kube.New(options(s)))
	w.awaitProblem("workloadentries.networking.istio.io", "(503)")
	w.awaitRows()
	s.withdraw(istio, entries)
	w.awaitNoProblem()
}

// A right that is taken keeps what was read, and says so. What replaces the instance need not have it.
func TestRightOfAnOptionalKindIsTaken(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.define(istio, entries)
	s.apply(entry)
	reg := kube.New(options(s))
	w := watch(t, reg)
	w.awaitRows(entryRow)
	serves := func() bool { return slices.Contains(reg.Serves(), kube.KindWorkloadEntry) }
	if !serves() {
		t.Errorf("serves %v", reg.Serves())
	}
	s.deny("workloadentries.networking.istio.io")
	w.awaitProblem("workloadentries.networking.istio.io", "watch", "what was read before stays")
	w.await("it is told first", func() bool { return len(w.status.Problems) > 0 && w.status.Problems[0].Broad })
	w.awaitState(model.StateLive)
	w.awaitRows(entryRow)
	w.until("the kind to be done without", func() bool { return !serves() })
	s.remove("workloadentries.networking.istio.io", "shop/vm")
	s.allow("workloadentries.networking.istio.io")
	w.awaitRows()
	w.awaitNoProblem()
	w.until("the kind to be read", serves)
}

// What an instance replaces could read, it must read before it takes over.
func TestNeedsMustBeReadable(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.define(istio, entries)
	s.apply(entry)
	s.deny("workloadentries.networking.istio.io")
	o := options(s)
	o.Needs = []string{kube.KindWorkloadEntry, kube.KindKubernetesGateway, "ConfigMap/istio"} // a kind that is not served is no need
	logs := &logBook{}
	o.Log = logs.logger()
	reg := kube.New(o)
	w := watch(t, reg)
	w.awaitErr("workloadentries.networking.istio.io is missing (403)", "what this replaces could read it")
	w.mu.Lock()
	replaces, serves := w.replaces, reg.Serves()
	w.mu.Unlock()
	if logs.count("the old ones serve") == 0 || logs.count("can't be read yet") > 0 {
		t.Errorf("a replacement:\n%s", logs)
	}
	if replaces > 0 || serves != nil {
		t.Errorf("%d replaces, serves %v", replaces, serves)
	}
	s.allow("workloadentries.networking.istio.io")
	w.awaitRows(entryRow)
	w.awaitState(model.StateLive)
	if reg.Serves() == nil {
		t.Error("serves nil")
	}
}

// A kind for which the server fails again and again is done without; one for which it fails twice is not.
func TestBrokenOptionalKind(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.define(istio, entries)
	s.apply(web)
	s.apply(entry)
	s.fail("list workloadentries.networking.istio.io", http.StatusInternalServerError)
	w := watch(t, kube.New(options(s)))
	w.awaitRows(webRows...)
	w.awaitProblem("workloadentries.networking.istio.io", "fails to list", "(500)")
	w.awaitState(model.StateLive)
	if n := s.lists("workloadentries.networking.istio.io"); n < 5 {
		t.Errorf("given up after %d lists", n)
	}
	s.fail("list workloadentries.networking.istio.io", 0)
	w.awaitRows(append(webRows, entryRow)...)
	w.awaitNoProblem()
}

func TestDiscoveryFails(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.define(istio, entries)
	s.apply(entry)
	s.fail("get apis", http.StatusServiceUnavailable)
	w := watch(t, kube.New(options(s)))
	w.until("five looks", func() bool { return s.count(func(r request) bool { return r.resource == "apis" }) >= 5 })
	if w.replaces > 0 {
		t.Error("it has synced without knowing what is served")
	}
	s.fail("get apis", 0)
	w.awaitRows(entryRow)
	w.awaitNoProblem()
}

func TestDiscoveryIsDenied(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.apply(web)
	s.define(istio, entries)
	s.deny("get apis")
	w := watch(t, kube.New(options(s)))
	w.awaitRows(webRows...)
	w.awaitProblem("kinds", "system:discovery")
	s.allow("get apis")
	w.awaitNoProblem()
}

// An object that can't be used leaves the last good one in force, and says what is wrong with it.
func TestUnusableObjectKeepsLastGood(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.define(istio, entries)
	s.apply(entry)
	w := watch(t, kube.New(options(s)))
	w.awaitRows(entryRow)
	s.apply(strings.Replace(entry, "10.9.0.1", "[]", 1))
	w.awaitProblem("WorkloadEntry/shop/vm", "last good content stays")
	w.awaitRows(entryRow)
	s.apply(strings.Replace(entry, "address", "adress", 1))
	w.awaitProblem("WorkloadEntry/shop/vm", `unknown field "adress"`)
	s.apply(entry)
	w.awaitNoProblem()
	s.apply(strings.Replace(strings.Replace(entry, "10.9.0.1", "[]", 1), "vm", "vm2", 1)) // never was good
	w.awaitProblem("WorkloadEntry/shop/vm2", "address: it is a text, not a list")
	s.remove("workloadentries.networking.istio.io", "shop/vm2")
	w.awaitNoProblem()
}

// Which kinds are read depends on what they are for.
func TestKindsByPurpose(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	all := map[string]string{
		entries: istio, "serviceentries": istio, "telemetries": "telemetry.istio.io/v1", "gateways": "gateway.networking.k8s.io/v1",
		"serviceexports": "multicluster.x-k8s.io/v1alpha1",
	}
	for resource, gv := range all {
		s.serve(gv, resource)
	}
	for name, c := range map[string]struct {
		change func(*kube.Options)
		want   []string
	}{
		"plain":         {func(*kube.Options) {}, []string{"KubernetesGateway", "WorkloadEntry"}},
		"configuration": {func(o *kube.Options) { o.Configuration = true }, []string{"KubernetesGateway", "ServiceEntry", "Telemetry", "WorkloadEntry"}},
		"MCS":           {func(o *kube.Options) { o.MCS = true }, []string{"KubernetesGateway", "ServiceExport", "WorkloadEntry"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(s)
			c.change(&o)
			reg := kube.New(o)
			w := watch(t, reg)
			w.awaitRows()
			got := slices.DeleteFunc(reg.Serves(), func(k string) bool { return strings.HasPrefix(k, "ConfigMap/") })
			if !slices.Equal(got, c.want) {
				t.Errorf("serves %v, want %v", got, c.want)
			}
			w.stop()
		})
	}
}

// A cluster is told from others by the UID of its namespace kube-system, whatever namespaces are read.
func TestUID(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.apply(web)
	o := options(s)
	o.Selectors = []*meshconfig.LabelSelector{{MatchLabels: map[string]string{"mesh": "yes"}}}
	reg := kube.New(o)
	if got := reg.UID(); got != "" {
		t.Errorf("before it runs: %q", got)
	}
	w := watch(t, reg)
	w.awaitState(model.StateLive)
	s.set(object{"kind": "Namespace", "metadata": object{"name": "shop", "uid": "u0"}})
	s.set(object{"kind": "Namespace", "metadata": object{"name": "kube-system", "uid": "u1"}})
	w.until("the UID", func() bool { return reg.UID() == "u1" })
}
