package secrets

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// clock is the start of the imagined time.
var clock = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// files is a folder that a test writes, and what follows it.
type files struct {
	*testing.T
	dir    string
	folder *folder
	now    time.Time
	claims []Claim
	told   int
}

func newFiles(t *testing.T, o Options) *files {
	t.Helper()
	f := &files{T: t, dir: t.TempDir(), now: clock}
	f.folder = newFolder(f.dir, o)
	return f
}

// write writes a file in one step; each content has a time of its own.
func (f *files) write(name, content string) {
	f.Helper()
	temp := filepath.Join(f.dir, ".new")
	if err := os.WriteFile(temp, []byte(content), 0o600); err != nil {
		f.Fatal(err)
	}
	if err := os.Rename(temp, filepath.Join(f.dir, name)); err != nil {
		f.Fatal(err)
	}
}

func (f *files) age(name string, minutes int) {
	f.Helper()
	at := clock.Add(-time.Duration(minutes) * time.Minute)
	if err := os.Chtimes(filepath.Join(f.dir, name), at, at); err != nil {
		f.Fatal(err)
	}
}

func (f *files) remove(name string) {
	f.Helper()
	if err := os.RemoveAll(filepath.Join(f.dir, name)); err != nil {
		f.Fatal(err)
	}
}

// look takes one look after some imagined time.
func (f *files) look(after time.Duration) {
	f.Helper()
	f.now = f.now.Add(after)
	claims, changed, _, err := f.folder.look(f.now)
	if err != nil {
		f.Fatal(err)
	}
	if changed {
		f.claims = claims
		f.told++
	}
}

// settled looks twice, so that what is new counts.
func (f *files) settled() {
	f.Helper()
	f.look(time.Second)
	f.look(time.Second)
}

// want compares the claims as "cluster file host-or-error".
func (f *files) want(want ...string) {
	f.Helper()
	var got []string
	for _, c := range f.claims {
		what := fmt.Sprint(c.Err)
		if c.Config != nil {
			what = strings.TrimPrefix(c.Config.Host, "https://")
		}
		got = append(got, c.Cluster+" "+filepath.Base(c.Source)+" "+what)
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		f.Errorf("claims\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func kubeconfigOf(cluster, host string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: at,
clusters: [{name: %q, cluster: {server: "https://%s"}}],
users: [{name: reader, user: {token: abc}}],
contexts: [{name: at, context: {cluster: %q, user: reader}}]}`, cluster, host, cluster)
}

const malformed = "kubeconfig: not a kubeconfig: malformed YAML, a value of the wrong type, or a name used twice"

// TestFolder follows files through their life.
func TestFolder(t *testing.T) {
	t.Parallel()
	f := newFiles(t, Options{})
	f.look(0)
	f.want()
	if f.told != 1 {
		t.Error("an empty folder is not told")
	}
	f.write("e.yaml", kubeconfigOf("east", "e1"))
	f.age("e.yaml", 2)
	f.write("w.yaml", kubeconfigOf("west", "w1"))
	f.age("w.yaml", 1)
	f.settled()
	f.want("east e.yaml e1", "west w.yaml w1")
	told := f.told
	f.settled()
	if f.told != told {
		t.Error("told although nothing has changed")
	}
	f.write("e.yaml", kubeconfigOf("east", "e2"))
	f.look(time.Second)
	f.want("east e.yaml e1", "west w.yaml w1")
	f.look(settle)
	f.want("east e.yaml e2", "west w.yaml w1") // and in the same place, although written later
	f.remove("e.yaml")
	f.look(time.Second)
	f.want("east e.yaml e2", "west w.yaml w1")
	f.look(absence)
	f.want("west w.yaml w1")
}

// TestFolderHalfWritten: content that is still being written does not count, however often it is seen.
func TestFolderHalfWritten(t *testing.T) {
	t.Parallel()
	f := newFiles(t, Options{})
	f.write("e", kubeconfigOf("east", "e1"))
	f.look(0)
	whole := kubeconfigOf("east", "e2")
	for i := range 10 {
		f.write("e", whole[:len(whole)*i/10])
		f.look(settle - 1)
		f.want("east e e1")
	}
	f.write("e", whole)
	f.settled()
	f.want("east e e2")
}

// TestFolderBadReload: a file that can't be used any more goes on claiming its cluster.
func TestFolderBadReload(t *testing.T) {
	t.Parallel()
	for text, why := range map[string]string{
		"{{":                      malformed,
		"":                        "kubeconfig: empty",
		"{}":                      "kubeconfig: no cluster in it",
		kubeconfigOf("a/b", "e2"): errNoID.Error(),
		strings.Replace(kubeconfigOf("east", "e2"), "token: abc", "tokenFile: abc", 1): `kubeconfig: tokenFile names a file of the hub's machine; put the content into token (or --insecure-kubeconfig-options tokenFile)`,
	} {
		f := newFiles(t, Options{})
		f.write("e", kubeconfigOf("east", "e1"))
		f.look(0)
		f.write("e", text)
		f.settled()
		f.want("east e " + why)
		f.write("e", kubeconfigOf("east", "e3"))
		f.settled()
		f.want("east e e3")
	}
}

// TestFolderNewButBad: what never was usable is listed without a cluster.
func TestFolderNewButBad(t *testing.T) {
	t.Parallel()
	f := newFiles(t, Options{})
	f.write("a", "{{")
	f.age("a", 2)
	f.write("b", kubeconfigOf("a/b", "h"))
	f.age("b", 1)
	f.look(0)
	f.want(" a "+malformed, "a/b b "+errNoID.Error())
}

