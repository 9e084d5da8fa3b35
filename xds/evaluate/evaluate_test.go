package evaluate_test

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/sni_cluster/v3" // resolved by name
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-mesh/isthmus/test/golden"
	"github.com/isthmus-mesh/isthmus/xds/evaluate"
)

// TestEvaluate asks the configurations of testdata what becomes of requests, and compares with golden files.
func TestEvaluate(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			c := evaluate.New()
			for doc := range strings.SplitSeq(string(a.Files[0].Data), "\n---\n") {
				add(t, c, doc)
			}
			var out strings.Builder
			for line := range strings.Lines(string(a.Files[1].Data)) {
				out.WriteString("> " + line)
				out.WriteString(text(c.Evaluate(request(t, strings.Fields(line)))))
			}
			golden.Compare(t, strings.TrimSuffix(file, ".txtar")+".golden", out.String())
		})
	}
}

func add(t *testing.T, c *evaluate.Config, doc string) {
	t.Helper()
	body, err := yaml.YAMLToJSON([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	var x anypb.Any
	if err := protojson.Unmarshal(body, &x); err != nil {
		t.Fatalf("%v in\n%s", err, doc)
	}
	m, err := x.UnmarshalNew()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Add(m); err != nil {
		t.Fatal(err)
	}
}

// request reads "ADDRESS [inbound] [from=ADDRESS] [tls SERVERNAME] [alpn=PROTOCOL] [tcp | METHOD AUTHORITY PATH [HEADER=VALUE]...]".
func request(t *testing.T, words []string) (r evaluate.Request) {
	t.Helper()
	r.Destination, r.Headers = netip.MustParseAddrPort(words[0]), map[string]string{}
	words = words[1:]
	if len(words) > 0 && words[len(words)-1] == "tcp" {
		r.Protocol = evaluate.TCP
	}
	for len(words) > 0 {
		k, v, pair := strings.Cut(words[0], "=")
		switch {
		case words[0] == "inbound":
			r.Inbound = true
		case words[0] == "tls":
			r.TLS, r.ServerName, words = true, words[1], words[1:]
		case k == "from":
			r.Source = netip.MustParseAddrPort(v)
		case k == "alpn":
			r.ALPN = append(r.ALPN, v)
		case words[0] == "tcp":
		case pair && r.Method != "":
			r.Headers[k] = v
		default:
			r.Method, r.Authority, r.Path, words = words[0], words[1], words[2], words[2:]
		}
		words = words[1:]
	}
	return r
}

func text(r *evaluate.Result) string {
	var b strings.Builder
	for _, s := range r.Steps {
		fmt.Fprintf(&b, "  %s %q: %s", s.What, s.Name, s.Why)
		if len(s.Config) > 0 {
			fmt.Fprintf(&b, " (%s)", strings.Join(s.Config, ", "))
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "  = %s", r.Kind)
	for _, s := range r.Clusters {
		fmt.Fprintf(&b, " %s:%g%%%v", s.Cluster, s.Percent, s.Endpoints)
	}
	if r.Fails != "" {
		fmt.Fprintf(&b, " fails=%q", r.Fails)
	}
	if r.Status != 0 {
		fmt.Fprintf(&b, " status=%d", r.Status)
	}
	for _, x := range []struct{ name, value string }{
		{"location", r.Location}, {"path", r.Path}, {"authority", r.Authority}, {"timeout", r.Timeout},
		{"faults", strings.Join(r.Faults, "; ")}, {"mirrors", strings.Join(r.Mirrors, ", ")},
	} {
		if x.value != "" {
			fmt.Fprintf(&b, " %s=%s", x.name, x.value)
		}
	}
	return b.String() + "\n"
}

// TestAddRefuses what does not decide where requests go.
func TestAddRefuses(t *testing.T) {
	t.Parallel()
	c := evaluate.New()
	if err := c.Add(&durationpb.Duration{}); err == nil {
		t.Error("a duration is no resource")
	}
	if err := c.Add(&routev3.VirtualHost{Name: "alone"}); err == nil {
		t.Error("a virtual host without table belongs nowhere")
	}
	if err := c.Add(&clusterv3.Cluster{Name: "a"}); err != nil {
		t.Error(err)
	}
}
