package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	meshconfig "istio.io/api/mesh/v1alpha1"
	"k8s.io/client-go/rest"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/memory"
	"github.com/isthmus-mesh/isthmus/secrets"
)

// notes is a Lifecycle and a Sink that notes what happens, in order.
type notes struct {
	mu    sync.Mutex
	regs  []model.Registry // guarded by mu
	lines []string         // guarded by mu
}

func (n *notes) note(format string, a ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, fmt.Sprintf(format, a...))
}

func (n *notes) Attach(r model.Registry) {
	n.mu.Lock()
	n.regs = append(n.regs, r)
	n.mu.Unlock()
	n.note("attach %s", r.Key())
}
func (n *notes) Detach(k model.ShardKey)        { n.note("detach %s", k) }
func (n *notes) Replace(full *model.ShardState) { n.note("replace %d", full.Len()) }
func (n *notes) Put(evs ...model.Event)         { n.note("put %s", evs[0].Row.Key) }
func (n *notes) Status(s model.Status)          { n.note("%s %s", s.State, s.Err) }

// want compares what was noted, and forgets it.
func (n *notes) want(t *testing.T, lines ...string) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Equal(n.lines, lines) {
		t.Errorf("noted %q, want %q", n.lines, lines)
	}
	n.lines = nil
}

func meshRow(kind, name, trust string) model.Object {
	c := &model.Config{Kind: kind, Name: name, Source: model.Source{Object: model.ObjectKey{Kind: kind, Name: name}}}
	if kind == model.ConfigMesh {
		c.Spec = &meshconfig.MeshConfig{TrustDomain: trust}
	} else {
		c.Spec = &meshconfig.MeshNetworks{}
	}
	return c
}

// start runs the newest registry that was attached, with the notes as its sink, until stop.
func (n *notes) start(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	reg := n.regs[len(n.regs)-1]
	go func() { done <- reg.Run(ctx, n) }()
	synctest.Wait()
	return func() {
		cancel()
		<-done
	}
}

// TestSettingsComeFromRows: whoever needs the MeshConfig is told of it before the controller is, and of nothing else.
func TestSettingsComeFromRows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &notes{}
		s := &settings{Lifecycle: n, use: func(m *meshconfig.MeshConfig) { n.note("use %v %s", m != nil, m.GetTrustDomain()) }}
		key := model.ShardKey{Provider: model.ProviderMesh, Cluster: "east"}
		reg := memory.New(key)
		s.Attach(reg)
		n.want(t, "attach mesh/east")
		defer n.start(t)()
		n.want(t)
		row := meshRow(model.ConfigMesh, "mesh", "one")
		b := model.NewShardBuilder()
		b.Add("MeshConfig//mesh", row)
		b.Add("MeshNetworks//networks", meshRow(model.ConfigNetworks, "networks", ""))
		reg.Replace(b.Build())
		n.want(t, "use true one", "replace 2", "live ")
		reg.Delete(model.RowKey{Kind: model.RowConfig, Key: "MeshNetworks//networks"})
		n.want(t, "put MeshNetworks//networks")
		reg.Put("MeshConfig//mesh", meshRow(model.ConfigMesh, "mesh", "two"))
		n.want(t, "use true two", "put MeshConfig//mesh")
		reg.Delete(model.RowKey{Kind: model.RowConfig, Key: "MeshConfig//mesh"})
		n.want(t, "use false ", "put MeshConfig//mesh")
		reg.Replace(model.NewShardBuilder().Build())
		n.want(t, "use false ", "replace 0", "live ")
	})
}

// TestSettingsOfOthersAreLeftAlone: rows of clusters are none of the mesh's settings, and a hub without API servers
// needs none.
func TestSettingsOfOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	n := &notes{}
	member := memory.New(model.ShardKey{Provider: model.ProviderFile, Cluster: "east"})
	mesh := memory.New(model.ShardKey{Provider: model.ProviderMesh, Cluster: "east"})
	(&settings{Lifecycle: n, use: func(*meshconfig.MeshConfig) {}}).Attach(member)
	(&settings{Lifecycle: n}).Attach(mesh)
	if n.regs[0] != model.Registry(member) || n.regs[1] != model.Registry(mesh) {
		t.Errorf("they were wrapped: %v", n.regs)
	}
}

// TestRelay: a replacement takes over with its first full truth, and an instance that runs again is a new one.
func TestRelay(t *testing.T) {
	t.Parallel()
	var r relay
	said := ""
	say := func(who string, full bool) { r.pass(who, full, func() { said += who }) }
	say("a", false)
	say("a", true)
	say("a", false)
	say("b", false)
	say("b", true)
	say("a", false)
	say("b", false)
	if said != "aabb" {
		t.Errorf("passed on: %q", said)
	}
}

// TestSettingsThatDoNotCome: clusters wait for the mesh's settings as long as serving does, then the defaults count,
// until there are some.
func TestSettingsThatDoNotCome(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		timeout time.Duration
		waits   []string // what was attached a minute later
	}{
		"default":  {30 * time.Second, []string{"attach kubernetes/west"}},
		"long":     {10 * time.Minute, nil},
		"for ever": {0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k, n := newTestSource(t, &serveOptions{syncTimeout: tc.timeout, kube: kubeOptions{clustersDir: t.TempDir()}})
				if err := k.Scan(); err != nil {
					t.Fatal(err)
				}
				n.want(t, "attach mesh/", "attach folder/")
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- k.Run(ctx) }()
				k.manager.Set(fromFolder, []secrets.Claim{{Cluster: "west", Source: "w.yaml", Hash: "1", Config: &rest.Config{Host: "https://w"}}})
				synctest.Wait()
				n.want(t)
				<-time.After(time.Minute) // of the bubble's own time
				synctest.Wait()
				n.want(t, tc.waits...)
				k.useSettings(&meshconfig.MeshConfig{TrustDomain: "example.org"})
				n.want(t, "attach kubernetes/west")
				k.settle() // too late
				n.want(t)
				cancel()
				<-done
			})
		})
	}
}

// newTestSource gives a source whose registries nobody runs.
func newTestSource(t *testing.T, o *serveOptions) (*kubeSource, *notes) {
	t.Helper()
	n := &notes{}
	o.systemNamespace = "istio-system"
	s := newKubeSource(sourceDeps{opts: o, life: &settings{Lifecycle: n}, log: slog.New(slog.DiscardHandler), registerer: prometheus.NewRegistry()})
	return s.(*kubeSource), n
}

// TestExpectedRegistries: the hub does not serve without the config cluster, nor before it knows which others there are.
func TestExpectedRegistries(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]*serveOptions{
		"":                                       {kube: kubeOptions{clustersDir: "d"}},
		"kubernetes/east":                        {clusterID: "east", kube: kubeOptions{clustersDir: "d"}},
		"mesh/east secrets/east kubernetes/east": {clusterID: "east", kube: kubeOptions{kubeconfig: "f"}},
	} {
		var got []string
		for _, k := range o.expected() {
			got = append(got, k.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
