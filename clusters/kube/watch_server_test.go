package kube_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"maps"
	"math"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
	cert atomic.Pointer[tls.Certificate] // for connections to come; nil for httptest's

	mu       sync.Mutex
	changed  chan struct{} // closed and renewed at each change
	rv       int
	objects  map[string]map[string]object // by resource, by namespace/name
	log      []event
	ahead    bool                        // newer revisions than its own are refused
	expired  int                         // the oldest revision that can be watched from
	served   map[string][]string         // resources by group/version
	denied   map[string]int              // how many times, by "list pods"
	held     map[string]chan struct{}    // requests that wait until it is closed, by "list pods"
	failing  map[string]int              // the status to answer with, by "list pods", or "" for everything
	odd      map[string]http.HandlerFunc // what answers instead, by "list pods"
	bad      map[string]bool             // tokens that are refused
	epoch    int                         // watches of an older one end
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
	}, denied: map[string]int{}, failing: map[string]int{}, held: map[string]chan struct{}{}, bad: map[string]bool{}, odd: map[string]http.HandlerFunc{}}
	s.srv = httptest.NewUnstartedServer(s)
	s.srv.EnableHTTP2 = true
	s.srv.TLS = &tls.Config{GetConfigForClient: s.present}
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

// renew gives the server a certificate of another authority, for connections to come, and ends those that are.
func (s *apiServer) renew() (authority []byte) {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	now := time.Now()
	self := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, self, self, key.Public(), key)
	if err != nil {
		s.t.Fatal(err)
	}
	s.cert.Store(&tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key})
	s.srv.CloseClientConnections()
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// present is a tls.Config's GetConfigForClient.
func (s *apiServer) present(*tls.ClientHelloInfo) (*tls.Config, error) {
	cert := s.cert.Load()
	if cert == nil {
		return nil, nil
	}
	c := s.srv.TLS.Clone()
	c.Certificates, c.GetConfigForClient = []tls.Certificate{*cert}, nil
	return c, nil
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

// answer answers a request with something else: "list pods", "get apis". Nil ends it.
func (s *apiServer) answer(what string, with http.HandlerFunc) {
	s.change(func() { s.odd[what] = with; s.epoch++ })
}

// says is an answer with status 200.
func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

// deny takes a right: "list pods", "pods".
func (s *apiServer) deny(what string)  { s.denyTimes(what, math.MaxInt) }
func (s *apiServer) allow(what string) { s.change(func() { delete(s.denied, what) }) }

// denyTimes takes a right for so many requests, as a server does that has just started.
func (s *apiServer) denyTimes(what string, n int) {
	s.change(func() { s.denied[what] = n; s.epoch++ })
}

// hold makes requests wait: "list pods".
func (s *apiServer) hold(what string) (release func()) {
	until := make(chan struct{})
	release = sync.OnceFunc(func() { close(until) })
	s.t.Cleanup(release)
	s.change(func() { s.held[what] = until })
	return release
}

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
