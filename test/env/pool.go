package env

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// limit is how many clusters of a pool are in use at once, so that tests in
// parallel do not drown the machine. One test may take more.
const limit = 6

// starting is how many clusters of one test are started at once: each wants two
// processors, and the last of many would not be ready in time.
const starting = 4

// Pool starts clusters when tests need them and hands them on. The zero value
// is ready for use.
type Pool struct {
	start   sync.Once
	machine *machine // read-only after start, as is err
	err     error

	mu      sync.Mutex
	all     []*Cluster // guarded by mu, as are all below
	idle    []*Cluster
	inUse   int
	changed chan struct{} // closed and renewed when clusters come back
}

// Main runs the tests of a package, stops all servers and looks for leaked
// goroutines. It gives the exit code.
func (p *Pool) Main(m *testing.M) int {
	code := m.Run()
	p.stop(code != 0)
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// Take gives a test n empty clusters with all custom resource definitions.
func (p *Pool) Take(t testing.TB, n int) []*Cluster {
	t.Helper()
	return p.take(t, n, true)
}

// Bare gives a test n empty clusters that serve Kubernetes' own kinds alone.
func (p *Pool) Bare(t testing.TB, n int) []*Cluster {
	t.Helper()
	return p.take(t, n, false)
}

func (p *Pool) take(t testing.TB, n int, custom bool) []*Cluster {
	t.Helper()
	p.start.Do(func() { p.machine, p.err = newMachine(context.Background()) })
	if p.err != nil {
		t.Fatalf("start servers: %v", p.err)
	}
	taken, fresh, err := p.reserve(t.Context(), n, custom)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, c := range taken {
				t.Logf("log of the API server %s:\n%s", c.URL, c.Log())
			}
		}
		p.giveBack(taken)
	})
	errs := make([]error, n)
	turns := make(chan struct{}, starting)
	var ready sync.WaitGroup
	for i, c := range taken {
		turns <- struct{}{}
		ready.Go(func() {
			errs[i] = c.prepare(t.Context(), slices.Contains(fresh, c), custom)
			<-turns
		})
	}
	ready.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("start clusters: %v", err)
	}
	return taken
}

// reserve waits until n clusters may be used. Idle ones come first, best those
// with the wanted definitions; fresh lists the ones that have to be started.
func (p *Pool) reserve(ctx context.Context, n int, custom bool) (taken, fresh []*Cluster, err error) {
	for {
		p.mu.Lock()
		if p.inUse == 0 || p.inUse+n <= limit {
			defer p.mu.Unlock()
			taken, fresh = p.pick(n, custom)
			return taken, fresh, nil
		}
		if p.changed == nil {
			p.changed = make(chan struct{})
		}
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

// pick is called under the lock.
func (p *Pool) pick(n int, custom bool) (taken, fresh []*Cluster) {
	slices.SortStableFunc(p.idle, func(a, b *Cluster) int {
		switch {
		case a.custom == b.custom:
			return 0
		case a.custom == custom:
			return -1
		}
		return 1
	})
	k := min(n, len(p.idle))
	taken = append(taken, p.idle[:k]...)
	p.idle = slices.Delete(p.idle, 0, k)
	for len(taken) < n {
		c := newCluster(p.machine, len(p.all))
		p.all = append(p.all, c)
		taken, fresh = append(taken, c), append(fresh, c)
	}
	p.inUse += n
	return taken, fresh
}

func (p *Pool) giveBack(taken []*Cluster) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inUse -= len(taken)
	p.idle = append(p.idle, taken...)
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// Close stops all servers; Main does it by itself.
func (p *Pool) Close() { p.stop(false) }

func (p *Pool) stop(keep bool) {
	p.mu.Lock()
	all := p.all
	p.mu.Unlock()
	for _, c := range all {
		c.stop()
	}
	if p.machine != nil {
		p.machine.close(keep)
	}
}
