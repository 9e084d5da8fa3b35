package envoydump_test

import (
	"os"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/envoydump"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/output"
)

func tables(d *envoydump.Dump) []*output.Table {
	return []*output.Table{d.Clusters(), d.Endpoints(), d.Listeners(), d.Routes()}
}

func dump(t testing.TB) []byte {
	t.Helper()
	raw, err := os.ReadFile("../testdata/dump.json")
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestRows(t *testing.T) {
	t.Parallel()
	d, err := envoydump.Parse(dump(t))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{5, 6, 4, 5} {
		if got := tables(d)[i]; len(got.Rows) != want {
			t.Errorf("%v: %d rows, want %d", got.Header, len(got.Rows), want)
		}
	}
}

// A listener that forwards by server name sends nothing to the cluster that its last filter names.
func TestForwardingListener(t *testing.T) {
	t.Parallel()
	d, err := envoydump.Parse([]byte(`{"configs": [{"dynamic_listeners": [{"active_state": {"listener": {"name": "l", "filter_chain_matcher": {"matcher_list": {}},
		"filter_chains": [{"name": "c", "filters": [{"typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.network.sni_cluster.v3.SniCluster"}},
		{"typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", "cluster": "BlackHoleCluster"}}]}]}}}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(d.Listeners().Rows[0][2:], " "); got != "c matcher cluster:<server name>" {
		t.Errorf("%q", got)
	}
}

// What a route demands beside its path is told, and where its shares go.
func TestRoutesOfConditionsAndWeights(t *testing.T) {
	t.Parallel()
	d, err := envoydump.Parse([]byte(`{"configs": [{"dynamic_route_configs": [{"route_config": {"name": "80", "virtual_hosts": [{"name": "v", "domains": ["*"], "routes": [
		{"match": {"prefix": "/", "headers": [{"name": "user", "string_match": {"exact": "jason"}}, {"name": ":method", "string_match": {"prefix": "P"}},
			{"name": "x", "invert_match": true, "present_match": true}, {"name": "y", "present_match": true}, {"name": "z", "present_match": false},
			{"name": "a", "string_match": {"suffix": "s"}}, {"name": "b", "string_match": {"contains": "c"}}, {"name": "e", "invert_match": true, "string_match": {"exact": ""}}],
			"query_parameters": [{"name": "q", "string_match": {"safe_regex": {"regex": "a.c"}}}, {"name": "debug", "present_match": true}]},
			"route": {"weighted_clusters": {"clusters": [{"name": "one", "weight": 75}, {"name": "two", "weight": 25}]}}}]}]}}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(d.Routes().Rows[0][3:], " -> "); got != "/* user=jason :method=P* !x y !z a=*s b=*c* !e= ?q=~a.c ?debug -> one=75,two=25" {
		t.Errorf("%q", got)
	}
}

func TestNotADump(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{"", "<html>", `{"configs": 1}`, `[]`} {
		if _, err := envoydump.Parse([]byte(raw)); err == nil {
			t.Errorf("%q is taken for a dump", raw)
		}
	}
	d, err := envoydump.Parse([]byte(`{"configs": [{"@type": "type.googleapis.com/envoy.admin.v3.SecretsConfigDump", "dynamic_active_secrets": [{}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables(d) {
		if len(table.Rows) != 0 {
			t.Errorf("%v has rows of a type that it does not show", table.Header)
		}
	}
}

// FuzzParse: whatever a dump holds, every row has as many cells as the table has columns.
func FuzzParse(f *testing.F) {
	f.Add(dump(f))
	f.Add([]byte(`{"configs": [{"dynamic_listeners": [{"active_state": {"listener": {"filter_chains": [{}]}}}]}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := envoydump.Parse(raw)
		if err != nil {
			return
		}
		for _, table := range tables(d) {
			for _, r := range table.Rows {
				if len(r) != len(table.Header) {
					t.Errorf("%v: row %v", table.Header, r)
				}
			}
			var b strings.Builder
			if err := table.Write(&b); err != nil || strings.Count(b.String(), "\n") != len(table.Rows)+1 {
				t.Errorf("%v: %v\n%s", table.Header, err, &b)
			}
		}
	})
}
