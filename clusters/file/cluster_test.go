package file_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/file"
)

func TestClusterFollowsFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, pod("a", "10.0.0.1"), dir, "a.yaml")
	s := cluster(t, dir)
	s.waitRows(t, "Pod/demo/a")

	write(t, pod("b", "10.0.0.2"), dir, "b.yml") // added
	s.waitRows(t, "Pod/demo/a", "Pod/demo/b")
	write(t, pod("a", "10.0.0.9"), dir, "a.yaml") // written in place
	s.waitIP(t, "a", "10.0.0.9")
	place(t, pod("a", "10.0.0.8"), dir, "a.yaml") // replaced
	s.waitIP(t, "a", "10.0.0.8")
	place(t, pod("a", "10.0.0.8")+"---\n"+pod("c", "10.0.0.3"), dir, "a.yaml") // gains an object
	s.waitRows(t, "Pod/demo/a", "Pod/demo/b", "Pod/demo/c")
	place(t, pod("c", "10.0.0.3"), dir, "a.yaml") // loses one
	s.waitRows(t, "Pod/demo/b", "Pod/demo/c")
	must(t, os.Remove(filepath.Join(dir, "b.yml")))
	s.waitRows(t, "Pod/demo/c")
	must(t, os.Rename(filepath.Join(dir, "a.yaml"), filepath.Join(dir, "z.yaml"))) // moved: nothing changes
	write(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"j","namespace":"demo"},"status":{"podIP":"10.0.0.5"}}`, dir, "j.json")
	s.waitRows(t, "Pod/demo/c", "Pod/demo/j")
	if n := s.happened("delete Pod/demo/c"); n != 0 {
		t.Error("moving a file took its objects away")
	}
	if n := s.now().replaces; n != 1 {
		t.Errorf("%d replaces", n)
	}
}

func TestClusterFollowsFolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := cluster(t, dir)
	s.waitRows(t)
	write(t, pod("deep", "10.0.0.1"), dir, "x", "y", "z", "p.yaml")
	s.waitRows(t, "Pod/demo/deep")
	write(t, pod("deep", "10.0.0.2"), dir, "x", "y", "z", "p.yaml")
	s.waitIP(t, "deep", "10.0.0.2")
	must(t, os.Rename(filepath.Join(dir, "x"), filepath.Join(dir, "w")))
	write(t, pod("deep", "10.0.0.3"), dir, "w", "y", "z", "p.yaml")
	s.waitIP(t, "deep", "10.0.0.3")
	must(t, os.RemoveAll(filepath.Join(dir, "w")))
	s.waitRows(t)
	write(t, pod("again", "10.0.0.1"), dir, "w", "p.yaml")
	s.waitRows(t, "Pod/demo/again")
}

func TestClusterIgnoresOtherFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{".hidden.yaml", "a.yaml~", ".a.yaml.swp", "a.yaml.tmp", "#a.yaml#", "notes.txt", "4913", filepath.Join(".git", "a.yaml")} {
		write(t, "not: [yaml", dir, name)
	}
	write(t, pod("a", "10.0.0.1"), dir, "a.yaml")
	s := cluster(t, dir)
	s.waitRows(t, "Pod/demo/a")
	s.waitProblem(t, "")
}

func TestClusterKeepsLastGoodContent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var told atomic.Int32
	write(t, pod("a", "10.0.0.1")+"---\n"+pod("b", "10.0.0.2"), dir, "x.yaml")
	s := start(t, file.NewCluster(file.Options{Dir: dir, Cluster: "c1", Log: quiet(), OnProblem: func(k model.ShardKey, p model.Problem) {
		if k.String() == "file/c1" && p.Item == "x.yaml" {
			told.Add(1)
		}
	}}))
	s.waitRows(t, "Pod/demo/a", "Pod/demo/b")

	broken := pod("a", "10.0.0.9") + "---\napiVersion: v1\nkind: Pod\n  bad: indent\n"
	place(t, broken, dir, "x.yaml")
	p := s.waitProblem(t, "mapping values are not allowed")
	if p.Item != "x.yaml" || p.Line != 8 || p.Since.IsZero() {
		t.Errorf("problem %+v", p)
	}
	write(t, pod("c", "10.0.0.3"), dir, "y.yaml") // others go on
	s.waitRows(t, "Pod/demo/a", "Pod/demo/b", "Pod/demo/c")
	if ip := podIP(s.now(), "a"); ip != "10.0.0.1" {
		t.Errorf("half of a broken file took effect: %s", ip)
	}
	if told.Load() != 1 {
		t.Errorf("told %d times", told.Load())
	}
	place(t, pod("a", "10.0.0.9"), dir, "x.yaml")
	s.waitProblem(t, "")
	s.waitRows(t, "Pod/demo/a", "Pod/demo/c")
}

func TestClusterBrokenAtStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, pod("a", "10.0.0.1")+"---\nkind: [", dir, "x.yaml")
	write(t, pod("b", "10.0.0.2"), dir, "y.yaml")
	s := cluster(t, dir)
	s.waitRows(t, "Pod/demo/a", "Pod/demo/b") // there is no better content than the good documents
	s.waitProblem(t, "did not find")
}

// A file that is truncated and then written again never drops its content.
func TestClusterHalfWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var docs []string
	for i := range 50 {
		docs = append(docs, pod(fmt.Sprintf("p%02d", i), "10.0.0.1"))
	}
	path := filepath.Join(dir, "x.yaml")
	write(t, strings.Join(docs, "---\n"), path)
	s := cluster(t, dir)
	s.wait(t, "50 pods", func(s *sink) bool { return len(s.rows) == 50 })

	next := strings.ReplaceAll(strings.Join(docs, "---\n"), "10.0.0.1", "10.0.0.2")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	must(t, err)
	for part := range slices.Chunk([]byte(next), 97) {
		_, err := f.Write(part)
		must(t, err)
	}
	must(t, f.Close())
	s.wait(t, "new addresses", func(s *sink) bool { return podIP(s, "p49") == "10.0.0.2" && podIP(s, "p00") == "10.0.0.2" })
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.log {
		if strings.HasPrefix(l, "delete") {
			t.Error(l)
		}
	}
}

func TestClusterEmptiedFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, pod("a", "10.0.0.1"), dir, "x.yaml")
	s := cluster(t, dir)
	s.waitRows(t, "Pod/demo/a")
	must(t, os.Truncate(filepath.Join(dir, "x.yaml"), 0))
	s.waitProblem(t, "the file is empty")
	s.waitRows(t, "Pod/demo/a")
	write(t, "# nothing, on purpose\n", dir, "x.yaml")
	s.waitRows(t)
	s.waitProblem(t, "")
}

// Kubernetes mounts a ConfigMap as links through ..data, which it swaps.
func TestClusterSwappedLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, pod("a", "10.0.0.1"), dir, "..v1", "a.yaml")
	must(t, os.Symlink("..v1", filepath.Join(dir, "..data")))
	must(t, os.Symlink(filepath.Join("..data", "a.yaml"), filepath.Join(dir, "a.yaml")))
	s := cluster(t, dir)
	s.waitIP(t, "a", "10.0.0.1")
	write(t, pod("a", "10.0.0.2"), dir, "..v2", "a.yaml")
	must(t, os.Symlink("..v2", filepath.Join(dir, "..data_tmp")))
	must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	must(t, os.RemoveAll(filepath.Join(dir, "..v1")))
	s.waitIP(t, "a", "10.0.0.2")
	if n := s.happened("delete Pod/demo/a"); n != 0 {
		t.Error("the pod was gone for a while")
	}
}

func TestClusterRefusesEscapes(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	outside := t.TempDir()
	write(t, pod("secret", "10.0.0.1"), outside, "s.yaml")
	write(t, pod("shared", "10.0.0.2"), root, "shared.yaml")
	dir := filepath.Join(root, "c1")
	must(t, os.Mkdir(dir, 0o755))
	must(t, os.Symlink(filepath.Join(outside, "s.yaml"), filepath.Join(dir, "escape.yaml")))
	must(t, os.Symlink("../shared.yaml", filepath.Join(dir, "shared.yaml")))
	must(t, os.Symlink(".", filepath.Join(dir, "loop.yaml")))
	must(t, syscall.Mkfifo(filepath.Join(dir, "pipe.yaml"), 0o644))
	s := start(t, file.NewCluster(file.Options{Root: root, Dir: dir, Cluster: "c1", Log: quiet()}))
	s.waitRows(t, "Pod/demo/shared")
	if p := s.waitProblem(t, "escapes"); p.Item != "escape.yaml" {
		t.Errorf("problem %+v", p)
	}
	s.wait(t, "two irregular files", func(s *sink) bool {
		var irregular []string
		for _, p := range s.status.Problems {
			if strings.Contains(p.Reason, "not a regular file") {
				irregular = append(irregular, p.Item)
			}
		}
		return slices.Equal(irregular, []string{"loop.yaml", "pipe.yaml"})
	})
}

func TestClusterFolderGoneIsStale(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "c1")
	write(t, pod("a", "10.0.0.1"), dir, "a.yaml")
	s := cluster(t, dir)
	s.waitRows(t, "Pod/demo/a")
	must(t, os.Rename(dir, dir+"-away"))
	s.wait(t, "stale", func(s *sink) bool { return s.status.State == model.StateStale })
	if st := s.now().status; !strings.Contains(st.Err, "c1 can't be read: no such file") || st.Since.IsZero() {
		t.Errorf("status %+v", st)
	}
	s.waitRows(t, "Pod/demo/a")
	must(t, os.Rename(dir+"-away", dir))
	s.wait(t, "live again", func(s *sink) bool { return s.status.State == model.StateLive && s.status.Err == "" })
	write(t, pod("a", "10.0.0.2"), dir, "a.yaml")
	s.waitIP(t, "a", "10.0.0.2")
	if now := s.now(); now.replaces != 1 || s.happened("delete Pod/demo/a") != 0 {
		t.Errorf("log %v", now.log)
	}
}

// TestClusterAboveIsReplaced: a folder that is another one because something above it was replaced, by a
// link or a move, is read soon, and followed.
func TestClusterAboveIsReplaced(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, pod("a", "10.0.0.1"), root, "v1", "c1", "a.yaml")
	write(t, pod("a", "10.0.0.2"), root, "v2", "c1", "a.yaml")
	must(t, os.Symlink("v1", filepath.Join(root, "current")))
	s := cluster(t, filepath.Join(root, "current", "c1"))
	s.waitIP(t, "a", "10.0.0.1")
	must(t, os.Symlink("v2", filepath.Join(root, "next")))
	must(t, os.Rename(filepath.Join(root, "next"), filepath.Join(root, "current")))
	s.waitIP(t, "a", "10.0.0.2")
	place(t, pod("a", "10.0.0.3"), root, "v2", "c1", "a.yaml")
	s.waitIP(t, "a", "10.0.0.3")
	write(t, pod("a", "10.0.0.4"), root, "v3", "c1", "a.yaml")
	must(t, os.Rename(filepath.Join(root, "v2"), filepath.Join(root, "old")))
	must(t, os.Rename(filepath.Join(root, "v3"), filepath.Join(root, "v2")))
	s.waitIP(t, "a", "10.0.0.4")
}

func TestClusterFolderComesLate(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "c1")
	s := cluster(t, dir)
	s.wait(t, "stale", func(s *sink) bool { return s.status.State == model.StateStale })
	if s.now().replaces != 0 {
		t.Error("an absent folder was reported as an empty one")
	}
	write(t, pod("a", "10.0.0.1"), dir, "a.yaml")
	s.waitRows(t, "Pod/demo/a")
}

func TestClusterDuplicates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, pod("a", "10.0.0.2"), dir, "b.yaml")
	s := cluster(t, dir)
	s.waitIP(t, "a", "10.0.0.2")
	write(t, pod("x", "10.0.0.9")+"---\n"+pod("a", "10.0.0.1")+"---\n"+pod("a", "10.0.0.3"), dir, "a.yaml")
	s.waitIP(t, "a", "10.0.0.1") // the first by path, then by place
	s.wait(t, "two problems", func(s *sink) bool {
		var got []string
		for _, p := range s.status.Problems {
			got = append(got, fmt.Sprintf("%s:%d %s", p.Item, p.Line, p.Reason))
		}
		return slices.Equal(got, []string{
			"a.yaml:11 Pod/demo/a is defined in a.yaml too, and that definition counts",
			"b.yaml:1 Pod/demo/a is defined in a.yaml too, and that definition counts",
		})
	})
	must(t, os.Remove(filepath.Join(dir, "a.yaml")))
	s.waitIP(t, "a", "10.0.0.2")
	s.waitProblem(t, "")
	if n := s.happened("delete Pod/demo/a"); n != 0 {
		t.Error("the pod was gone for a while")
	}
}

func TestClusterConversionProblemsHavePlaces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, "# c\n"+pod("a", "10.0.0.1")+"---\n"+pod("b", "nonsense"), dir, "x.yaml")
	s := cluster(t, dir)
	if p := s.waitProblem(t, "Pod/demo/b: podIP"); p.Item != "x.yaml" || p.Line != 7 {
		t.Errorf("problem %+v", p)
	}
}

func TestClusterLimits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, n := range []string{"a", "b", "c"} {
		write(t, pod(n, "10.0.0.1"), dir, n+".yaml")
	}
	write(t, "# "+strings.Repeat("x", 4096)+"\n"+pod("big", "10.0.0.1"), dir, "a-big.yaml")
	s := start(t, file.NewCluster(file.Options{Dir: dir, Cluster: "c1", Log: quiet(), Limits: file.Limits{FileBytes: 1024, Files: 3}}))
	s.waitRows(t, "Pod/demo/a", "Pod/demo/b")
	s.waitProblem(t, "it is too large: the limit is 1024 bytes")
	if p := s.waitProblem(t, "more than 3 files"); p.Item != "c.yaml" {
		t.Errorf("problem %+v", p)
	}
}

func TestClusterLimitOfAllFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, n := range []string{"a", "b", "c"} {
		write(t, pod(n, "10.0.0.1"), dir, n+".yaml")
	}
	s := start(t, file.NewCluster(file.Options{Dir: dir, Cluster: "c1", Log: quiet(), Limits: file.Limits{Bytes: int64(2 * len(pod("a", "10.0.0.1")))}}))
	s.waitRows(t, "Pod/demo/a", "Pod/demo/b")
	if p := s.waitProblem(t, "the folder's files have more than"); p.Item != "c.yaml" {
		t.Errorf("problem %+v", p)
	}
}

func TestClusterKey(t *testing.T) {
	t.Parallel()
	if got := file.NewCluster(file.Options{Cluster: "east"}).Key().String(); got != "file/east" {
		t.Error(got)
	}
	if got := file.NewMesh(file.Options{Cluster: "east"}).Key().String(); got != "mesh/east" {
		t.Error(got)
	}
}

// The example that the README shows reads without a problem.
func TestExample(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"east", "west"} {
		s := cluster(t, filepath.Join("..", "..", "examples", "two-clusters", id))
		s.waitProblem(t, "")
		s.wait(t, "hello", func(s *sink) bool { return slices.Contains(s.keys(), "Service/demo/hello") })
	}
}

// An object with an error keeps its last good version, and nothing else of its file is concerned: neither where its spec
// can't be decoded, nor where it says what can't be.
func TestClusterQuarantinesObjects(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	entry := func(name, resolution, host string) string {
		return "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: " + name + ", namespace: demo}\nspec:\n  hosts: [" + host +
			"]\n  ports: [{name: http, number: 80, protocol: HTTP}]\n  resolution: " + resolution + "\n---\n"
	}
	hosts := func(s *sink) (out []string) {
		for _, o := range s.rows {
			if svc, ok := o.(*model.Service); ok {
				out = append(out, svc.Host)
			}
		}
		slices.Sort(out)
		return out
	}
	await := func(s *sink, want ...string) {
		t.Helper()
		s.wait(t, strings.Join(want, " "), func(s *sink) bool { return slices.Equal(hosts(s), want) })
	}
	write(t, entry("one", "MAGIC", "a.example")+entry("two", "DNS", "b.example"), dir, "x.yaml")
	s := cluster(t, dir)
	await(s, "b.example")
	if p := s.waitProblem(t, "MAGIC"); p.Item != "x.yaml" || p.Line != 7 || !strings.Contains(p.Reason, "ServiceEntry/demo/one") || !strings.Contains(p.Reason, "not in force") {
		t.Errorf("%+v", p)
	}
	place(t, entry("one", "DNS", "a.example")+entry("two", "DNS", "b.example"), dir, "x.yaml")
	await(s, "a.example", "b.example")
	s.waitProblem(t, "")
	place(t, entry("one", "MAGIC", "a.example")+entry("two", "DNS", "c.example"), dir, "x.yaml")
	await(s, "a.example", "c.example") // the other one goes on
	s.waitProblem(t, "its last good version stays in force")
	place(t, entry("one", "DNS", "a..example")+entry("two", "DNS", "d.example"), dir, "x.yaml")
	await(s, "a.example", "d.example")
	if p := s.waitProblem(t, `"a..example" is not a host`); p.Line != 1 {
		t.Errorf("%+v", p)
	}
	place(t, entry("two", "DNS", "d.example"), dir, "x.yaml") // without it, it goes
	await(s, "d.example")
	s.waitProblem(t, "")
}
