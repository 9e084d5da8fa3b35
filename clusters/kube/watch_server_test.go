package kube_test

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// object is an object of an API as JSON.
type object = map[string]any

// apiServer is an API server in memory that speaks lists, watches and discovery in JSON, over HTTP/2 with
// TLS, and misbehaves on demand.
type apiServer struct {
	t    *testing.T
	srv  *httptest.Server
	line *line

	mu       sync.Mutex
	changed  chan struct{} // closed and renewed at each change
	rv       int
	objects  map[string]map[string]object // by resource, by namespace/name
	log      []event
	ahead    bool                // newer revisions than its own are refused
	expired  int                 // the oldest revision that can be watched from
	served   map[string][]string // resources by group/version
	denied   map[string]bool     // "list pods"
	failing  map[string]int      // the status to answer with, by "list pods", or "" for everything
	bad      map[string]bool     // tokens that are refused
	epoch    int                 // watches of an older one end
	requests []request
	watches  int // open ones
}

type event struct {
	rv       int
	resource string
	kind     string
	object   object
}

type request struct {
	verb, resource, token string
	query                 map[string][]string
}

// The resources of each kind.
var resources = map[string]string{
	"Namespace": "namespaces", "Node": "nodes", "Pod": "pods", "Service": "services", "EndpointSlice": "endpointslices.discovery.k8s.io",
	"ConfigMap": "configmaps", "WorkloadEntry": "workloadentries.networking.istio.io", "ServiceEntry": "serviceentries.networking.istio.io",
	"Telemetry": "telemetries.telemetry.istio.io", "CustomResourceDefinition": "customresourcedefinitions.apiextensions.k8s.io",
}

// newAPIServer starts a server that has the required kinds.
func newAPIServer(t *testing.T) *apiServer {
	s := &apiServer{t: t, changed: make(chan struct{}), rv: 100, objects: map[string]map[string]object{}, served: map[string][]string{
		"apiextensions.k8s.io/v1": {"customresourcedefinitions"}, "discovery.k8s.io/v1": {"endpointslices"},
	}, denied: map[string]bool{}, failing: map[string]int{}, bad: map[string]bool{}}
	s.srv = httptest.NewUnstartedServer(s)
	s.srv.EnableHTTP2 = true
	s.srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.line = &line{Listener: s.srv.Listener}
	s.srv.Listener = s.line
	s.srv.StartTLS()
	t.Cleanup(func() {
		s.line.hang(false)
		s.srv.CloseClientConnections()
		s.srv.Close()
	})
	return s
}

func (s *apiServer) config() *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.srv.Certificate().Raw})
	return &rest.Config{Host: s.srv.URL, BearerToken: "secret-token", TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

// change does something with the server's state and tells the watches.
func (s *apiServer) change(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
	close(s.changed)
	s.changed = make(chan struct{})
}

// serve makes the server serve a custom resource in a version.
func (s *apiServer) serve(groupVersion, resource string) {
	s.change(func() { s.served[groupVersion] = append(s.served[groupVersion], resource) })
}

// define creates the definition of a custom kind and serves it.
func (s *apiServer) define(groupVersion, resource string) {
	s.t.Helper()
	s.serve(groupVersion, resource)
	group, _, _ := strings.Cut(groupVersion, "/")
	s.set(object{"kind": "CustomResourceDefinition", "metadata": object{"name": resource + "." + group}})
}

// undefine deletes the definition of a custom kind, and all objects of the kind.
func (s *apiServer) undefine(groupVersion, resource string) {
	s.t.Helper()
	group, _, _ := strings.Cut(groupVersion, "/")
	s.change(func() { s.objects[resource+"."+group] = nil })
	s.withdraw(groupVersion, resource)
	s.remove("customresourcedefinitions.apiextensions.k8s.io", "/"+resource+"."+group)
}

// withdraw undoes serve.
func (s *apiServer) withdraw(groupVersion, resource string) {
	s.change(func() {
		s.served[groupVersion] = slices.DeleteFunc(s.served[groupVersion], func(r string) bool { return r == resource })
		s.epoch++
	})
}

// apply creates or replaces objects, given as YAML documents.
func (s *apiServer) apply(docs string) {
	s.t.Helper()
	for _, doc := range strings.Split(docs, "\n---\n") {
		o := object{}
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			s.t.Fatal(err)
		}
		s.set(o)
	}
}

func (s *apiServer) set(o object) {
	s.t.Helper()
	res, key, meta := s.locate(o)
	s.change(func() {
		s.rv++
		meta["resourceVersion"] = strconv.Itoa(s.rv)
		kind := "MODIFIED"
		if s.objects[res] == nil {
			s.objects[res] = map[string]object{}
		}
		if s.objects[res][key] == nil {
			kind = "ADDED"
		}
		s.objects[res][key] = o
		s.log = append(s.log, event{s.rv, res, kind, o})
	})
}

