package nacos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/foreign"
)

// Whatever happens to services, and whatever the server does wrong meanwhile: once it does right, the rows are its content.
func TestRandomFaults(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			randomFaults(t, rand.New(rand.NewPCG(seed, 0)))
		})
	}
}

func randomFaults(t *testing.T, rng *rand.Rand) {
	f := newFake(t)
	f.faults.password, f.faults.fuzzy = secret, rng.IntN(2) == 0
	spec := f.spec(func(s *api.RegistrySpec) {
		s.Nacos.Namespaces, s.Nacos.Groups = []string{"public", "prod"}, []string{"G", "H"}
	})
	out := start(t, Options{Spec: spec, Access: foreign.Access{Username: "reader", Password: secret}}, func(q *timing) {
		q.settle, q.reconcile, q.request = 50*time.Millisecond, 100*time.Millisecond, time.Second
	})
	for range 4 {
		down := false
		for range 40 {
			switch rng.IntN(12) {
			case 0:
				if down {
					f.up()
				} else {
					f.down()
				}
				down = !down
			case 1:
				f.change(randomFault(rng))
			case 2:
				f.mu.Lock()
				clear(f.tokens)
				f.mu.Unlock()
			case 3:
				f.tell(classReset, map[string]any{})
			default:
				f.randomChange(rng)
			}
		}
		if down {
			f.up()
		}
		f.change(func(x *faults) { *x = faults{password: x.password, loginPath: x.loginPath, fuzzy: x.fuzzy} })
		want := f.lines()
		out.await("the server's content: "+strings.Join(want, "; "), func() bool { return out.replaced > 0 && slices.Equal(out.lines(), want) })
	}
}

func randomFault(rng *rand.Rand) func(*faults) {
	wrong := []func(*faults){
		func(x *faults) { x.silent = !x.silent },
		func(x *faults) { x.noAck = !x.noAck },
		func(x *faults) { x.skew = func() int64 { return 7 } },
		func(x *faults) {
			x.page = func(_ int, names []string, count int) ([]string, int) { return names[:len(names)/2], count }
		},
		func(x *faults) {
			x.page = func(_ int, names []string, _ int) ([]string, int) { return names[:len(names)/2], len(names) / 2 }
		},
		func(x *faults) {
			x.answer = func(_ string, n request) int {
				if strings.HasSuffix(n.Service, "1") {
					return 500
				}
				return 0
			}
		},
		func(x *faults) { x.answer = func(string, request) int { return errorUnregistered } },
		func(x *faults) { x.page, x.answer, x.skew, x.silent = nil, nil, nil, false },
	}
	return wrong[rng.IntN(len(wrong))]
}

func (f *fake) randomChange(rng *rand.Rand) {
	n := serviceName{[]string{"public", "prod"}[rng.IntN(2)], []string{"G", "H"}[rng.IntN(2)], fmt.Sprint("s", rng.IntN(3))}
	var list []instance
	if rng.IntN(4) > 0 {
		list = []instance{}
		for i := range rng.IntN(3) {
			list = append(list, host(fmt.Sprintf("10.%d.0.%d:80", rng.IntN(200), i)))
		}
	}
	f.set(n, list)
}

// lines are the content, as sink.lines has it.
func (f *fake) lines() (out []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for n, list := range f.services {
		out = append(out, line(n, &serviceInfo{Hosts: list}))
	}
	slices.Sort(out)
	return out
}
