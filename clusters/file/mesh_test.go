package file_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/file"
)

func mesh(t *testing.T, dir string) *sink {
	t.Helper()
	return start(t, file.NewMesh(file.Options{Dir: dir, Cluster: "c1", Log: quiet()}))
}

func trustDomain(s *sink) string {
	c, _ := s.rows[model.RowKey{Kind: model.RowConfig, Key: "MeshConfig//mesh"}].(*model.Config)
	if c == nil {
		return ""
	}
	return c.Spec.(*meshconfig.MeshConfig).TrustDomain
}

func (s *sink) waitTrust(t *testing.T, want string) {
	t.Helper()
	s.wait(t, "trust domain "+want, func(s *sink) bool { return s.replaces > 0 && trustDomain(s) == want })
}

func TestMeshFollowsFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, "junk: [", dir, "other.yaml")
	write(t, pod("a", "10.0.0.1"), dir, "east", "mesh.yaml")
	s := mesh(t, dir)
	s.waitProblem(t, "")
	s.waitRows(t)
	write(t, "trustDomain: one\nconnectTimeout: 5s\n", dir, "mesh.yaml")
	s.waitTrust(t, "one")
	c := s.config("MeshConfig//mesh")
	if c.Source.String() != "mesh/c1 MeshConfig//mesh@"+c.Source.Revision || c.Source.Revision == "" || c.Source.Time.IsZero() {
		t.Errorf("source %+v", c.Source)
	}
	write(t, "networks: {n1: {endpoints: [{fromRegistry: east}], gateways: [{address: 1.2.3.4, port: 15443}]}}", dir, "networks.yaml")
	s.waitRows(t, "MeshConfig//mesh", "MeshNetworks//networks")
	n := s.config("MeshNetworks//networks")
	if n.Kind != model.ConfigNetworks || n.Spec.(*meshconfig.MeshNetworks).Networks["n1"].Gateways[0].Port != 15443 {
		t.Errorf("networks %+v", n)
	}
	must(t, os.Remove(filepath.Join(dir, "mesh.yaml")))
	s.waitRows(t, "MeshNetworks//networks")
}

func TestMeshConfigMap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio}\ndata:\n  meshNetworks: 'networks: {}'\n  mesh: |-\n    trustDomain: two\n", dir, "mesh.yaml")
	s := mesh(t, dir)
	s.waitTrust(t, "two")
	place(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio}\ndata:\n  mesh: |-\n    trustDomain: three\n     bad: indent\n", dir, "mesh.yaml")
	if p := s.waitProblem(t, "mapping values"); p.Item != "mesh.yaml" || p.Line != 7 {
		t.Errorf("problem %+v", p)
	}
	place(t, "apiVersion: v1\nkind: ConfigMap\ndata: {values: x}\n", dir, "mesh.yaml")
	s.waitProblem(t, `the ConfigMap has no key "mesh"`)
	s.waitTrust(t, "two")
	place(t, "apiVersion: v1\nkind: ConfigMap\ndata: {mesh: ''}\n", dir, "mesh.yaml")
	s.waitTrust(t, "")
	s.waitRows(t, "MeshConfig//mesh")
}

func TestMeshBadFileKeepsLastGood(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, "trustDomain: one\n", dir, "mesh.yaml")
	s := mesh(t, dir)
	s.waitTrust(t, "one")
	for text, reason := range map[string]string{
		"trustDomain: two\n  x: y\n":                                  "mapping values",
		"trustDomain: [two]\n":                                        "trustDomain: it is a text, not a list",
		"outboundTrafficPolicy: {mode: MAGIC}\n":                      "MAGIC",
		"just text\n":                                                 "it is an object with the fields",
		"trustDomain: two\ntrustDomain: three\n":                      `"trustDomain" is there twice`,
		"trustDomain: two\nproxyListenPort: 70000\n":                  "proxyListenPort: 70000 is not a port",
		"trustDomain: two\nproxyInboundListenPort: -1\n":              "proxyInboundListenPort: -1 is not a port",
		"trustDomain: two\nproxyListenPort: 15006\n":                  "proxyListenPort: 15006 is both",
		"trustDomain: two\nproxyInboundListenPort: 15001\n":           "proxyInboundListenPort: 15001 is both",
		"trustDomain: two\nconnectTimeout: 315576000000s\n":           "connectTimeout: a duration from 1ms to 24h",
		"trustDomain: two\nconnectTimeout: -5s\n":                     "connectTimeout: a duration",
		"protocolDetectionTimeout: 315576000000s\n":                   "protocolDetectionTimeout: a duration from 0s",
		"dnsRefreshRate: 0s\n":                                        "dnsRefreshRate: a duration",
		"outboundTrafficPolicy: {mode: 5}\n":                          "outboundTrafficPolicy: there is no mode 5",
		"pathNormalization: {normalization: 9}\n":                     "pathNormalization: there is no normalization 9",
		"trustDomain: a/b c\n":                                        `trustDomain: "a/b c" has characters`,
		"localityLbSetting: {distribute: [{from: a, to: {b: 99}}]}\n": `distribute: the shares from "a" make 99, not 100`,
		"zoneAwareLbSetting: {failover: [{from: a, to: a}]}\n":        `zoneAwareLbSetting: failover from "a" to "a": two regions are needed`,
		"zoneAwareLbSetting: {minClusterSize: 0}\n":                   "zoneAwareLbSetting: minClusterSize is at least 1",
	} {
		place(t, text, dir, "mesh.yaml")
		if p := s.waitProblem(t, reason); p.Item != "mesh.yaml" || p.Line < 1 {
			t.Errorf("problem %+v", p)
		}
	}
	s.waitTrust(t, "one")
	place(t, "trustDomain: four\nnovelty:\n  x: y\n", dir, "mesh.yaml")
	s.waitTrust(t, "four")
	if p := s.waitProblem(t, `unknown field "novelty" has no effect`); p.Line != 2 {
		t.Errorf("problem %+v", p)
	}
}

