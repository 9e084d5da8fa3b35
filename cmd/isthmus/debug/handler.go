package debug

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters"
	"github.com/isthmus-mesh/isthmus/clusters/holdback"
	"github.com/isthmus-mesh/isthmus/clusters/registries"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// Options are what the endpoints read from.
type Options struct {
	Snapshot      func() *pushcontext.PushContext // nil before the first commit
	Between       func(from, to uint64) (*pushcontext.Delta, bool)
	Shards        func() []pushcontext.ShardInfo // also before the first commit
	Ready         func() error                   // nil, or why the hub does not serve yet
	Proxies       Proxies
	ConfigCluster model.ClusterID
	Members       func() []clusters.Member           // credentials; nil if no cluster has one
	Findings      *Findings                          // of Snapshot; made by New if nil
	Declared      func() []registries.Info           // nil if no registries can be declared
	HeldBack      func(model.ShardKey) holdback.Held // what a registry serves as it was; nil if none does
}

// Path is one debug endpoint.
type Path struct {
	Pattern string // as in "/debug/clusterz"
	Help    string
	serve   func(*handler, *http.Request) (any, error)
}

// Paths are the endpoints that answer with JSON, in the order of the index.
func Paths() []Path {
	return []Path{
		{"/debug/clusterz", "registries: contact with the source, rows, problems, kinds not served, credentials", (*handler).clusterz},
		{"/debug/registries", "foreign registries: state and reason, services, endpoints, what is held back, problems, settings in force; ?name=NAME[&provider=PROVIDER] for one", (*handler).registries},
		{"/debug/registryz", "merged services; ?namespace=NS for one namespace", (*handler).services},
		{"/debug/servicez", "why a service has the endpoints it has: ?host=HOST[&namespace=NS][&proxyID=PROXY]", (*handler).explain},
		{"/debug/endpointz", "endpoints by host, namespace and shard; ?host=HOST for one", (*handler).endpoints},
		{"/debug/endpointShardz", "the same as endpointz", (*handler).endpoints},
		{"/debug/configz", "configuration objects, served or not; ?kind=KIND for one kind", (*handler).configs},
		{"/debug/findings", "what is wrong with configuration objects; ?severity=SEVERITY for that and worse, ?kind=KIND, ?namespace=NS", (*handler).findings},
		{"/debug/mesh", "mesh-wide settings in force", (*handler).mesh},
		{"/debug/networkz", "gateways between networks, with what their names stand for", (*handler).networks},
		{"/debug/push_status", "the newest version, what made it, and resources that could not be generated", (*handler).pushStatus},
		{"/debug/connections", "connected proxies", (*handler).connections},
		{"/debug/syncz", "per proxy and type, the nonce sent and the nonce acknowledged", (*handler).sync},
		{"/debug/gateways", "what becomes of each server of the Gateways that select a router: ?proxyID=PROXY", (*handler).gateways},
		{"/debug/ndsz", "what host names stand for to a proxy that answers DNS queries: ?proxyID=PROXY", (*handler).names},
		{"/debug/config_dump", "what a proxy is sent, as Envoy's admin would show it: ?proxyID=PROXY[&types=cds,eds,lds,rds]", (*handler).configDump},
	}
}

// Profiles are the profiling endpoints.
func Profiles() []Path {
	return []Path{
		{Pattern: "/debug/pprof/", Help: "profiles of the hub process, for go tool pprof"},
		{Pattern: "/debug/pprof/cmdline", Help: "its command line"},
		{Pattern: "/debug/pprof/profile", Help: "its CPU profile: ?seconds=N"},
		{Pattern: "/debug/pprof/symbol", Help: "its symbols"},
		{Pattern: "/debug/pprof/trace", Help: "its execution trace: ?seconds=N"},
	}
}

// statusError is an error with the HTTP status that it means.
type statusError struct {
	code int
	err  error
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

func notFound(format string, args ...any) error {
	return &statusError{http.StatusNotFound, fmt.Errorf(format, args...)}
}

func badRequest(format string, args ...any) error {
	return &statusError{http.StatusBadRequest, fmt.Errorf(format, args...)}
}

// ServerName is in the Server header of every answer, so that a command can tell a hub from any other
// server.
const ServerName = "isthmus"

type handler struct{ Options }

// New makes the handler of /ready and everything under /debug. /ready answers to anybody, the rest
// to this machine only.
func New(o Options) http.Handler {
	if o.Findings == nil {
		o.Findings = &Findings{Snapshot: o.Snapshot, Now: time.Now}
	}
	h := &handler{o}
	private := http.NewServeMux()
	private.HandleFunc("GET /debug", index)
	private.HandleFunc("GET /debug/{$}", index)
	for _, p := range Paths() {
		private.HandleFunc("GET "+p.Pattern, h.json(p))
	}
	private.HandleFunc("GET /debug/pprof/", pprof.Index)
	private.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	private.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	private.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	private.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
	private.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", h.ready)
	mux.Handle("/debug", LoopbackOnly(private))
	mux.Handle("/debug/", LoopbackOnly(private))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", ServerName)
		mux.ServeHTTP(w, r)
	})
}

func (h *handler) ready(w http.ResponseWriter, _ *http.Request) {
	if err := h.Ready(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

func index(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	for _, p := range append(Paths(), Profiles()...) {
		fmt.Fprintf(w, "%-22s %s\n", p.Pattern, p.Help)
	}
}

func (h *handler) json(p Path) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := p.serve(h, r)
		if err != nil {
			http.Error(w, err.Error(), statusOf(err))
			return
		}
		out, ok := v.(json.RawMessage)
		if !ok {
			if out, err = json.MarshalIndent(v, "", "  "); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write(append(hideUsers(out), '\n')) // an error here means that the caller has gone
	}
}

func statusOf(err error) int {
	var s *statusError
	if errors.As(err, &s) {
		return s.code
	}
	return http.StatusInternalServerError
}

// snapshot is the current version, or an error that says what to wait for.
func (h *handler) snapshot() (*pushcontext.PushContext, error) {
	if pc := h.Snapshot(); pc != nil && pc.Mesh != nil {
		return pc, nil
	}
	return nil, &statusError{http.StatusServiceUnavailable, errors.New("nothing has been committed yet: see /debug/clusterz for what is awaited")}
}
