package file_test

import (
	"testing"

	"istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/file"
)

func rule(name, policy string) string {
	return "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: " + name + ", namespace: demo}\nspec: {host: a, trafficPolicy: " + policy + "}\n"
}

// What was there before stays where the present content is no good, and nowhere else; the first report is of the present.
func TestClusterKeepsEarlierContent(t *testing.T) {
	t.Parallel()
	was, is := t.TempDir(), t.TempDir()
	write(t, rule("refused", "{connectionPool: {http: {maxRetries: 7}}}"), was, "c1", "old.yaml")
	write(t, pod("broken", "10.0.0.1"), was, "c1", "broken.yaml")
	write(t, pod("gone", "10.0.0.2"), was, "c1", "gone.yaml")
	write(t, pod("moves", "10.0.0.3"), was, "c1", "moves.yaml")
	write(t, "{never: : right", was, "c1", "never.yaml")

	write(t, rule("refused", "{connectionPool: {http: {maxRetries: -7}}}"), is, "c1", "new.yaml")
	write(t, pod("broken", "10.0.0.9")+" x: : y\n", is, "c1", "broken.yaml")
	write(t, pod("moves", "10.0.0.4"), is, "c1", "elsewhere.yaml")
	write(t, "{never: : right", is, "c1", "never.yaml")

	r := file.NewRoot(file.RootOptions{Dir: is, Mesh: "c1", Member: file.Options{Earlier: was, Log: quiet()}}, attachFunc(func(reg model.Registry) {
		if reg.Key().Provider != model.ProviderFile {
			return
		}
		s := start(t, reg)
		s.wait(t, "rows", func(s *sink) bool { return s.replaces > 0 && s.status.State == model.StateLive })
		if got := s.now(); podIP(got, "broken") != "10.0.0.1" || podIP(got, "gone") != "" || podIP(got, "moves") != "10.0.0.4" || len(got.log) != 1 {
			t.Errorf("rows are %v, after %v", got.rows, got.log)
		}
		c := s.config("DestinationRule/demo/refused")
		if spec, ok := c.Spec.(*v1alpha3.DestinationRule); !c.Refused || !ok || spec.TrafficPolicy.ConnectionPool.Http.MaxRetries != 7 {
			t.Errorf("the last good version is not kept: %+v", c)
		}
	}))
	must(t, r.Scan())
}

// Settings are kept like objects, and the trust domain is that of the settings in force when members are attached.
func TestRootKeepsEarlierSettings(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct{ was, is, trust string }{
		"kept":    {"trustDomain: old.example", "trustDomain: : x", "old.example"},
		"changed": {"trustDomain: old.example", "trustDomain: new.example", "new.example"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			was, is := t.TempDir(), t.TempDir()
			write(t, x.was, was, "mesh.yaml")
			write(t, x.is, is, "mesh.yaml")
			account := "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: demo}\nspec: {serviceAccountName: sa}\nstatus: {podIP: 10.0.0.1}\n"
			write(t, account, is, "c1", "pod.yaml")
			r := file.NewRoot(file.RootOptions{Dir: is, Mesh: "c1", Member: file.Options{Earlier: was, Log: quiet()}}, attachFunc(func(reg model.Registry) {
				s := start(t, reg)
				s.wait(t, "rows", func(s *sink) bool { return s.replaces > 0 })
				if reg.Key().Provider == model.ProviderFile {
					w := s.now().rows[model.RowKey{Kind: model.RowWorkload, Key: "Pod/demo/a"}].(*model.Workload)
					if want := "spiffe://" + x.trust + "/ns/demo/sa/sa"; w.ServiceAccount != want {
						t.Errorf("identity %q, want %q", w.ServiceAccount, want)
					}
				} else if len(s.now().rows) != 1 {
					t.Errorf("settings are %v", s.now().rows)
				}
			}))
			must(t, r.Scan())
		})
	}
	if err := file.NewRoot(file.RootOptions{Dir: t.TempDir(), Member: file.Options{Earlier: "nothing"}}, nil).Scan(); err == nil {
		t.Error("an earlier folder that is not there is none")
	}
}
