package workloadgroup_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/workloadgroup"
)

// shared is what replicas share: entries, and who lives.
type shared struct {
	mu      sync.Mutex
	entries map[workloadgroup.Key]*workloadgroup.Entry
	renewed map[string]time.Time
	writes  []string
	fail    func(op string) error
	version int
}

func newShared() *shared {
	return &shared{entries: map[workloadgroup.Key]*workloadgroup.Entry{}, renewed: map[string]time.Time{}, fail: func(string) error { return nil }}
}

func (s *shared) Get(_ context.Context, k workloadgroup.Key) (*workloadgroup.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entries[k], s.fail("get")
}

func (s *shared) Put(_ context.Context, e *workloadgroup.Entry) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.fail("put"); err != nil {
		return "", err
	}
	if have := s.entries[e.Key]; have == nil && e.Version != "" || have != nil && have.Version != e.Version {
		return "", workloadgroup.ErrConflict
	}
	s.version++
	next := *e
	next.Version = strconv.Itoa(s.version)
	s.entries[e.Key] = &next
	s.writes = append(s.writes, "put "+e.String())
	return next.Version, nil
}

func (s *shared) Delete(_ context.Context, e *workloadgroup.Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.fail("delete"); err != nil {
		return err
	}
	if have := s.entries[e.Key]; have == nil || have.Version != e.Version {
		return workloadgroup.ErrConflict
	}
	delete(s.entries, e.Key)
	s.writes = append(s.writes, "delete "+e.String())
	return nil
}

func (s *shared) List(context.Context) (out []*workloadgroup.Entry, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		if e.Annotations[workloadgroup.AnnotationGroup] != "" {
			out = append(out, e)
		}
	}
	return out, s.fail("list")
}

func (s *shared) Alive(_ context.Context, controller string) (map[string]bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renewed[controller] = time.Now()
	out := map[string]bool{}
	for c, at := range s.renewed {
		out[c] = time.Since(at) < time.Minute
	}
	return out, s.fail("alive")
}

func (s *shared) names() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.entries {
		out = append(out, k.String())
	}
	return out
}

func (s *shared) written() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.writes)
}

func (s *shared) entry(t *testing.T, name string) *workloadgroup.Entry {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[workloadgroup.Key{Namespace: "vms", Name: name}]
	if e == nil {
		t.Fatalf("there is no entry %s", name)
	}
	return e
}

var legacy = &networking.WorkloadGroup{
	Metadata: &networking.WorkloadGroup_ObjectMeta{Labels: map[string]string{"team": "old"}, Annotations: map[string]string{"note": "x"}},
	Template: &networking.WorkloadEntry{Ports: map[string]uint32{"http": 8080}, Labels: map[string]string{"app": "legacy", "version": "v1"}, ServiceAccount: "legacy"},
	Probe:    &networking.ReadinessProbe{},
}

// replica is a keeper that runs.
type replica struct {
	*workloadgroup.Keeper
	stop func()
}

// run starts a replica in a bubble of testing/synctest.
func run(t *testing.T, s workloadgroup.Entries, name string, o workloadgroup.Options) *replica {
	t.Helper()
	o.Entries, o.Controller = s, name
	if o.Group == nil {
		o.Group = func(namespace, name string) *networking.WorkloadGroup {
			if namespace == "vms" && name == "legacy" {
				return legacy
			}
			return nil
		}
	}
	k := workloadgroup.New(o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	return &replica{k, sync.OnceFunc(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
	})}
}

func vm(addr string) *workloadgroup.Proxy {
	return &workloadgroup.Proxy{
		ID: "sidecar~" + addr, Group: "legacy", Namespace: "vms", Network: "dc1", Labels: model.Labels{"version": "v2"},
		Locality: model.Locality{Region: "r", Zone: "z"}, Addresses: []netip.Addr{netip.MustParseAddr(addr)},
	}
}

func after(d time.Duration) {
	time.Sleep(d) // of the bubble's clock
	synctest.Wait()
}