// Incident 69: shares and failover in one setting. Shares are in force, and the rest is named with the way out.
func TestIncident69DistributeBesideFailover(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const shares = "trustDomain: %s\nlocalityLbSetting:\n  distribute:\n  - {from: r1/*, to: {r1/*: 80, r2/*: 20}}\n"
	write(t, fmt.Sprintf(shares, "one")+"  failover:\n  - {from: r1, to: r2}\n", dir, "mesh.yaml")
	s := mesh(t, dir)
	s.waitTrust(t, "one")
	if p := s.waitProblem(t, `"failover" has no effect beside "distribute"`); p.Item != "mesh.yaml" || p.Line != 5 || !strings.Contains(p.Reason, "remove one") {
		t.Errorf("problem %+v", p)
	}
	place(t, fmt.Sprintf(shares, "two")+"  failoverPriority: [topology.istio.io/network]\n", dir, "mesh.yaml")
	s.waitTrust(t, "two")
	s.waitProblem(t, `"failoverPriority" has no effect beside "distribute"`)
	place(t, fmt.Sprintf(shares, "three"), dir, "mesh.yaml")
	s.waitTrust(t, "three")
	s.waitProblem(t, "")
}

// TestNetworksThatCannotBe: a gateway without a port or an address keeps the last good file.
func TestNetworksThatCannotBe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const good = "networks:\n  n2:\n    endpoints: [{fromRegistry: c2}]\n    gateways:\n    - {address: 10.20.0.1, port: 15443}\n"
	write(t, good, dir, "networks.yaml")
	s := mesh(t, dir)
	s.waitRows(t, "MeshNetworks//networks")
	before := s.now().log
	for from, to := range map[string]string{
		"15443":              "70000",
		"port: 15443":        "port: 0",
		"10.20.0.1":          "0.0.0.0",
		"address: 10":        `address: "::", x: 10`,
		"fromRegistry: c2":   "fromCidr: bogus",
		"address: 10.20.0.1": "locality: r",
	} {
		place(t, strings.Replace(good, from, to, 1), dir, "networks.yaml")
		s.waitProblem(t, "network n2: ")
		place(t, good, dir, "networks.yaml")
		s.waitProblem(t, "")
	}
	if now := s.now().log; len(now) != len(before) {
		t.Errorf("log %v", now)
	}
	place(t, good+"  n1:\n    endpoints: [{fromRegistry: c2}]\n", dir, "networks.yaml")
	if p := s.waitProblem(t, "the registry c2 is in network n1 as well"); p.Item != "networks.yaml" {
		t.Errorf("problem %+v", p)
	}
}

func TestMeshFolderGoneIsStale(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "d")
	write(t, "trustDomain: one\n", dir, "mesh.yaml")
	s := mesh(t, dir)
	s.waitTrust(t, "one")
	must(t, os.RemoveAll(dir))
	s.wait(t, "stale", func(s *sink) bool { return s.status.State == model.StateStale })
	s.waitTrust(t, "one")
}

func TestMeshFilesAnywhere(t *testing.T) {
	t.Parallel()
	one, two := t.TempDir(), t.TempDir()
	write(t, "trustDomain: one\n", one, "config", "mesh")
	s := start(t, file.NewMeshFiles(file.Options{Cluster: "c1", Log: quiet()},
		filepath.Join(one, "config", "mesh"), filepath.Join(two, "nets.yaml")))
	s.waitTrust(t, "one")
	if p := s.waitProblem(t, "does not exist"); p.Item != "nets.yaml" {
		t.Errorf("problem %+v", p)
	}
	write(t, "networks: {n1: {gateways: [{address: 1.2.3.4, port: 15443}]}}", two, "nets.yaml")
	s.waitRows(t, "MeshConfig//mesh", "MeshNetworks//networks")
	s.waitProblem(t, "")
	place(t, "trustDomain: [\n", one, "config", "mesh")
	if p := s.waitProblem(t, "did not find"); p.Item != "mesh" || p.Line == 0 {
		t.Errorf("problem %+v", p)
	}
	place(t, "trustDomain: two\n", one, "config", "mesh")
	s.waitTrust(t, "two")
	must(t, os.Remove(filepath.Join(one, "config", "mesh")))
	s.waitRows(t, "MeshNetworks//networks")
}

// A ConfigMap mounted as a volume is a link to a link to a folder that is replaced as a whole.
func TestMeshFilesOfAMountedConfigMap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, "trustDomain: one\n", dir, "..v1", "mesh")
	must(t, os.Symlink("..v1", filepath.Join(dir, "..data")))
	must(t, os.Symlink(filepath.Join("..data", "mesh"), filepath.Join(dir, "mesh")))
	s := start(t, file.NewMeshFiles(file.Options{Cluster: "c1", Log: quiet()}, filepath.Join(dir, "mesh"), ""))
	s.waitTrust(t, "one")
	write(t, "trustDomain: two\n", dir, "..v2", "mesh")
	must(t, os.Symlink("..v2", filepath.Join(dir, "..data_tmp")))
	must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	s.waitTrust(t, "two")
}