// TestFolderReplacedInTwoSteps: a file that is away for a moment keeps its cluster.
func TestFolderReplacedInTwoSteps(t *testing.T) {
	t.Parallel()
	f := newFiles(t, Options{})
	f.write("e", kubeconfigOf("east", "e1"))
	f.look(0)
	f.remove("e")
	f.look(absence / 2)
	f.write("e", kubeconfigOf("east", "e2"))
	f.look(absence)
	f.want("east e e1")
	f.look(settle)
	f.want("east e e2")
	if f.told != 2 {
		t.Errorf("told %d times", f.told)
	}
}

// TestFolderMountedSecret: Kubernetes mounts swap a link to a folder of links.
func TestFolderMountedSecret(t *testing.T) {
	t.Parallel()
	f := newFiles(t, Options{})
	mount := func(version string) {
		if err := os.MkdirAll(filepath.Join(f.dir, "..v"+version), 0o700); err != nil {
			t.Fatal(err)
		}
		f.write("..v"+version+"/east", kubeconfigOf("east", version))
		if err := os.Symlink("..v"+version, filepath.Join(f.dir, "..tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(f.dir, "..tmp"), filepath.Join(f.dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	mount("1")
	if err := os.Symlink("..data/east", filepath.Join(f.dir, "east")); err != nil {
		t.Fatal(err)
	}
	f.look(0)
	f.want("east east 1")
	mount("2")
	f.remove("..v1")
	f.settled()
	f.want("east east 2")
}

// TestFolderLeavesAlone: what is no file is not opened, least of all what would never end.
func TestFolderLeavesAlone(t *testing.T) {
	t.Parallel()
	f := newFiles(t, Options{})
	f.write("e", kubeconfigOf("east", "e1"))
	f.write(".hidden", kubeconfigOf("hidden", "h"))
	if err := os.Mkdir(filepath.Join(f.dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"endless": "/dev/zero", "up": "..", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(f.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(f.dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.look(0)
	f.want("east e e1")
	f.remove("e")
	if err := syscall.Mkfifo(filepath.Join(f.dir, "e"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.settled()
	f.want("east e not a file that can be read")
}

// TestFolderConflict: two files may claim one cluster; which counts is decided elsewhere, by age.
func TestFolderConflict(t *testing.T) {
	t.Parallel()
	f := newFiles(t, Options{})
	f.write("a", kubeconfigOf("east", "young"))
	f.age("a", 1)
	f.write("b", kubeconfigOf("east", "old"))
	f.age("b", 2)
	f.look(0)
	f.want("east b old", "east a young")
	f.write("b", kubeconfigOf("east", "old again"))
	f.settled()
	f.want("east b "+"kubeconfig: server must be a URL like https://HOST:PORT", "east a young")
}

func TestFolderLimits(t *testing.T) {
	t.Parallel()
	f := newFiles(t, Options{MaxClusters: 2})
	for i := range 4 {
		name := fmt.Sprint("c", i)
		f.write(name, kubeconfigOf(name, name))
		f.age(name, 9-i)
	}
	f.look(0)
	f.want("c0 c0 c0", "c1 c1 c1", " c2 this and all later ones are ignored: there are more than 2 clusters")

	g := newFiles(t, Options{})
	g.write("big", kubeconfigOf("big", "b")+strings.Repeat("\n", 2*MaxKubeconfig))
	g.look(0)
	g.want(" big kubeconfig: larger than the 1048576 bytes that a kubeconfig may have")
}

// TestFolderGone: a folder that can't be read changes nothing, but it must be there at the start.
func TestFolderGone(t *testing.T) {
	t.Parallel()
	f := newFiles(t, Options{})
	f.write("e", kubeconfigOf("east", "e1"))
	f.look(0)
	f.remove("")
	for range 3 {
		if _, changed, _, err := f.folder.look(f.now.Add(time.Hour)); changed || err == nil {
			t.Fatalf("changed %v, err %v", changed, err)
		}
	}
	if err := os.Mkdir(f.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f.write("e", kubeconfigOf("east", "e1"))
	f.now = f.now.Add(2 * time.Hour)
	f.settled()
	f.want("east e e1")
	if f.told != 1 {
		t.Errorf("told %d times", f.told)
	}
	err := WatchFolder(t.Context(), filepath.Join(f.dir, "none"), FolderOptions{}, nil)
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// TestClusterName: what a kubeconfig calls its cluster.
func TestClusterName(t *testing.T) {
	t.Parallel()
	const clusters = `clusters: [{name: b, cluster: {server: "https://b"}}, {name: a, cluster: {server: "https://a"}}], users: [{name: u, user: {}}]`
	for text, want := range map[string]string{
		`{` + clusters + `, contexts: [{name: q, context: {cluster: b, user: u}}, {name: p, context: {cluster: a, user: u}}], current-context: p}`: "a",
		`{` + clusters + `, contexts: [{name: q, context: {cluster: a, user: u}}, {name: p, context: {cluster: b, user: u}}]}`:                     "b",
		`{` + clusters + `, contexts: [{name: p, context: {cluster: b, user: none}}, {name: q, context: {cluster: a, user: u}}]}`:                  "a",
		`{` + clusters + `}`: "a",
		`{` + clusters + `, contexts: [{name: q, context: {cluster: b, user: none}}], current-context: q}`: "b",
		`{}`: "",
	} {
		cfg, err := load([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := clusterName(cfg); got != want {
			t.Errorf("%s\nis %q, want %q", text, got, want)
		}
	}
}