// TestComesAndGoes is the life of an entry: it is there at once, outlives its proxy for the grace, and then goes.
func TestComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		r := run(t, s, "hub-1", workloadgroup.Options{})
		defer r.stop()
		p := vm("10.3.0.1")
		start := time.Now().UTC()
		r.Connected(p)
		synctest.Wait()
		got := *s.entry(t, "legacy-10.3.0.1-dc1")
		got.Version = ""
		want := workloadgroup.Entry{
			Key: workloadgroup.Key{Namespace: "vms", Name: "legacy-10.3.0.1-dc1"}, Labels: map[string]string{"team": "old"},
			Annotations: map[string]string{
				"note": "x", workloadgroup.AnnotationGroup: "legacy", workloadgroup.AnnotationController: "hub-1",
				workloadgroup.AnnotationConnected: start.Format(time.RFC3339Nano), "proxy.istio.io/health-checks-enabled": "true",
			},
			Spec: &networking.WorkloadEntry{
				Address: "10.3.0.1", Ports: map[string]uint32{"http": 8080}, Labels: map[string]string{"app": "legacy", "version": "v2"},
				Network: "dc1", Locality: "r/z", ServiceAccount: "legacy",
			},
		}
		if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
			t.Errorf("the entry differs (-want +got):\n%s", d)
		}

		r.Health(p, true, "")
		synctest.Wait()
		if h := s.entry(t, "legacy-10.3.0.1-dc1").Health; h == nil || !h.Healthy {
			t.Errorf("health %v, want healthy", h)
		}
		r.Health(p, false, "503 of /ready")
		synctest.Wait()
		if h := s.entry(t, "legacy-10.3.0.1-dc1").Health; h == nil || h.Healthy || h.Message != "503 of /ready" {
			t.Errorf("health %v, want what the proxy said", h)
		}

		r.Disconnected(p)
		synctest.Wait()
		e := s.entry(t, "legacy-10.3.0.1-dc1")
		if e.Annotations[workloadgroup.AnnotationDisconnected] == "" || e.Health == nil || e.Health.Healthy {
			t.Errorf("nothing says that the proxy has gone: %v %v", e.Annotations, e.Health)
		}
		r.Health(p, true, "") // a late word of the stream that has ended
		after(9 * time.Second)
		s.entry(t, "legacy-10.3.0.1-dc1")
		after(2 * time.Second)
		if left := s.names(); len(left) > 0 {
			t.Errorf("entries %v are left", left)
		}
	})
}

// TestComesBack covers proxies that come again within the grace, and before their old stream ends.
func TestComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		r := run(t, s, "hub-1", workloadgroup.Options{})
		defer r.stop()
		old, next, third := vm("10.3.0.1"), vm("10.3.0.1"), vm("10.3.0.1")
		r.Connected(old)
		synctest.Wait()
		r.Connected(next)
		r.Disconnected(old)
		after(time.Minute)
		if e := s.entry(t, "legacy-10.3.0.1-dc1"); e.Annotations[workloadgroup.AnnotationDisconnected] != "" {
			t.Error("the end of an old stream counts for a proxy that is connected")
		}
		r.Disconnected(next)
		after(8 * time.Second)
		r.Connected(third)
		after(time.Minute)
		if e := s.entry(t, "legacy-10.3.0.1-dc1"); e.Annotations[workloadgroup.AnnotationDisconnected] != "" {
			t.Error("it is noted as gone, and is there")
		}
	})
}

// TestMovesToAnotherReplica: whoever the proxy came to last sees to the entry.
func TestMovesToAnotherReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		a, b := run(t, s, "hub-a", workloadgroup.Options{}), run(t, s, "hub-b", workloadgroup.Options{})
		defer a.stop()
		defer b.stop()
		old, next := vm("10.3.0.1"), vm("10.3.0.1")
		a.Connected(old)
		synctest.Wait()
		b.Connected(next)
		synctest.Wait()
		a.Disconnected(old)
		after(time.Minute)
		if c := s.entry(t, "legacy-10.3.0.1-dc1").Annotations[workloadgroup.AnnotationController]; c != "hub-b" {
			t.Errorf("the controller is %s, want hub-b", c)
		}
		b.Disconnected(next)
		after(time.Minute)
		if left := s.names(); len(left) > 0 {
			t.Errorf("entries %v are left", left)
		}
	})
}

