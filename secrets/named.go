package secrets

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/isthmus-mesh/isthmus/kubeapi"
)

// Secret is what is known of a Secret that was asked for by its name. Data is nil if it is not there; Err then says why that is
// not even known, "" if it is.
type Secret struct {
	Data map[string][]byte
	Err  string
}

// String keeps the content out of formatted text.
func (Secret) String() string { return "secret" }

// GoString keeps it out of %#v.
func (Secret) GoString() string { return "secret" }

// Named follows Secrets that are asked for by their names. Nothing else is read.
type Named struct {
	start func(ctx context.Context, name string) // follows one until ctx ends
	wake  chan struct{}                          // cap 1: what is wanted may have changed

	mu    sync.Mutex
	want  map[string]uint64 // guarded by mu: by name, which time it is that it is wanted
	times uint64            // guarded by mu
}

// Want says which Secrets are to be followed, in place of those before. Of one that was not among these everything is told anew. It may be called
// from any goroutine, and never blocks.
func (n *Named) Want(names []string) {
	n.mu.Lock()
	before := n.want
	n.want = map[string]uint64{}
	for _, name := range names {
		time, known := before[name]
		if !known {
			n.times++
			time = n.times
		}
		n.want[name] = time
	}
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func (n *Named) wanted() map[string]uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.want
}

// following is what follows a Secret.
type following struct {
	time uint64 // for which it was wanted
	stop func()
}

