package model

import (
	"fmt"
	"slices"
	"strings"
)

// UnmarshalText is the opposite of MarshalText.
func (h *Health) UnmarshalText(text []byte) error { return unmarshalName(h, healthNames[:], text) }

// UnmarshalText is the opposite of MarshalText.
func (m *MTLS) UnmarshalText(text []byte) error { return unmarshalName(m, mtlsNames[:], text) }

// UnmarshalText is the opposite of MarshalText.
func (p *Protocol) UnmarshalText(text []byte) error { return unmarshalName(p, protocolNames[:], text) }

// UnmarshalText is the opposite of MarshalText.
func (r *Resolution) UnmarshalText(text []byte) error {
	return unmarshalName(r, resolutionNames[:], text)
}

// UnmarshalText is the opposite of MarshalText.
func (s *Severity) UnmarshalText(text []byte) error { return unmarshalName(s, severityNames[:], text) }

// UnmarshalText is the opposite of MarshalText.
func (k *ShardKey) UnmarshalText(text []byte) error {
	provider, cluster, ok := strings.Cut(string(text), "/")
	if !ok {
		return fmt.Errorf("%q is no shard key, which is provider/cluster", text)
	}
	k.Provider, k.Cluster = ProviderID(provider), ClusterID(cluster)
	return nil
}

// unmarshalName finds the value whose name the text is.
func unmarshalName[T ~uint8](v *T, names []string, text []byte) error {
	i := slices.Index(names, string(text))
	if i < 0 {
		return fmt.Errorf("%q is none of %s", text, strings.Join(names, ", "))
	}
	*v = T(i)
	return nil
}