// TestReplicaDies: what it left behind goes, unless its proxy comes to another.
func TestReplicaDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		a, b := run(t, s, "hub-a", workloadgroup.Options{}), run(t, s, "hub-b", workloadgroup.Options{})
		defer b.stop()
		a.Connected(vm("10.3.0.1"))
		a.Connected(vm("10.3.0.2"))
		after(time.Second)
		a.stop()
		b.Connected(vm("10.3.0.2"))
		after(50 * time.Second)
		if n := len(s.names()); n != 2 {
			t.Errorf("%d entries while it is not known that the replica is dead, want 2", n)
		}
		after(2 * time.Minute)
		if left := s.names(); len(left) != 1 || left[0] != "vms/legacy-10.3.0.2-dc1" {
			t.Errorf("entries %v are left, want the one whose proxy is connected", left)
		}
	})
}

// TestRestartUnderTheSameName: entries of an earlier life go when their proxies do not come back.
func TestRestartUnderTheSameName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		r := run(t, s, "hub", workloadgroup.Options{})
		r.Connected(vm("10.3.0.1"))
		r.Connected(vm("10.3.0.2"))
		after(time.Second)
		r.stop()
		r = run(t, s, "hub", workloadgroup.Options{})
		defer r.stop()
		r.Connected(vm("10.3.0.2"))
		after(2 * time.Minute)
		if left := s.names(); len(left) != 1 || left[0] != "vms/legacy-10.3.0.2-dc1" {
			t.Errorf("entries %v are left, want the one whose proxy came back", left)
		}
	})
}

// TestGroupComesLater: until there is the group, there is no entry; a changed group changes its entries.
func TestGroupComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		var group *networking.WorkloadGroup
		var mu sync.Mutex
		r := run(t, s, "hub", workloadgroup.Options{Group: func(string, string) *networking.WorkloadGroup {
			mu.Lock()
			defer mu.Unlock()
			return group
		}})
		defer r.stop()
		set := func(g *networking.WorkloadGroup) {
			mu.Lock()
			group = g
			mu.Unlock()
			r.GroupsChanged()
			synctest.Wait()
		}
		r.Connected(vm("10.3.0.1"))
		after(5 * time.Second)
		if n := s.names(); len(n) > 0 {
			t.Fatalf("entries %v of a group that is not there", n)
		}
		set(legacy)
		if e := s.entry(t, "legacy-10.3.0.1-dc1"); e.Spec.Ports["http"] != 8080 {
			t.Errorf("ports %v", e.Spec.Ports)
		}
		set(&networking.WorkloadGroup{Template: &networking.WorkloadEntry{Ports: map[string]uint32{"http": 9090}}})
		if e := s.entry(t, "legacy-10.3.0.1-dc1"); e.Spec.Ports["http"] != 9090 {
			t.Errorf("ports %v after the group has changed", e.Spec.Ports)
		}
		before := s.written()
		r.GroupsChanged()
		after(time.Second)
		if n := s.written() - before; n > 0 {
			t.Errorf("%d writes though nothing has changed", n)
		}
	})
}

// TestEntriesOfOthers: an entry that is not of a group is nobody's to take or remove; a proxy that names one reports its
// health.
func TestEntriesOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		own := workloadgroup.Key{Namespace: "vms", Name: "legacy-10.3.0.1-dc1"}
		s.entries[own] = &workloadgroup.Entry{Key: own, Spec: &networking.WorkloadEntry{Address: "10.9.9.9"}, Version: "7"}
		r := run(t, s, "hub", workloadgroup.Options{})
		defer r.stop()
		p := vm("10.3.0.1")
		r.Connected(p)
		after(5 * time.Second)
		r.Disconnected(p)
		after(time.Minute)
		if e := s.entry(t, own.Name); e.Version != "7" {
			t.Errorf("somebody's entry was written: %v", e)
		}
		named := &workloadgroup.Proxy{ID: "p", Entry: own.Name, Namespace: "vms"}
		r.Connected(named)
		r.Health(named, true, "")
		synctest.Wait()
		if e := s.entry(t, own.Name); e.Health == nil || !e.Health.Healthy || e.Spec.Address != "10.9.9.9" {
			t.Errorf("the entry is %v", e)
		}
		r.Disconnected(named)
		after(time.Minute)
		if e := s.entry(t, own.Name); e.Annotations[workloadgroup.AnnotationDisconnected] == "" {
			t.Error("nothing says that the proxy of the entry has gone")
		}
	})
}