func (s *apiServer) locate(o object) (resource, key string, meta object) {
	meta = o["metadata"].(object)
	ns, _ := meta["namespace"].(string)
	res, ok := resources[o["kind"].(string)]
	if !ok {
		s.t.Fatalf("no resource for kind %v", o["kind"])
	}
	return res, ns + "/" + meta["name"].(string), meta
}

// remove deletes an object: "pods", "ns/name".
func (s *apiServer) remove(resource, key string) {
	s.t.Helper()
	s.change(func() {
		o := maps.Clone(s.objects[resource][key])
		if o == nil {
			s.t.Fatalf("no %s %s", resource, key)
		}
		s.rv++
		meta := maps.Clone(o["metadata"].(object))
		meta["resourceVersion"] = strconv.Itoa(s.rv)
		o["metadata"] = meta
		delete(s.objects[resource], key)
		s.log = append(s.log, event{s.rv, resource, "DELETED", o})
	})
}

// bookmark tells the watches of a kind the newest revision.
func (s *apiServer) bookmark(kind string) (revision string) {
	s.change(func() {
		s.rv++
		revision = strconv.Itoa(s.rv)
		o := object{"kind": kind, "metadata": object{"resourceVersion": strconv.Itoa(s.rv)}}
		s.log = append(s.log, event{s.rv, resources[kind], "BOOKMARK", o})
	})
	return revision
}

// drop ends all open watches, as a restart or a timeout does.
func (s *apiServer) drop() { s.change(func() { s.epoch++ }) }

// expire forgets history: watches can't go on from a revision before now.
func (s *apiServer) expire() { s.change(func() { s.rv++; s.expired = s.rv; s.log = nil; s.epoch++ }) }

// fail answers with a status: to "list pods", to "pods", or "" for everything. Zero ends it.
func (s *apiServer) fail(what string, status int) {
	s.change(func() { s.failing[what] = status; s.epoch++ })
}

// deny takes a right: "list pods", "pods".
func (s *apiServer) deny(what string)  { s.change(func() { s.denied[what] = true; s.epoch++ }) }
func (s *apiServer) allow(what string) { s.change(func() { delete(s.denied, what) }) }

// count counts requests.
func (s *apiServer) count(ok func(request) bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.requests {
		if ok(r) {
			n++
		}
	}
	return n
}

// ServeHTTP implements http.Handler.
func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if parts[0] == "version" {
		if s.admit(w, r, "get", "version", true) {
			_ = json.NewEncoder(w).Encode(object{"major": "1"})
		}
		return
	}
	if parts[0] == "apis" && len(parts) < 4 {
		s.discovery(w, r, parts)
		return
	}
	gv, rest := "v1", parts[2:]
	if parts[0] == "apis" {
		gv, rest = parts[1]+"/"+parts[2], parts[3:]
	}
	ns := ""
	if len(rest) == 3 && rest[0] == "namespaces" {
		ns, rest = rest[1], rest[2:]
	}
	resource := rest[0]
	if parts[0] == "apis" {
		resource += "." + parts[1]
	}
	verb := "list"
	if q.Get("watch") != "" {
		verb = "watch"
	}
	s.mu.Lock()
	known := gv == "v1" || slices.Contains(s.served[gv], rest[0])
	s.mu.Unlock()
	if !s.admit(w, r, verb, resource, known) {
		return
	}
	sel := func(o object) bool {
		m := o["metadata"].(object)
		name, byName := strings.CutPrefix(q.Get("fieldSelector"), "metadata.name=")
		return (ns == "" || m["namespace"] == ns) && (!byName || m["name"] == name)
	}
	if verb == "watch" {
		s.watch(w, r, resource, gv, sel)
	} else {
		s.list(w, r, resource, gv, sel)
	}
}

// admit notes the request and answers it if it is not to be served.
func (s *apiServer) admit(w http.ResponseWriter, r *http.Request, verb, resource string, known bool) bool {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.mu.Lock()
	s.requests = append(s.requests, request{verb, resource, token, r.URL.Query()})
	code := 0
	for _, what := range []string{"", resource, verb + " " + resource} {
		if s.failing[what] != 0 {
			code = s.failing[what]
		}
		if s.denied[what] {
			code = http.StatusForbidden
		}
	}
	if s.bad[token] {
		code = http.StatusUnauthorized
	}
	s.mu.Unlock()
	if code == 0 && !known {
		code = http.StatusNotFound
	}
	if code == 0 {
		return true
	}
	s.refuse(w, code)
	return false
}

func (s *apiServer) refuse(w http.ResponseWriter, code int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(statusOf(code))
}

func statusOf(code int) object {
	if code == http.StatusGatewayTimeout {
		return object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": "Timeout", "message": "Too large resource version",
			"details": object{"causes": []object{{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}}, "retryAfterSeconds": 1}}
	}
	reason := map[int]string{403: "Forbidden", 401: "Unauthorized", 404: "NotFound", 410: "Expired", 429: "TooManyRequests"}[code]
	return object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "no: secret-token"}
}

