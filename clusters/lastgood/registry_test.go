package lastgood_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/lastgood"
	"github.com/isthmus-mesh/isthmus/clusters/memory"
)

// TestRestoredWhileUnreachable: a hub that starts while the API server is down serves what it knew, as stale since
// then, and the truth when it comes.
func TestRestoredWhileUnreachable(t *testing.T) {
	inBubble(t, func(h *hub) {
		h.lived("a", "b")
		h.pass(time.Hour)
		in := h.run(true)
		in.Registry.Status(model.Status{State: model.StateSyncing, Err: "connection refused"})
		in.want("", model.StateSyncing, "connection refused")
		h.pass(3 * time.Second)
		in.want("a b", model.StateStale, "connection refused")
		if since := in.out.Last().Since; time.Since(since) < time.Hour || time.Since(since) > time.Hour+2*time.Minute {
			t.Errorf("stale for %v", time.Since(since))
		}
		in.Registry.Status(model.Status{State: model.StateSyncing, Err: "forbidden"})
		in.want("a b", model.StateStale, "forbidden")
		in.Registry.Put("z", service("z").Service) // too early to count
		in.Registry.Replace(state("b", "c"))
		in.want("b c", model.StateLive, "")
		in.stop()
		if in.out.Replaces() != 2 {
			t.Errorf("%d full truths", in.out.Replaces())
		}
	})
}

// TestRestoredAtOnce: a registry that knows that there is no hope does not say so before what was kept is there.
func TestRestoredAtOnce(t *testing.T) {
	for _, s := range []model.State{model.StateTimeout, model.StateStale} {
		t.Run(string(s), func(t *testing.T) {
			inBubble(t, func(h *hub) {
				h.lived("a")
				in := h.run(true)
				in.Registry.Status(model.Status{State: s, Err: "exec is refused"})
				in.want("a", model.StateStale, "exec is refused")
				if len(in.out.Statuses()) != 1 {
					t.Errorf("statuses %v", in.out.Statuses())
				}
				in.stop()
			})
		})
	}
}

// TestNothingToRestore: without a file all is as it would be without a store.
func TestNothingToRestore(t *testing.T) {
	inBubble(t, func(h *hub) {
		in := h.run(true)
		in.Registry.Status(model.Status{State: model.StateTimeout, Err: "exec is refused"})
		in.want("", model.StateTimeout, "exec is refused")
		h.pass(time.Hour)
		in.Registry.Status(model.Status{State: model.StateTimeout, Err: "tokenFile is refused"})
		in.want("", model.StateTimeout, "tokenFile is refused")
		in.Registry.Replace(state("a"))
		in.want("a", model.StateLive, "")
		in.stop()
	})
}

// TestSlowRegistry: one that says nothing at all has its time, and one that answers in time is never preceded.
func TestSlowRegistry(t *testing.T) {
	inBubble(t, func(h *hub) {
		h.lived("a")
		in := h.run(true)
		h.pass(9 * time.Second)
		in.want("", "", "")
		in.Registry.Replace(state("b"))
		h.pass(time.Hour)
		in.want("b", model.StateLive, "")
		if in.out.Replaces() != 1 {
			t.Errorf("%d full truths", in.out.Replaces())
		}
		in.stop()
		h.restart()

		in = h.run(true)
		h.pass(11 * time.Second)
		in.want("b", model.StateStale, "served as it was kept")
		in.stop()
	})
}

// TestRegistryWithLittleToRead: it may be given less time.
func TestRegistryWithLittleToRead(t *testing.T) {
	inBubble(t, func(h *hub) {
		h.lived("a")
		r := memory.New(east)
		in := &instance{Registry: r, h: h, wrapped: h.store.Wrap(r, lastgood.Terms{Restore: true, After: time.Second})}
		in.start()
		h.pass(time.Second - 1)
		in.want("", "", "")
		h.pass(2)
		in.want("a", model.StateStale, "served as it was kept")
		in.stop()
	})
}

// TestReplacementsProveThemselves: one with a bad credential must not take over with what was kept.
func TestReplacementsProveThemselves(t *testing.T) {
	inBubble(t, func(h *hub) {
		h.lived("a")
		in := h.run(false)
		in.Registry.Status(model.Status{State: model.StateTimeout, Err: "unauthorized"})
		h.pass(time.Hour)
		in.want("", model.StateTimeout, "unauthorized")
		in.stop()
		if in.out.Replaces() > 0 {
			t.Error("a full truth of a registry that never synced")
		}
	})
}