// TestFailures: what can't be written is tried again, later and later; a conflict soon.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		var tries atomic.Int32
		s.fail = func(op string) error {
			if op != "put" {
				return nil
			}
			switch n := tries.Add(1); {
			case n == 1:
				return workloadgroup.ErrConflict
			case n <= 4:
				return errors.New("the API server is away")
			}
			return nil
		}
		r := run(t, s, "hub", workloadgroup.Options{})
		defer r.stop()
		r.Connected(vm("10.3.0.1"))
		after(5 * time.Second)
		if n := tries.Load(); n != 4 {
			t.Errorf("%d tries in the first 5 s, want 4", n)
		}
		after(10 * time.Second)
		s.entry(t, "legacy-10.3.0.1-dc1")
	})
}

// TestMany: entries are written 50 a second, and no more than the limit are known at once.
func TestMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		r := run(t, s, "hub", workloadgroup.Options{Limit: 100})
		defer r.stop()
		for i := range 200 {
			r.Connected(vm(fmt.Sprintf("10.3.1.%d", i)))
		}
		synctest.Wait()
		if n := len(s.names()); n > 51 {
			t.Errorf("%d entries at once, want 50 or so", n)
		}
		after(time.Minute)
		if n := len(s.names()); n != 100 {
			t.Errorf("%d entries, want 100", n)
		}
	})
}

// TestNames: names of entries are names to Kubernetes, whatever proxies say.
func TestNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		r := run(t, s, "hub", workloadgroup.Options{Group: func(string, string) *networking.WorkloadGroup { return legacy }})
		defer r.stop()
		long := vm("10.3.0.9")
		long.Group = fmt.Sprintf("%0300d", 1)
		odd := vm("fd00::1")
		odd.Group, odd.Network = "A/b", "n_1"
		r.Connected(long)
		r.Connected(odd)
		synctest.Wait()
		s.entry(t, "a-b-fd00--1-n-1")
		for _, n := range s.names() {
			if len(n) > len("vms/")+253 {
				t.Errorf("%d bytes are too many for a name", len(n))
			}
		}
	})
}

// TestManyAndAnotherReplica: a replica with much to write is not taken for dead by another.
func TestManyAndAnotherReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		a, b := run(t, s, "hub-a", workloadgroup.Options{}), run(t, s, "hub-b", workloadgroup.Options{})
		defer a.stop()
		defer b.stop()
		for i := range 3000 {
			a.Connected(vm(fmt.Sprintf("10.3.%d.%d", i/250, i%250)))
		}
		after(10 * time.Minute)
		if n := len(s.names()); n != 3000 {
			t.Errorf("%d entries of connected proxies, want 3000", n)
		}
	})
}

// TestTakenForDead: a replica that can't say that it lives loses entries of connected proxies to another, and has them again
// once it can.
func TestTakenForDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		var away atomic.Bool
		cut := &cutOff{shared: s, away: &away}
		a, b := run(t, cut, "hub-a", workloadgroup.Options{}), run(t, s, "hub-b", workloadgroup.Options{})
		defer a.stop()
		defer b.stop()
		a.Connected(vm("10.3.0.1"))
		after(time.Second)
		away.Store(true)
		after(4 * time.Minute)
		if n := len(s.names()); n != 0 {
			t.Errorf("%d entries of a replica that is taken for dead", n)
		}
		away.Store(false)
		after(2 * time.Minute)
		if e := s.entry(t, "legacy-10.3.0.1-dc1"); e.Annotations[workloadgroup.AnnotationDisconnected] != "" {
			t.Error("the entry of a connected proxy is noted as gone")
		}
	})
}