func (s *apiServer) discovery(w http.ResponseWriter, r *http.Request, parts []string) {
	if !s.admit(w, r, "get", strings.Join(parts, "/"), true) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if len(parts) == 3 {
		list := []object{}
		for _, res := range s.served[parts[1]+"/"+parts[2]] {
			list = append(list, object{"name": res, "verbs": []string{"get", "list", "watch"}})
		}
		_ = json.NewEncoder(w).Encode(object{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": parts[1] + "/" + parts[2], "resources": list})
		return
	}
	groups := map[string][]object{}
	for gv, res := range s.served {
		if g, v, _ := strings.Cut(gv, "/"); len(res) > 0 {
			groups[g] = append(groups[g], object{"groupVersion": gv, "version": v})
		}
	}
	list := []object{}
	for g, vs := range groups {
		list = append(list, object{"name": g, "versions": vs})
	}
	_ = json.NewEncoder(w).Encode(object{"kind": "APIGroupList", "apiVersion": "v1", "groups": list})
}

func (s *apiServer) list(w http.ResponseWriter, r *http.Request, resource, gv string, sel func(object) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := r.URL.Query()
	keys := slices.Sorted(maps.Keys(s.objects[resource]))
	items, limit, next := []object{}, len(keys), ""
	if n, err := strconv.Atoi(q.Get("limit")); err == nil && n > 0 {
		limit = n
	}
	for _, k := range keys {
		switch {
		case k <= q.Get("continue") || !sel(s.objects[resource][k]):
		case len(items) == limit:
			next = items[limit-1]["continue"].(string)
		default:
			o := maps.Clone(s.objects[resource][k])
			o["apiVersion"], o["continue"] = gv, k
			items = append(items, o)
		}
		if next != "" {
			break
		}
	}
	for _, o := range items {
		delete(o, "continue")
	}
	kind := "List"
	for k, res := range resources {
		if res == resource {
			kind = k + "List"
		}
	}
	if strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") {
		kind, gv = "PartialObjectMetadataList", "meta.k8s.io/v1"
		for _, o := range items {
			o["kind"], o["apiVersion"] = "PartialObjectMetadata", gv
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(object{"kind": kind, "apiVersion": gv,
		"metadata": object{"resourceVersion": strconv.Itoa(s.rv), "continue": next}, "items": items})
}

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, resource, gv string, sel func(object) bool) {
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	s.mu.Lock()
	gone, ahead := from < s.expired, s.ahead && from > s.rv
	if gone || ahead {
		s.mu.Unlock()
		s.refuse(w, map[bool]int{true: http.StatusGone, false: http.StatusGatewayTimeout}[gone])
		return
	}
	epoch := s.epoch
	s.watches++
	s.mu.Unlock()
	defer s.change(func() { s.watches-- })
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	flush := func() { _ = http.NewResponseController(w).Flush() }
	flush()
	enc := json.NewEncoder(w)
	for {
		s.mu.Lock()
		if s.epoch != epoch { // history may have gone
			s.mu.Unlock()
			return
		}
		for _, e := range s.log {
			if e.rv > from && e.resource == resource && (e.kind == "BOOKMARK" || sel(e.object)) {
				o := maps.Clone(e.object)
				o["apiVersion"] = gv
				if strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") {
					o["kind"], o["apiVersion"] = "PartialObjectMetadata", "meta.k8s.io/v1"
				}
				_ = enc.Encode(object{"type": e.kind, "object": o})
			}
		}
		from = max(from, s.rv)
		next := s.changed
		s.mu.Unlock()
		flush()
		select {
		case <-next:
		case <-r.Context().Done():
			return
		}
	}
}

// line is a listener whose connections can be made to swallow everything, and to refuse.
type line struct {
	net.Listener
	mu     sync.Mutex
	hung   chan struct{} // closed when it is over; nil if they work
	opened int
	open   map[net.Conn]bool
}

type lineConn struct {
	net.Conn
	line *line
}

// hang makes all connections swallow what they get, also those to come.
func (l *line) hang(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case on && l.hung == nil:
		l.hung = make(chan struct{})
	case !on && l.hung != nil:
		close(l.hung)
		l.hung = nil
	}
}

func (l *line) wait() {
	l.mu.Lock()
	hung := l.hung
	l.mu.Unlock()
	if hung != nil {
		<-hung
	}
}

// conns counts the connections that are open, and those that ever were.
func (l *line) conns() (open, ever int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open), l.opened
}

// Accept implements net.Listener.
func (l *line) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	lc := &lineConn{c, l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open = map[net.Conn]bool{}
	}
	l.open[lc] = true
	l.opened++
	return lc, nil
}

// Read implements net.Conn.
func (c *lineConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.line.wait()
	return n, err
}

// Write implements net.Conn.
func (c *lineConn) Write(p []byte) (int, error) {
	c.line.wait()
	return c.Conn.Write(p)
}

// Close implements net.Conn.
func (c *lineConn) Close() error {
	c.line.mu.Lock()
	delete(c.line.open, c)
	c.line.mu.Unlock()
	return c.Conn.Close()
}
