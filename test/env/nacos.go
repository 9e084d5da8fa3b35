package env

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// NacosVar is the environment variable that holds the path of the program that runs a Nacos server, as test/tools/nacos/launch does.
const NacosVar = "ISTHMUS_NACOS"

// nacosFirst is where the search for a block of addresses begins. The block's number decides the ports too, so that no two servers have one in
// common: of that of raft, 1000 below the port of HTTP, Nacos takes all addresses, and no setting says otherwise.
const nacosFirst = 200

// NacosOptions describe a server.
type NacosOptions struct {
	// Password of the user nacos, who may do everything: with it access is controlled.
	Password string
	Config   map[string]string // more properties
}

// Nacos is a Nacos server with a data folder of its own. It takes 10 s to start, and 30 on a busy machine. The port for gRPC is 1000 above
// that of Host; URL has the context path. When it is killed, what was registered as persistent stays.
type Nacos struct{ server }

// StartNacos runs a server for the length of a test.
func StartNacos(t testing.TB, o NacosOptions) *Nacos {
	t.Helper()
	n, err := NewNacos(t.Context(), t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

// NewNacos runs a server that keeps its data in dir, until Close.
func NewNacos(ctx context.Context, dir string, o NacosOptions) (*Nacos, error) {
	s, err := newServer(ctx, "nacos", NacosVar, dir, nacosFirst)
	if err != nil {
		return nil, err
	}
	n := &Nacos{s}
	host := n.addrs.Addr(0, 1)
	port := 20_000 + 10*int(host.As4()[1])
	n.Host = fmt.Sprintf("%s:%d", host, port)
	n.URL = "http://" + n.Host + "/nacos"
	n.ready = func(ctx context.Context) error { return answers(ctx, n.http, n.URL+"/v3/admin/core/state/readiness") }
	err = n.configure(host.String(), port, o)
	// Where gRPC is served counts only as a property of the machine.
	n.binary, n.args = "/usr/bin/env", []string{"JAVA_OPTS=-Dnacos.remote.grpc.listen.ip=" + host.String() + " " + os.Getenv("JAVA_OPTS"), n.binary, dir}
	if err == nil {
		err = n.Start(ctx)
	}
	if err == nil && o.Password != "" {
		err = n.Do(ctx, http.MethodPost, "/v3/auth/user/admin", url.Values{"password": {o.Password}}, nil)
	}
	if err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

func (n *Nacos) configure(host string, port int, o NacosOptions) error {
	text, err := os.ReadFile(filepath.Join(filepath.Dir(n.binary), "application.properties"))
	if err != nil {
		return err
	}
	settings := strings.NewReplacer("HOST", host, "PORT", strconv.Itoa(port), "AUTH", strconv.FormatBool(o.Password != "")).Replace(string(text))
	for k, v := range o.Config {
		settings += k + "=" + v + "\n"
	}
	conf := filepath.Join(n.dir, "conf")
	if err := os.MkdirAll(conf, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(conf, "application.properties"), []byte(settings), 0o600)
}

// Do makes a request of the HTTP API, as the server itself would. into takes the data of the answer; it may be nil.
func (n *Nacos) Do(ctx context.Context, method, path string, form url.Values, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, n.URL+path+"?"+form.Encode(), bytes.NewReader(nil))
	if err != nil {
		return err
	}
	req.Header.Set("test-key", "test-value") // application.properties
	resp, err := n.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	var answer struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(text, &answer); resp.StatusCode != http.StatusOK || err != nil || answer.Code != 0 {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer.Data, into)
}

// NacosInstance is one to register. It is persistent: it stays until it is deregistered, and is taken for healthy unless its health is checked.
type NacosInstance struct {
	Namespace, Group, Service string // public and DEFAULT_GROUP if empty
	IP                        string
	Port                      uint16
	Weight                    float64
	Cluster                   string
	Disabled                  bool
	Metadata                  map[string]string
}

func (i NacosInstance) form() url.Values {
	v := url.Values{
		"serviceName": {i.Service}, "ip": {i.IP}, "port": {strconv.Itoa(int(i.Port))}, "weight": {strconv.FormatFloat(i.Weight, 'g', -1, 64)},
		"ephemeral": {"false"}, "enabled": {strconv.FormatBool(!i.Disabled)}, "healthy": {"true"},
	}
	for key, value := range map[string]string{"namespaceId": i.Namespace, "groupName": i.Group, "clusterName": i.Cluster} {
		if value != "" {
			v.Set(key, value)
		}
	}
	if len(i.Metadata) > 0 {
		text, _ := json.Marshal(i.Metadata) // strings always can be
		v.Set("metadata", string(text))
	}
	return v
}

// Register registers or changes an instance.
func (n *Nacos) Register(ctx context.Context, i NacosInstance) error {
	return n.Do(ctx, http.MethodPost, "/v3/client/ns/instance", i.form(), nil)
}

// Deregister takes an instance away.
func (n *Nacos) Deregister(ctx context.Context, i NacosInstance) error {
	return n.Do(ctx, http.MethodDelete, "/v3/client/ns/instance", i.form(), nil)
}

// DeleteService takes away a service that has no instance.
func (n *Nacos) DeleteService(ctx context.Context, namespace, group, service string) error {
	return n.Do(ctx, http.MethodDelete, "/v3/admin/ns/service", NacosInstance{Namespace: namespace, Group: group, Service: service}.form(), nil)
}

// CreateNamespace makes one, whose id and name are equal.
func (n *Nacos) CreateNamespace(ctx context.Context, id string) error {
	return n.Do(ctx, http.MethodPost, "/v3/admin/core/namespace", url.Values{"customNamespaceId": {id}, "namespaceId": {id}, "namespaceName": {id}}, nil)
}
