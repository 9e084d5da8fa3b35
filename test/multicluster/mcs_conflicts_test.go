package multicluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/test/env"
)

// Exports of one service that differ: the oldest export decides, whatever is the config cluster's and however old
// the services are; ports are the union; each difference is told, and goes with the export that makes it.
func TestConflictingExports(t *testing.T) {
	m := newMesh(t, 2)
	headless := env.Service("shop/foo", 80)
	headless.Spec.ClusterIP = corev1.ClusterIPNone
	m.apply(primary, headless, env.Slice("shop/foo", 8080, fooIP(primary)))
	other := env.Service("shop/foo", 80)
	other.Spec.Ports = []corev1.ServicePort{{Name: "tcp-foo", Port: 80}, {Name: "http-more", Port: 90}}
	slice := env.Slice("shop/foo", 8080, fooIP("c2"))
	slice.Ports[0].Name = &other.Spec.Ports[0].Name
	m.apply("c2", other, slice)
	m.foo("c1")
	m.join("c1", "c2")
	m.serve("--mcs")
	client := m.both("client.shop", "cluster=c1")

	m.export("c1")
	client.has(setFoo, fooIP("c1"))
	m.export("c2", "c1")
	e := m.differs("ports: c1 before c2")
	if c := e.Conflicts[0]; c.Detail != `80/http "http" kept, 80/tcp "tcp-foo" dropped; 90/http "http-more" added` {
		t.Errorf("%+v", c)
	}
	client.has(setFoo, fooIP("c1"), fooIP("c2"))

	m.export(primary, "c2", "c1")
	if e := m.differs("ports: c1 before c2", "resolution: c1 before primary"); e.Service.Resolution != "ClientSideLB" {
		t.Errorf("%+v", e.Service)
	}
	client.has(setFoo, fooIP("c1"), fooIP("c2"), fooIP(primary))

	m.remove("c1", exportFoo) // the next by age
	m.differs("ports: c2 before primary", "resolution: c2 before primary")
	client.has("foo.shop", fooIP("c1")) // not exported: its own cluster's
	m.remove("c2", exportFoo)
	if e := m.differs(); e.Service.Resolution != "Passthrough" {
		t.Errorf("the headless service alone is %+v", e.Service)
	}
}

// export has a cluster export foo, later than others by the whole seconds of creation times.
func (m *mesh) export(id string, than ...string) {
	m.Helper()
	created := func(id string) time.Time {
		all := m.c(id).Dynamic.Resource(schema.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: "v1alpha1", Resource: "serviceexports"})
		o, err := all.Namespace("shop").Get(m.Context(), "foo", metav1.GetOptions{})
		if err != nil {
			m.Fatal(err)
		}
		return o.GetCreationTimestamp().Time
	}
	m.eventually("an export made later", func() error {
		m.apply(id, exportFoo)
		for _, o := range than {
			if !created(id).After(created(o)) {
				m.remove(id, exportFoo)
				return fmt.Errorf("those of %s and %s are of one second", id, o)
			}
		}
		return nil
	})
}

// differs waits until exports are said to differ in these ways and no others, each "FIELD: CLUSTER before CLUSTER".
func (m *mesh) differs(ways ...string) debug.Explanation {
	m.Helper()
	return m.explained(setFoo, fmt.Sprintf("conflicts of %q", ways), func(e debug.Explanation) bool {
		var got []string
		for _, c := range e.Conflicts {
			got = append(got, fmt.Sprintf("%s: %s before %s", c.Field, strings.TrimPrefix(c.Winner.Shard, "kubernetes/"), strings.TrimPrefix(c.Loser.Shard, "kubernetes/")))
		}
		return slices.Equal(got, ways)
	})
}
