package envoytest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

// WaitReady returns nil once the Envoy is LIVE: its first clusters and
// listeners are warm and it accepts connections.
func (e *Envoy) WaitReady(ctx context.Context) error {
	err := Poll(ctx, func() error {
		if err := e.alive(); err != nil {
			return err
		}
		_, err := e.Admin(ctx, http.MethodGet, "/ready")
		return err
	})
	if err != nil {
		return fmt.Errorf("envoy %s is not ready: %w", e.Name, err)
	}
	return nil
}

// Admin sends a request to the admin interface and returns the body. Path
// holds the query too, as in "/stats?filter=x". A status other than 200 is an
// error.
func (e *Envoy) Admin(ctx context.Context, method, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, e.AdminURL+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := e.admin.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, body)
	}
	return body, nil
}

// adminJSON decodes a JSON answer into out.
func (e *Envoy) adminJSON(ctx context.Context, path string, out any) error {
	body, err := e.Admin(ctx, http.MethodGet, path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	return nil
}

// ConfigDump lists the configuration of one resource field of Envoy's config
// dump, such as "dynamic_active_clusters", "dynamic_listeners",
// "dynamic_route_configs" or "dynamic_endpoint_configs"; "" lists one object
// per dump type, all of them, endpoints included.
func (e *Envoy) ConfigDump(ctx context.Context, resource string) ([]json.RawMessage, error) {
	path := "/config_dump?include_eds"
	if resource != "" {
		path += "&resource=" + url.QueryEscape(resource)
	}
	var dump struct {
		Configs []json.RawMessage `json:"configs"`
	}
	err := e.adminJSON(ctx, path, &dump)
	return dump.Configs, err
}

// Clusters lists the active clusters with their hosts, health and statistics.
func (e *Envoy) Clusters(ctx context.Context) ([]*adminv3.ClusterStatus, error) {
	body, err := e.Admin(ctx, http.MethodGet, "/clusters?format=json")
	if err != nil {
		return nil, err
	}
	var clusters adminv3.Clusters
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(body, &clusters); err != nil {
		return nil, fmt.Errorf("GET /clusters: %w", err)
	}
	return clusters.GetClusterStatuses(), nil
}

// Listeners maps the names of the active listeners to their addresses,
// "IP:PORT" with the port that the kernel chose if it was configured as 0.
func (e *Envoy) Listeners(ctx context.Context) (map[string]string, error) {
	body, err := e.Admin(ctx, http.MethodGet, "/listeners?format=json")
	if err != nil {
		return nil, err
	}
	var listeners adminv3.Listeners
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(body, &listeners); err != nil {
		return nil, fmt.Errorf("GET /listeners: %w", err)
	}
	addrs := make(map[string]string)
	for _, l := range listeners.GetListenerStatuses() {
		sock := l.GetLocalAddress().GetSocketAddress()
		addrs[l.GetName()] = fmt.Sprintf("%s:%d", sock.GetAddress(), sock.GetPortValue())
	}
	return addrs, nil
}

// Stat is the value of one counter or gauge, 0 if the Envoy does not have it.
func (e *Envoy) Stat(ctx context.Context, name string) (uint64, error) {
	stats, err := e.Stats(ctx, "^"+regexp.QuoteMeta(name)+"$")
	return stats[name], err
}

// Stats are the counters and gauges whose name matches filter, a regular
// expression that may match anywhere in the name.
func (e *Envoy) Stats(ctx context.Context, filter string) (map[string]uint64, error) {
	var doc struct {
		Stats []struct {
			Name  string          `json:"name"`
			Value json.RawMessage `json:"value"`
		} `json:"stats"`
	}
	path := "/stats?format=json&type=All&filter=" + url.QueryEscape(filter)
	if err := e.adminJSON(ctx, path, &doc); err != nil {
		return nil, err
	}
	stats := make(map[string]uint64, len(doc.Stats))
	for _, s := range doc.Stats {
		var value uint64
		// Text readouts are strings, and histograms have no name: neither is a number.
		if s.Name != "" && json.Unmarshal(s.Value, &value) == nil {
			stats[s.Name] = value
		}
	}
	return stats, nil
}

// Rejected lists the "update_rejected" counters that are not zero: empty means
// that the Envoy accepted all it was sent.
func (e *Envoy) Rejected(ctx context.Context) (map[string]uint64, error) {
	stats, err := e.Stats(ctx, `update_rejected$`)
	for name, value := range stats {
		if value == 0 {
			delete(stats, name)
		}
	}
	return stats, err
}
