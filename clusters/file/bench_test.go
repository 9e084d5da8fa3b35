package file

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
)

type discard struct{}

func (discard) Replace(*model.ShardState) {}
func (discard) Put(...model.Event)        {}
func (discard) Status(model.Status)       {}

// BenchmarkLook is a look at a folder of 5 000 files, of which one has changed.
func BenchmarkLook(b *testing.B) {
	dir := b.TempDir()
	write := func(n, generation int) string {
		p := filepath.Join(dir, fmt.Sprint(n/100), fmt.Sprint(n, ".yaml"))
		text := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: p%d, namespace: demo}\nstatus: {podIP: 10.%d.%d.%d}\n", n, generation%200, n/250, n%250+1)
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			b.Fatal(err)
		}
		return p
	}
	for n := range 5000 {
		if n%100 == 0 {
			if err := os.Mkdir(filepath.Join(dir, fmt.Sprint(n/100)), 0o755); err != nil {
				b.Fatal(err)
			}
		}
		write(n, 0)
	}
	c := NewCluster(Options{Dir: dir, Cluster: "c1", Log: slog.New(slog.DiscardHandler)})
	f := c.opts.folder()
	m := &objects{opts: c.opts, folder: f, out: discard{}, claims: newClaims(), store: kube.NewStore(kube.Converter{Shard: c.Key()}),
		reporter: reporter{log: c.opts.Log, key: c.Key()}}
	m.tree = newTree(f.read, parseObjects)
	now := time.Now()
	look := func(touched map[string]bool) {
		l, err := m.list()
		if err != nil {
			b.Fatal(err)
		}
		now = now.Add(settle)
		m.turn(now, l, touched)
	}
	look(nil)
	generation := 0
	b.ReportAllocs()
	for b.Loop() {
		generation++
		p := write(generation%5000, generation)
		look(map[string]bool{p: true})
		look(nil)
	}
}
