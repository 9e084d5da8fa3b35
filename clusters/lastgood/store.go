package lastgood

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Options configure a Store. Zero values take the stated defaults.
type Options struct {
	Dir string // required; nobody else may write there
	// Every is how often at most the rows of one registry are written; less often if that takes long. 10s
	Every time.Duration
	// After is how long a registry may take to sync until what was kept is served; 10s. It should be less than what
	// the start-up waits for a registry. Less is waited when the registry reports that there is no contact.
	After    time.Duration
	MaxBytes int64 // of one registry's rows, unpacked; 1 GiB
	Log      *slog.Logger
}

func (o Options) withDefaults() Options {
	o.Every = cmp.Or(o.Every, 10*time.Second)
	o.After = cmp.Or(o.After, 10*time.Second)
	o.MaxBytes = cmp.Or(o.MaxBytes, 1<<30)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Store is a folder with what registries reported last.
type Store struct {
	opts  Options
	found []model.ShardKey // at the start, sorted

	mu     sync.Mutex
	files  map[model.ShardKey]*shardFile // guarded by mu: of registries that were not forgotten
	serial uint64                        // guarded by mu: the last number given
}

// temporary begins the names of files that are being written.
const temporary = ".new-"

// suffix ends the names of the files.
const suffix = ".rows"

// Open makes the folder if there is none, and removes what an earlier hub left half written.
func Open(o Options) (*Store, error) {
	o = o.withDefaults()
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open folder of last good rows: %w", err)
	}
	entries, err := os.ReadDir(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("open folder of last good rows: %w", err)
	}
	s := &Store{opts: o, files: map[model.ShardKey]*shardFile{}}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), temporary) {
			if err := os.Remove(filepath.Join(o.Dir, e.Name())); err != nil {
				return nil, fmt.Errorf("open folder of last good rows: %w", err)
			}
		}
		if k, ok := parseName(e.Name()); ok {
			s.found = append(s.found, k)
		}
	}
	slices.SortFunc(s.found, model.ShardKey.Compare)
	return s, nil
}

// Shards are the registries that had a file when the store was opened, sorted.
func (s *Store) Shards() []model.ShardKey { return slices.Clone(s.found) }

// Clusters are those whose Kubernetes registries had a file when the store was opened, sorted.
func (s *Store) Clusters() (out []model.ClusterID) {
	for _, k := range s.found {
		if k.Provider == model.ProviderKubernetes {
			out = append(out, k.Cluster)
		}
	}
	return out
}

// Terms say how a registry is kept.
type Terms struct {
	// Restore has what was kept reported while the registry can't report: as a full truth that is stale since it was last known to hold,
	// until its own comes. Only the first registry of a cluster may, for the first full truth of a replacement is taken as proof that it works.
	Restore bool
	// After is how long what was kept waits for the registry; the Options' time if zero. Registries that others wait for, and that have little to
	// read, have less.
	After time.Duration
	// Of gives what tells apart what a registry of one key may be declared as. Rows that were kept of another are not used: ErrOther.
	Of func() string
	// Aside gives what else is to be known with the rows, if set. It is written with them, and whenever what a status says is held back changes.
	Aside func() []byte
}

func (t *Terms) of() string {
	if t.Of == nil {
		return ""
	}
	return t.Of()
}

func (t *Terms) aside() []byte {
	if t.Aside == nil {
		return nil
	}
	return t.Aside()
}

// ErrOther says that rows were kept of a registry that was declared otherwise.
var ErrOther = errors.New("it is what the registry said as it was declared before")

// Wrap gives a registry that reports what reg reports, and keeps it.
func (s *Store) Wrap(reg model.Registry, t Terms) model.Registry {
	opts := s.opts
	opts.After = cmp.Or(t.After, opts.After)
	return &registry{inner: reg, opts: opts, file: s.fileOf(reg.Key()), next: s.next, serial: s.next(), terms: t, turn: make(chan struct{}, 1),
		log: s.opts.Log.With("cluster", reg.Key().Cluster, "provider", reg.Key().Provider)}
}

// Kept is what is known of a registry without it.
type Kept struct {
	Rows  *model.ShardState
	Held  time.Time // when they were last known to hold
	Aside []byte    // as in Terms; nil if there was nothing
}

// Kept gives what a registry said last, as it is declared now: of is as in Terms. Its error is fs.ErrNotExist if nothing is kept, and
// ErrOther if that is of another declaration.
func (s *Store) Kept(k model.ShardKey, of string) (Kept, error) {
	h, rows, err := s.fileOf(k).read(of)
	return Kept{rows, h.Saved, h.Aside}, err
}

