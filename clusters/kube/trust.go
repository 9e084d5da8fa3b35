package kube

import (
	"errors"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// meshConfigMaps are the names of the ConfigMaps in the system namespace that hold the member's mesh
// settings. What the first has counts, then what the second has.
var meshConfigMaps = []string{"isthmus", istioConfigMap}

const istioConfigMap = "istio"

// settingsNames are the names for a revision of Istio: its ConfigMap has it as a suffix, unless it is "" or "default".
func settingsNames(revision string) []string {
	if revision == "" || revision == "default" {
		return meshConfigMaps
	}
	return []string{meshConfigMaps[0], istioConfigMap + "-" + revision}
}

// meshKey is the key of those ConfigMaps under which the MeshConfig is, as YAML.
const meshKey = "mesh"

// TrustFacts are what conversion needs of a ConfigMap with mesh settings.
type TrustFacts struct{ Domain string }

// trust holds the facts of the ConfigMaps by name.
type trust struct {
	names []string // of those that count, the first before the others
	of    map[string]*TrustFacts
}

func newTrust(revision string) trust {
	return trust{names: settingsNames(revision), of: map[string]*TrustFacts{}}
}

func (t trust) domain() string {
	for _, n := range t.names {
		if f := t.of[n]; f != nil && f.Domain != "" {
			return f.Domain
		}
	}
	return ""
}

// set replaces the facts of one ConfigMap, nil removes them, and reports whether the domain is another now.
func (t trust) set(name string, f *TrustFacts) bool {
	before := t.domain()
	delete(t.of, name)
	if f != nil {
		t.of[name] = f
	}
	return t.domain() != before
}

var trustDomains = regexp.MustCompile(`^[A-Za-z0-9._-]{1,255}$`)

// trustFacts is nil if the settings name no usable trust domain.
func trustFacts(m *corev1.ConfigMap) *TrustFacts {
	domain, err := trustDomain(m)
	if err != nil || domain == "" {
		return nil
	}
	return &TrustFacts{Domain: domain}
}

// meshTrust is what is read of a MeshConfig here.
type meshTrust struct {
	TrustDomain string `json:"trustDomain"`
}

func trustDomain(m *corev1.ConfigMap) (string, error) {
	var settings meshTrust
	if err := yaml.Unmarshal([]byte(m.Data[meshKey]), &settings); err != nil {
		_, reason := yamlError(err)
		return "", errors.New(strings.TrimPrefix(reason, "error unmarshaling JSON: while decoding JSON: "))
	}
	if d := settings.TrustDomain; d != "" && !trustDomains.MatchString(d) {
		return "", errTrustDomain
	}
	return settings.TrustDomain, nil
}

// configMap makes no rows: mesh-wide settings are the matter of another registry. It says what is wrong
// with the trust domain.
func (c *Converter) configMap(m *corev1.ConfigMap) (res Result) {
	if m.Namespace != c.SystemNamespace || c.ConfigCluster { // there it says what is wrong with all of it
		return res
	}
	if _, err := trustDomain(m); err != nil {
		reason, _ := Reason(err)
		res.problem("the trust domain in its key %s does not count: %s", meshKey, reason)
	}
	return res
}
