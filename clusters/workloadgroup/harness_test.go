package workloadgroup_test

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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