// follow starts and ends what follows each Secret until ctx ends, and then waits for it all.
func (n *Named) follow(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	all := map[string]following{}
	defer func() {
		for _, f := range all {
			f.stop()
		}
	}()
	for {
		want := n.wanted()
		for name, f := range all {
			if want[name] != f.time {
				f.stop()
				delete(all, name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if _, ok := all[name]; !ok {
				all[name] = following{want[name], n.one(ctx, &running, name)}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-n.wake:
		}
	}
}

// one starts to follow a Secret. What it gives waits until that has ended.
func (n *Named) one(ctx context.Context, running *sync.WaitGroup, name string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	running.Go(func() {
		defer close(done)
		n.start(ctx, name)
	})
	return func() {
		cancel()
		<-done
	}
}

// NamedOptions configure a Named. Out is told of each change of a Secret, one after the other for each of them; it must not block.
type NamedOptions struct {
	Namespace string // of the Secrets
	Out       func(name string, s Secret)
}

// FollowNamed follows Secrets in the API server until ctx ends. A list and a watch for each of them asks for its name, so that the right to
// list and watch these Secrets alone is enough. Named is what to tell the names.
func FollowNamed(ctx context.Context, cfg *rest.Config, named *Named, o NamedOptions) error {
	followed := &followed{tell: o.Out, read: map[string]bool{}}
	var api *kubeapi.Client
	api, err := kubeapi.Connect(kubeapi.Options{Config: cfg, Role: "deploy/rbac-primary.yaml", Changed: func() { followed.lost(api.Lost()) }})
	if err != nil {
		return fmt.Errorf("follow secrets: %w", err)
	}
	named.start = func(ctx context.Context, name string) {
		followed.want(name)
		defer followed.drop(name)
		at := kubeapi.Place{Version: "v1", Resource: "secrets", Namespace: o.Namespace, Fields: "metadata.name=" + name}
		feed := api.Feed("Secret "+name, at, kubeapi.Required, func() runtime.Object { return &corev1.SecretList{} }, &one{name: name, followed: followed})
		feed.Run(ctx)
		api.Forget("Secret " + name)
	}
	api.Run(ctx, named.follow)
	return nil
}

// NewNamed gives one that follows nothing yet.
func NewNamed() *Named { return &Named{wake: make(chan struct{}, 1), want: map[string]uint64{}} }

// followed are the Secrets that are followed in an API server.
type followed struct {
	tell func(name string, s Secret)

	mu   sync.Mutex
	read map[string]bool // guarded by mu: whether each has been read
}

func (f *followed) want(name string) { f.note(name, false) }

func (f *followed) note(name string, read bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read[name] = f.read[name] || read
}

func (f *followed) drop(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.read, name)
}

// lost says of those that have not been read why.
func (f *followed) lost(why string) {
	if why == "" {
		return
	}
	f.mu.Lock()
	var unread []string
	for name, read := range f.read {
		if !read {
			unread = append(unread, name)
		}
	}
	f.mu.Unlock()
	for _, name := range unread {
		f.tell(name, Secret{Err: why})
	}
}

// one is the kubeapi.Store of one Secret.
type one struct {
	name     string
	followed *followed
}

// Set implements kubeapi.Store.
func (s *one) Set(n types.NamespacedName, o runtime.Object) {
	secret, ok := o.(*corev1.Secret)
	if !ok || n.Name != s.name {
		return
	}
	s.followed.note(s.name, true)
	data := secret.Data
	if data == nil {
		data = map[string][]byte{}
	}
	s.followed.tell(s.name, Secret{Data: data})
}

// Remove implements kubeapi.Store.
func (s *one) Remove(n types.NamespacedName) {
	if n.Name == s.name {
		s.followed.tell(s.name, Secret{})
	}
}

// Complete implements kubeapi.Store.
func (s *one) Complete(seen map[types.NamespacedName]struct{}) {
	s.followed.note(s.name, true)
	for n := range seen {
		if n.Name == s.name {
			return
		}
	}
	s.followed.tell(s.name, Secret{})
}

// Lacking implements kubeapi.Store.
func (s *one) Lacking() bool { return false }

// FollowMounted follows Secrets in a folder until ctx ends: each is a folder of its name with a file for each key, as a volume has them.
func FollowMounted(ctx context.Context, dir string, named *Named, out func(name string, s Secret)) error {
	if _, err := os.ReadDir(dir); err != nil {
		return fmt.Errorf("folder of secrets: %w", unreadable(err))
	}
	named.start = func(ctx context.Context, name string) {
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			out(name, Secret{Err: "it is not the name of a Secret"})
			return
		}
		m := &mounted{dir: filepath.Join(dir, name)}
		_ = followDir(ctx, m.dir, func(now time.Time) (time.Time, error) { // it ends with ctx only
			s, changed, next := m.look(now)
			if changed {
				out(name, s)
			}
			return next, nil
		})
	}
	named.follow(ctx)
	return nil
}

// mounted is a Secret in a folder.
type mounted struct {
	dir     string
	told    bool
	hash    string // of what was told
	pending string // of what it is since then, not told yet
	since   time.Time
}

// look reads the folder, and reports whether it says something else than what was told. Files are written one after the other, so
// a change counts when it has stayed for some time.
func (m *mounted) look(now time.Time) (s Secret, changed bool, next time.Time) {
	s = m.read()
	hash := m.sum(s)
	switch {
	case m.told && hash == m.hash:
		m.pending = ""
		return s, false, time.Time{}
	case m.told && hash != m.pending:
		m.pending, m.since = hash, now
	}
	if due := m.since.Add(settle); m.told && now.Before(due) {
		return s, false, due
	}
	m.told, m.hash, m.pending = true, hash, ""
	return s, true, time.Time{}
}

// sum tells contents apart.
func (m *mounted) sum(s Secret) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%t %s", s.Data != nil, s.Err)
	for _, k := range slices.Sorted(maps.Keys(s.Data)) {
		fmt.Fprintf(&b, " %q %q", k, s.Data[k])
	}
	return Hash([]byte(b.String()))
}

// most keys are read of a Secret.
const mostKeys = 64

func (m *mounted) read() Secret {
	entries, err := os.ReadDir(m.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Secret{}
	case err != nil:
		return Secret{Err: unreadable(err).Error()}
	}
	s := Secret{Data: map[string][]byte{}}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || e.IsDir() || len(s.Data) >= mostKeys {
			continue
		}
		f := file{path: filepath.Join(m.dir, e.Name())}
		content, err := f.read()
		switch {
		case errors.Is(err, fs.ErrNotExist): // it has gone in this moment
		case err != nil:
			return Secret{Err: e.Name() + ": " + err.Error()}
		case len(content) > MaxKubeconfig:
			return Secret{Err: e.Name() + " is too large"}
		default:
			s.Data[e.Name()] = content
		}
	}
	return s
}