// cutOff is a replica's own way to what it shares with others.
type cutOff struct {
	*shared
	away *atomic.Bool
}

func (c *cutOff) Alive(ctx context.Context, controller string) (map[string]bool, error) {
	if c.away.Load() {
		return nil, errors.New("no way")
	}
	return c.shared.Alive(ctx, controller)
}

// TestHalfOpenStream: a replica whose stream does not know yet that its proxy has gone elsewhere takes nothing back.
func TestHalfOpenStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		a, b := run(t, s, "hub-a", workloadgroup.Options{}), run(t, s, "hub-b", workloadgroup.Options{})
		defer a.stop()
		defer b.stop()
		old, next := vm("10.3.0.1"), vm("10.3.0.1")
		a.Connected(old)
		after(time.Second)
		b.Connected(next)
		after(time.Second)
		a.GroupsChanged()
		after(time.Minute)
		a.Disconnected(old)
		after(5 * time.Minute)
		if e := s.entry(t, "legacy-10.3.0.1-dc1"); e.Annotations[workloadgroup.AnnotationController] != "hub-b" || e.Annotations[workloadgroup.AnnotationDisconnected] != "" {
			t.Errorf("annotations %v, want those of hub-b", e.Annotations)
		}
	})
}

// TestRemovalsGoFirst: after a mass of disconnections entries that have outlived their proxies are removed, before any that are new
// or mended are written; each costs one write.
func TestRemovalsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		r := run(t, s, "hub", workloadgroup.Options{})
		defer r.stop()
		const n = 500
		var all []*workloadgroup.Proxy
		for i := range n {
			all = append(all, vm(fmt.Sprintf("10.3.%d.%d", i/250, i%250)))
			r.Connected(all[i])
		}
		after(time.Minute)
		before := s.written()
		for _, p := range all {
			r.Disconnected(p)
		}
		after(11 * time.Second) // past the grace; what was noted by then is some 500
		for i := range n {
			r.Connected(vm(fmt.Sprintf("10.4.%d.%d", i/250, i%250)))
		}
		after(11 * time.Second)
		s.mu.Lock()
		defer s.mu.Unlock()
		created := 0
		for i, what := range s.writes[before:] {
			switch {
			case !strings.HasPrefix(what, "delete "):
				if strings.Contains(what, "-10.4.") {
					created++
				}
			case created > 0:
				t.Fatalf("write %d, %s, came after %d new entries", i, what, created)
			}
		}
		for k := range s.entries {
			if strings.Contains(k.Name, "-10.3.") {
				t.Errorf("%s is still there", k)
			}
		}
	})
}

// TestManyVanish: 2 000 proxies that vanish at once have no entries a minute later. Each removal is one request, unless
// somebody else has written the entry meanwhile: then it is read first.
func TestManyVanish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		var reads atomic.Int32
		s.fail = func(op string) error {
			if op == "get" {
				reads.Add(1)
			}
			return nil
		}
		r := run(t, s, "hub", workloadgroup.Options{})
		defer r.stop()
		const n = 2000
		var all []*workloadgroup.Proxy
		for i := range n {
			all = append(all, vm(fmt.Sprintf("10.3.%d.%d", i/250, i%250)))
			r.Connected(all[i])
		}
		after(2 * time.Minute)
		if got := len(s.names()); got != n {
			t.Fatalf("%d entries, want %d", got, n)
		}
		const others = 7
		s.mu.Lock()
		for i := range others {
			k := workloadgroup.Key{Namespace: "vms", Name: fmt.Sprintf("legacy-10.3.7.%d-dc1", i)}
			next := *s.entries[k]
			s.version++
			next.Version = strconv.Itoa(s.version)
			s.entries[k] = &next
		}
		s.mu.Unlock()
		for _, p := range all {
			r.Disconnected(p)
		}
		after(10 * time.Second)
		before := reads.Load()
		after(50 * time.Second)
		if left := s.names(); len(left) > 0 {
			t.Errorf("%d entries are left, the first %s", len(left), left[0])
		}
		if got := reads.Load() - before; got > others {
			t.Errorf("%d entries were read to be removed, want %d at most", got, others)
		}
	})
}
