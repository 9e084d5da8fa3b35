package clusters_test

import (
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/clusters"
	"github.com/isthmus-mesh/isthmus/secrets"
)

// ending gives a claim whose credential ends.
func ending(c secrets.Claim, days int) secrets.Claim {
	c.Expires = born.AddDate(0, 0, days)
	return c
}

// TestExpiryOfWhatServes: while a new credential is tried, or is refused, the one that serves is told with its own end.
func TestExpiryOfWhatServes(t *testing.T) {
	inWorld(t, func(w *world) {
		want := func(what string, earlier string, days, ownDays int) {
			t.Helper()
			w.pass(0)
			got := w.Members()[0]
			switch e := got.Earlier; {
			case earlier == "" && e != nil:
				t.Errorf("%s: %+v serves", what, *e)
			case earlier != "" && (e == nil || e.Hash != earlier || e.Source != "a" || !e.Expires.Equal(born.AddDate(0, 0, days))):
				t.Errorf("%s: %+v serves, want %s", what, e, earlier)
			}
			if own := born.AddDate(0, 0, ownDays); ownDays > 0 && !got.Expires.Equal(own) || ownDays == 0 && !got.Expires.IsZero() {
				t.Errorf("%s: its own end is %s", what, got.Expires)
			}
		}
		w.Set("s", []secrets.Claim{ending(claim("c1", "a", 0, "dead first"), 9)})
		want("never read", "", 0, 9)
		w.Set("s", []secrets.Claim{ending(claim("c1", "a", 0, "k1"), 10)})
		want("read", "", 0, 10)
		w.Set("s", []secrets.Claim{ending(claim("c1", "a", 0, "dead"), 30)})
		want("a new one is tried", "k1", 10, 30)
		w.Set("s", []secrets.Claim{bad("c1", "a", 0, "exec is refused")})
		want("a new one is refused", "k1", 10, 0)
		w.Set("s", []secrets.Claim{ending(claim("c1", "a", 0, "dead"), 30)})
		w.last().sync("10.0.0.1")
		want("the new one works", "", 0, 30)
		w.Configure(clusters.Settings{TrustDomain: "other"})
		want("new settings", "", 0, 30)
	})
}

// TestOneClusterTwice: a cluster that is read under two names is a fault of the name that came later, or that is not
// the config cluster's.
func TestOneClusterTwice(t *testing.T) {
	inWorld(t, func(w *world) {
		warnings := func() (out []string) {
			w.pass(time.Second)
			for _, m := range w.Members() {
				if first, _, ok := strings.Cut(strings.TrimPrefix(m.Warning, "this is the cluster "), " under another name"); ok {
					out = append(out, string(m.Cluster)+" is "+first)
				}
			}
			return out
		}
		want := func(want ...string) {
			t.Helper()
			if got := warnings(); strings.Join(got, ", ") != strings.Join(want, ", ") {
				t.Errorf("%q, want %q", got, want)
			}
		}
		w.Set("s", []secrets.Claim{claim("east", "a", 2, "k1"), claim("west", "b", 1, "k2"), claim("zoo", "c", 3, "k3")})
		w.Set(clusters.Primary, []secrets.Claim{claim("home", "primary.yaml", 9, "k4")})
		want()
		by := map[string]*server{}
		for _, s := range w.made {
			by[string(s.plan.Cluster)] = s
		}
		by["zoo"].uid, by["home"].uid = "u3", "u4"
		want()
		by["east"].uid, by["west"].uid = "u1", "u1"
		want("east is west")
		by["east"].uid, by["west"].uid, by["zoo"].uid = "u4", "u1", "u1"
		want("east is home", "zoo is west")
		if got := w.Members()[1]; got.Cluster != "home" || got.UID != "u4" {
			t.Errorf("%+v", got)
		}
	})
}
