package envoytest

import (
	"encoding/json"
	"errors"
	"fmt"

	"sigs.k8s.io/yaml"
)

// withAdmin returns the bootstrap (YAML or JSON) as JSON, its admin interface
// moved to a free port of the loopback address: the harness reads the port from
// the file given by --admin-address-path, so Envoys never fight over one.
func withAdmin(bootstrap []byte) ([]byte, error) {
	var doc map[string]any
	if err := yaml.Unmarshal(bootstrap, &doc); err != nil {
		return nil, fmt.Errorf("parse bootstrap: %w", err)
	}
	if len(doc) == 0 {
		return nil, errors.New("parse bootstrap: it is empty")
	}
	admin, ok := doc["admin"].(map[string]any)
	if !ok {
		admin = map[string]any{}
	}
	admin["address"] = map[string]any{
		"socket_address": map[string]any{"address": "127.0.0.1", "port_value": 0},
	}
	doc["admin"] = admin
	return json.Marshal(doc)
}