// Forget removes what was kept of a registry that was detached. What instances wrapped so far still report is
// not kept.
func (s *Store) Forget(k model.ShardKey) {
	f := s.fileOf(k)
	s.mu.Lock()
	delete(s.files, k)
	s.mu.Unlock()
	if err := f.remove(); err != nil {
		s.opts.Log.Warn("last good rows of a detached cluster can't be removed", "cluster", k.Cluster, "provider", k.Provider, "err", err)
	}
}

// next gives a number to an instance.
func (s *Store) next() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serial++
	return s.serial
}

func (s *Store) fileOf(k model.ShardKey) *shardFile {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.files[k]
	if f == nil {
		f = &shardFile{key: k, dir: s.opts.Dir, path: filepath.Join(s.opts.Dir, nameOf(k)), limit: s.opts.MaxBytes, turn: make(chan struct{}, 1)}
		s.files[k] = f
	}
	return f
}

// shardFile is the file of one registry.
type shardFile struct {
	key       model.ShardKey
	dir, path string
	limit     int64
	// turn is full while the file is replaced or removed, by who then owns the rest.
	turn   chan struct{}
	newest uint64 // the newest instance that has written
	ended  bool   // the registry was detached: who comes after has another shardFile
}

// errOutdated tells an instance that its rows are not wanted any more.
var errOutdated = errors.New("a newer instance has written, or the registry was detached")

// write replaces the file, for the instance with the serial.
func (f *shardFile) write(serial uint64, h header, rows map[model.RowKey]model.Object) (err error) {
	if err := f.inTurn(serial, func() error { return nil }); err != nil {
		return err // before the work is done
	}
	temp, err := os.CreateTemp(f.dir, temporary+"*") // for its owner only
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(temp.Name()))
		}
	}()
	h.Shard = f.key
	err = encode(temp, h, rows, f.limit)
	if err == nil {
		err = temp.Sync()
	}
	if err = errors.Join(err, temp.Close()); err != nil {
		return err
	}
	return f.inTurn(serial, func() error {
		if err := os.Rename(temp.Name(), f.path); err != nil {
			return err
		}
		f.newest = serial
		return syncDir(f.dir)
	})
}

// inTurn does something to the file unless that is not the instance's business any more.
func (f *shardFile) inTurn(serial uint64, do func() error) error {
	f.turn <- struct{}{}
	defer func() { <-f.turn }()
	if f.ended || serial < f.newest {
		return errOutdated
	}
	return do()
}

// remove removes the file and outdates all instances.
func (f *shardFile) remove() error {
	f.turn <- struct{}{}
	defer func() { <-f.turn }()
	f.ended = true
	if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syncDir(f.dir)
}

// touch notes that the content, which the instance has written, still holds.
func (f *shardFile) touch(serial uint64, now time.Time) error {
	return f.inTurn(serial, func() error {
		if serial != f.newest {
			return nil
		}
		return os.Chtimes(f.path, time.Time{}, now)
	})
}

// read gives the rows that were kept of a registry declared so, with a header that says when they were last known to hold.
func (f *shardFile) read(of string) (h header, s *model.ShardState, err error) {
	in, err := os.Open(f.path)
	if err != nil {
		return header{}, nil, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return header{}, nil, err
	}
	h, s, err = decode(in, f.key, f.limit)
	if err == nil && h.Of != of {
		err = ErrOther
	}
	if err != nil {
		return header{}, nil, err
	}
	if held := info.ModTime(); held.After(h.Saved) {
		h.Saved = held
	}
	if now := time.Now(); h.Saved.After(now) {
		h.Saved = now
	}
	return h, s, nil
}

// syncDir makes a rename or removal last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// nameOf gives a file name that no other registry has, on file systems that ignore case too.
func nameOf(k model.ShardKey) string {
	return escape(string(k.Provider)) + "@" + escape(string(k.Cluster)) + suffix
}

func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	return b.String()
}

func parseName(name string) (k model.ShardKey, ok bool) {
	provider, cluster, ok := strings.Cut(strings.TrimSuffix(name, suffix), "@")
	if !ok || !strings.HasSuffix(name, suffix) {
		return k, false
	}
	p, err := url.PathUnescape(provider)
	c, err2 := url.PathUnescape(cluster)
	k = model.ShardKey{Provider: model.ProviderID(p), Cluster: model.ClusterID(c)}
	return k, err == nil && err2 == nil && nameOf(k) == name
}
