package env

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// ConsulVar is the environment variable that holds the path of the Consul binary to use.
const ConsulVar = "ISTHMUS_CONSUL"

const (
	consulFirst = 150 // where the search for a block of addresses begins
	consulPort  = 8500
)

// ConsulOptions describe a server.
type ConsulOptions struct {
	Datacenter string         // dc1 if empty
	Token      string         // of the operator: with it access is controlled, and others may do nothing
	Config     map[string]any // more of the agent's configuration
}

// Consul is a Consul server with a data folder of its own. There is one to a datacenter, and no agent beside it.
type Consul struct {
	server
	token string
}

// StartConsul runs a server for the length of a test.
func StartConsul(t testing.TB, o ConsulOptions) *Consul {
	t.Helper()
	c, err := NewConsul(t.Context(), t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// NewConsul runs a server that keeps its data in dir, until Close.
func NewConsul(ctx context.Context, dir string, o ConsulOptions) (*Consul, error) {
	s, err := newServer(ctx, "consul", ConsulVar, dir, consulFirst)
	if err != nil {
		return nil, err
	}
	c := &Consul{server: s, token: o.Token}
	c.Host = c.addrs.At(0, 1, consulPort)
	c.URL = "http://" + c.Host
	c.args, c.ready = []string{"agent", "-config-file", filepath.Join(dir, "config.json")}, c.knowsItself
	if err = c.configure(o, c.addrs.Addr(0, 1).String()); err == nil {
		err = c.Start(ctx)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Consul) configure(o ConsulOptions, address string) error {
	dc := o.Datacenter
	if dc == "" {
		dc = "dc1"
	}
	config := map[string]any{
		"server": true, "bootstrap": true, "datacenter": dc, "node_name": "server-" + dc, "data_dir": filepath.Join(c.dir, "data"),
		"bind_addr": address, "client_addr": address, "log_level": "warn", "disable_update_check": true, "leave_on_terminate": false,
		"ports":       map[string]any{"http": consulPort, "dns": -1, "grpc": -1, "grpc_tls": -1, "serf_wan": -1},
		"performance": map[string]any{"raft_multiplier": 1}, "connect": map[string]any{"enabled": false},
		"limits": map[string]any{"http_max_conns_per_client": 200}, "peering": map[string]any{"enabled": false},
	}
	if o.Token != "" {
		config["acl"] = map[string]any{"enabled": true, "default_policy": "deny", "tokens": map[string]any{"initial_management": o.Token, "agent": o.Token}}
	}
	for k, v := range o.Config {
		config[k] = v
	}
	text, err := json.Marshal(config)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(c.dir, "config.json"), text, 0o600)
}

// knowsItself: there is a leader, too.
func (c *Consul) knowsItself(ctx context.Context) error {
	var services map[string][]string
	if err := c.Get(ctx, "/v1/catalog/services", &services); err != nil {
		return err
	}
	if _, has := services["consul"]; !has {
		return errors.New("it does not know itself yet")
	}
	return nil
}

// Get asks for something with the operator's token.
func (c *Consul) Get(ctx context.Context, path string, into any) error {
	return c.do(ctx, http.MethodGet, path, nil, into)
}

// Do is PUT, or another method, of a JSON body, with the operator's token; into may be nil.
func (c *Consul) Do(ctx context.Context, method, path string, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return c.do(ctx, method, path, bytes.NewReader(text), into)
}

func (c *Consul) do(ctx context.Context, method, path string, body io.Reader, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, c.URL+path, body)
	if err != nil {
		return err
	}
	if c.token != "" {
		req.Header.Set("X-Consul-Token", c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}

// Put is Do of PUT for a test.
func (c *Consul) Put(t testing.TB, path string, body, into any) {
	t.Helper()
	if err := c.Do(t.Context(), http.MethodPut, path, body, into); err != nil {
		t.Fatal(err)
	}
}