// TestRunsAgain: a registry that gives up is run again; what was restored stays, and comes once.
func TestRunsAgain(t *testing.T) {
	inBubble(t, func(h *hub) {
		h.lived("a")
		in := h.run(true)
		for i := range 2 {
			in.Fail(errors.New("no client"))
			if err := <-in.done; err == nil || err.Error() != "no client" {
				t.Errorf("got %v", err)
			}
			in.start()
			in.Registry.Status(model.Status{State: model.StateSyncing, Err: fmt.Sprint("try ", i)})
			in.want("a", model.StateStale, fmt.Sprint("try ", i))
			h.pass(time.Minute)
		}
		if in.out.Replaces() != 1 {
			t.Errorf("%d full truths", in.out.Replaces())
		}
		in.Registry.Replace(state("b"))
		in.want("b", model.StateLive, "")
		in.Fail(errors.New("again"))
		<-in.done
		in.Registry.Hang(true)
		in.start()
		in.Registry.Status(model.Status{State: model.StateStale, Err: "gone"})
		h.pass(time.Hour)
		in.want("b", model.StateStale, "gone") // its own words: it has been read by this hub
		in.stop()
	})
}

// TestChangesAreKept: increments too, some time after they come, and none at all without a change.
func TestChangesAreKept(t *testing.T) {
	inBubble(t, func(h *hub) {
		in := h.run(true)
		in.Registry.Replace(state("a", "b"))
		h.pass(9 * time.Second)
		h.wantFiles()
		h.pass(2 * time.Second)
		h.wantFiles(eastFile)
		before := h.stat()
		h.pass(50 * time.Second) // after which it is noted that this still holds
		if !os.SameFile(before, h.stat()) {
			t.Error("written again without a change")
		}
		in.Registry.Put("c", service("c").Service)
		in.Registry.Delete(service("a").key())
		h.pass(11 * time.Second)
		if os.SameFile(before, h.stat()) {
			t.Error("a change is not written")
		}
		in.Registry.Put("d", service("d").Service)
		in.stop() // and the last ones at the end
		h.restart()
		again := h.run(true)
		h.pass(time.Minute)
		again.want("b c d", model.StateStale, "kept")
		again.stop()
	})
}

// TestHeldUntil: rows that have not changed for long are as old as the last contact.
func TestHeldUntil(t *testing.T) {
	inBubble(t, func(h *hub) {
		in := h.run(true)
		in.Registry.Replace(state("a"))
		h.pass(24 * time.Hour)
		in.Registry.Status(model.Status{State: model.StateStale, Err: "cut"})
		h.pass(2 * time.Hour)
		in.stop()
		h.restart()
		again := h.run(true)
		again.Registry.Status(model.Status{State: model.StateStale, Err: "still cut"})
		again.want("a", model.StateStale, "still cut")
		if age := time.Since(again.out.Statuses()[0].Since); age < 2*time.Hour || age > 2*time.Hour+2*time.Minute {
			t.Errorf("stale for %v", age)
		}
		again.stop()
	})
}

// TestForgotten: a cluster that was removed leaves nothing behind, even if its registry ends later, and what comes
// back under its name starts anew.
func TestForgotten(t *testing.T) {
	inBubble(t, func(h *hub) {
		in := h.run(true)
		in.Registry.Replace(state("a"))
		h.pass(time.Minute)
		h.wantFiles(eastFile)
		in.Registry.Put("b", service("b").Service)
		h.store.Forget(east)
		in.stop()
		h.wantFiles()
		h.store.Forget(east) // twice does not matter
		if n := h.store.Files(); n != 0 {
			t.Errorf("%d files are remembered", n)
		}

		again := h.run(true)
		h.pass(time.Minute)
		again.want("", "", "")
		again.Registry.Replace(state("c"))
		h.pass(time.Minute)
		h.wantFiles(eastFile)
		again.stop()
	})
}

// TestOldInstanceEndsLater: after a swap the file is the new instance's.
func TestOldInstanceEndsLater(t *testing.T) {
	inBubble(t, func(h *hub) {
		old := h.run(true)
		old.Registry.Replace(state("a"))
		next := h.run(false)
		next.Registry.Replace(state("b"))
		h.pass(time.Minute)
		old.Registry.Put("d", service("d").Service)
		h.pass(time.Hour)
		old.stop()
		next.stop()
		h.restart()
		in := h.run(true)
		h.pass(time.Minute)
		in.want("b", model.StateStale, "kept")
		in.stop()
	})
}

// TestAttachedAgain: an instance that was replaced, and runs again, keeps what it reports, though the one between has
// written after it.
func TestAttachedAgain(t *testing.T) {
	inBubble(t, func(h *hub) {
		old := h.run(true)
		old.Registry.Replace(state("a"))
		next := h.run(false)
		next.Registry.Replace(state("b"))
		old.cancel() // and it is started before it has ended
		ended := old.done
		old.start()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		h.pass(time.Minute)
		old.Registry.Replace(state("c"))
		next.stop() // writes
		h.pass(time.Minute)
		old.Registry.Put("d", service("d").Service)
		h.pass(time.Minute)
		old.stop()
		h.restart()
		in := h.run(true)
		h.pass(time.Minute)
		in.want("c d", model.StateStale, "kept")
		in.stop()
	})
}

