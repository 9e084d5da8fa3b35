package registries_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/registries"
)

var scope = registries.Scope{SystemNamespace: "istio-system", ConfigCluster: "home"}

// said gives findings as "object field code".
func said(findings []registries.Finding) (out []string) {
	for _, f := range findings {
		out = append(out, strings.Join(strings.Fields(f.Object.String()+" "+f.Field+" "+f.Code), " "))
	}
	return out
}

func keys(declared []registries.Declared) (out []string) {
	for _, d := range declared {
		out = append(out, d.Key.String())
	}
	return out
}

func TestWhoDeclares(t *testing.T) {
	t.Parallel()
	elsewhere := registry(t, "c", "c:1", "")
	elsewhere.Source.Shard.Cluster = "west"
	fromServer := registry(t, "d", "d:1", "")
	fromServer.Source.Shard.Provider = model.ProviderMCP
	broken := registry(t, "e", "e:1", "")
	broken.Spec, broken.Refused = nil, true
	declared, findings := registries.Read([]*model.Config{
		registry(t, "a", "a:1", ""), row(t, `{kind: Registry, metadata: {name: b, namespace: shop}, spec: {provider: consul, addresses: ["b:1"]}}`), elsewhere, fromServer, broken,
		row(t, `{kind: McpBridge, metadata: {name: other}, spec: {}}`),
		row(t, `{kind: McpBridge, metadata: {name: default, namespace: shop}, spec: {}}`),
		{Kind: model.ConfigGateway},
	}, scope)
	if got := keys(declared); !slices.Equal(got, []string{"consul/a"}) {
		t.Errorf("%v", got)
	}
	want := []string{
		"Registry/shop/b NotInForce", "Registry/istio-system/c NotInForce", "Registry/istio-system/d NotInForce", "McpBridge/istio-system/other NotInForce", "McpBridge/shop/default NotInForce",
	}
	if got := said(findings); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

const bridge = `
kind: McpBridge
metadata: {name: default, minute: 5}
spec:
  registries:
  - {type: nacos2, name: trade, domain: nacos.trade.internal, port: 8848, nacosNamespaceId: 7f0c-prod, nacosNamespace: prod, authSecretName: trade-nacos}
  - {type: consul, name: legacy, domain: consul.dc1.internal, port: 8500, consulDatacenter: dc1, authSecretName: legacy-consul}
  - {type: zookeeper, name: dubbo, domain: zk-0.internal, port: 2181}
  - {type: static, name: billing, domain: "10.9.0.4:7001", port: 80}
  - {type: dns, name: billing, domain: api.partner.example.com, port: 443, protocol: https}
  - {type: nacos3, name: trade, domain: other.internal, port: 8848}
  - {type: consul, name: legacy, domain: again.internal, port: 8500}
`

// The older of two declarations of one registry is in force, whatever declares it; types of Nacos are one provider.
func TestOneDeclarationForEachKey(t *testing.T) {
	t.Parallel()
	for minute, winner := range map[int]string{1: "Registry", 9: "McpBridge"} {
		r := row(t, fmt.Sprintf(`{kind: Registry, metadata: {name: legacy, minute: %d}, spec: {provider: consul, addresses: ["a:1"]}}`, minute))
		declared, findings := registries.Read([]*model.Config{row(t, bridge), r}, scope)
		got := keys(declared)
		slices.Sort(got)
		if want := []string{"consul/legacy", "nacos/trade", "static-dns/billing", "static/billing"}; !slices.Equal(got, want) {
			t.Errorf("%v", got)
		}
		i := slices.IndexFunc(declared, func(d registries.Declared) bool { return d.Key == key("legacy") })
		if declared[i].From.Object.Kind != winner {
			t.Errorf("%s is in force", declared[i].From.Object)
		}
		loser := "McpBridge/istio-system/default registries[1] NameTaken"
		if winner == "McpBridge" {
			loser = "Registry/istio-system/legacy NameTaken"
		}
		if got := said(findings); !slices.Contains(got, loser) || !slices.Contains(got, "McpBridge/istio-system/default registries[5] NameTaken") || len(got) != 2 {
			t.Errorf("%q", got)
		}
	}
}

func TestBridgeIsEffective(t *testing.T) {
	t.Parallel()
	declared, _ := registries.Read([]*model.Config{row(t, bridge)}, scope)
	for _, d := range declared {
		if d.Key.Provider != model.ProviderNacos {
			continue
		}
		if s := d.Spec; s.Hosts.Mode != api.NamingHigress || s.Nacos.NamespaceNames["7f0c-prod"] != "prod" || s.Namespace != "istio-system" || s.Limits.Concurrency == 0 {
			t.Errorf("%+v", s)
		}
	}
}

func TestReservedKeys(t *testing.T) {
	t.Parallel()
	s := scope
	s.Reserved = map[model.ShardKey]string{key("a"): "a flag"}
	declared, findings := registries.Read([]*model.Config{registry(t, "a", "a:1", ""), registry(t, "b", "b:1", "")}, s)
	if got := keys(declared); !slices.Equal(got, []string{"consul/b"}) || !slices.Equal(said(findings), []string{"Registry/istio-system/a NameTaken"}) {
		t.Errorf("%v %v", got, findings)
	}
}

// There are only so many, the oldest of them.
func TestMostRegistries(t *testing.T) {
	t.Parallel()
	var rows []*model.Config
	for i := range registries.MostRegistries + 1 {
		rows = append(rows, row(t, fmt.Sprintf(`{kind: Registry, metadata: {name: r%d, minute: %d}, spec: {provider: consul, addresses: ["a:1"]}}`, i, i)))
	}
	slices.Reverse(rows)
	declared, findings := registries.Read(rows, scope)
	if len(declared) != registries.MostRegistries || len(findings) != 1 || findings[0].Object.Name != fmt.Sprintf("r%d", registries.MostRegistries) {
		t.Errorf("%d declared, %v", len(declared), findings)
	}
}