// TestFolderThatCannotBeWritten: what would be found out after a restart only is a problem of the cluster now, for as
// long as it lasts, and is told once.
func TestFolderThatCannotBeWritten(t *testing.T) {
	inBubble(t, func(h *hub) {
		in := h.run(true)
		in.Registry.Replace(state("a"))
		own := model.Problem{Item: "Service/ns/x", Reason: "odd"}
		in.Registry.Status(model.Status{State: model.StateLive, Problems: []model.Problem{own}})
		if err := os.RemoveAll(h.dir); err != nil {
			t.Fatal(err)
		}
		h.pass(time.Hour)
		in.want("a", model.StateLive, "")
		if got, told := in.problems(); told != 3 || len(got) != 2 || got[0] != own || !strings.Contains(got[1].Reason, "no such file or directory") {
			t.Errorf("problems %v, told in %d statuses", got, told)
		}
		if err := os.Mkdir(h.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		h.pass(time.Minute)
		in.want("a", model.StateLive, "")
		if got, _ := in.problems(); len(got) != 1 || got[0] != own {
			t.Errorf("problems %v after all is well", got)
		}
		in.stop()
		h.wantFiles(eastFile)
	})
}

// TestDamagedFile: it counts as none, and is replaced.
func TestDamagedFile(t *testing.T) {
	inBubble(t, func(h *hub) {
		h.lived("a")
		path := filepath.Join(h.dir, eastFile)
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content[:len(content)/2], 0o600); err != nil {
			t.Fatal(err)
		}
		in := h.run(true)
		h.pass(time.Hour)
		in.want("", "", "")
		in.Registry.Replace(state("b"))
		h.pass(time.Minute)
		in.stop()
		h.restart()
		again := h.run(true)
		h.pass(time.Minute)
		again.want("b", model.StateStale, "kept")
		again.stop()
	})
}

// TestFolderUnusable: what can't be written is not kept, and nothing else happens.
func TestFolderUnusable(t *testing.T) {
	inBubble(t, func(h *hub) {
		in := h.run(true)
		if err := os.Remove(h.dir); err != nil {
			t.Fatal(err)
		}
		in.Registry.Replace(state("a"))
		h.pass(time.Hour)
		in.Registry.Put("b", service("b").Service)
		in.want("a b", model.StateLive, "")
		if err := os.Mkdir(h.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		h.pass(time.Minute)
		h.wantFiles(eastFile)
		in.stop()
	})
}

// TestOpen: what was half written is removed, what is not ours is left, and files are for their owner only.
func TestOpen(t *testing.T) {
	inBubble(t, func(h *hub) {
		h.lived("a")
		if mode := h.stat().Mode().Perm(); mode != 0o600 {
			t.Errorf("mode %v", mode)
		}
		for _, name := range []string{".new-123", "notes.txt", "kubernetes@West.rows", "kubernetes@%57est.rows", "dns@x.rows", "x.rows"} {
			if err := os.WriteFile(filepath.Join(h.dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		h.restart()
		if got, want := h.store.Clusters(), []model.ClusterID{"West", "east"}; !reflect.DeepEqual(got, want) {
			t.Errorf("clusters %v, want %v", got, want)
		}
		if got := strings.Join(h.files(), " "); strings.Contains(got, ".new") || !strings.Contains(got, "notes.txt") {
			t.Errorf("files %s", got)
		}
		if _, err := lastgood.Open(lastgood.Options{Dir: filepath.Join(h.dir, "notes.txt")}); err == nil {
			t.Error("a file is opened as a folder")
		}
	})
}

// TestFileNames: any cluster has a file of its own, in the folder, even where case does not count.
func TestFileNames(t *testing.T) {
	inBubble(t, func(h *hub) {
		ids := []model.ClusterID{"a", "A", "a.b", "a_b", "../a", "a/b", "", "%41", "ä", model.ClusterID(strings.Repeat("x", 63)), model.ClusterID(strings.Repeat("X", 63))}
		for _, id := range ids {
			r := memory.New(model.ShardKey{Provider: model.ProviderKubernetes, Cluster: id})
			in := &instance{Registry: r, h: h, wrapped: h.store.Wrap(r, lastgood.Terms{Restore: true})}
			in.start()
			r.Replace(state())
			h.pass(time.Minute)
			in.stop()
		}
		seen := map[string]bool{}
		for _, f := range h.files() {
			seen[strings.ToLower(f)] = true
		}
		h.restart()
		if len(seen) != len(ids) || len(h.store.Clusters()) != len(ids) {
			t.Errorf("files %v, clusters %v", h.files(), h.store.Clusters())
		}
	})
}
