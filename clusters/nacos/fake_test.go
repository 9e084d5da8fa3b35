package nacos

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// fake is a Nacos server with switches for the faults that a real one will not produce on demand. Its fields are set before it is used, or
// by change.
type fake struct {
	t        *testing.T
	addr     string      // of gRPC
	tls      *tls.Config // nil: plaintext
	httpAddr string

	mu       sync.Mutex
	stop     func() // nil while it is down
	services map[serviceName][]instance
	clients  map[string]*fakeClient // by peer
	clock    int64                  // lastRefTime of the last answer
	tokens   map[string]bool        // that are good
	logins   int
	calls    map[string]int    // requests, by class
	headers  map[string]string // of the last request
	acks     map[string]int    // answers to notices, by class
	changed  chan struct{}     // closed and renewed when anything of these happens

	faults faults
}

// faults are what is wrong with a fake server.
type faults struct {
	skew      func() int64                                              // replaces the clock
	page      func(page int, names []string, count int) ([]string, int) // changes a page of a list
	answer    func(class string, n request) (code int)                  // an error code instead of an answer
	block     func(class string, n request) <-chan struct{}             // an answer waits for it
	silent    bool                                                      // changes are not notified
	noAck     bool                                                      // abilities are not told
	fuzzy     bool                                                      // names are told
	fuzzyCode int                                                       // of the answer to a fuzzy watch
	password  string                                                    // a login needs it, and a request a token
	loginPath string                                                    // where logins are, below /nacos
	list      string                                                    // what the address server lists
	hangLogin bool                                                      // logins get no answer
	register  int                                                       // requests before a connection is registered
}

type fakeClient struct {
	stream     grpc.ServerStream
	send       sync.Mutex
	registered int // requests until it is
	subscribed map[serviceName]bool
	patterns   map[scope]bool
}

func newFake(t *testing.T) *fake {
	t.Helper()
	return newSecureFake(t, nil)
}

func newSecureFake(t *testing.T, secure *tls.Config) *fake {
	t.Helper()
	f := &fake{
		t: t, tls: secure, services: map[serviceName][]instance{}, clients: map[string]*fakeClient{}, tokens: map[string]bool{},
		calls: map[string]int{}, acks: map[string]int{}, changed: make(chan struct{}), faults: faults{loginPath: "/v1/auth/users/login"},
	}
	f.addr = reserved(t)
	f.up()
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.httpAddr = web.Addr().String()
	if secure != nil {
		web = tls.NewListener(web, secure)
	}
	srv := &http.Server{Handler: http.HandlerFunc(f.serveHTTP), ErrorLog: log.New(io.Discard, "", 0)}
	done := make(chan struct{})
	go func() {
		_ = srv.Serve(web) // until it is closed
		close(done)
	}()
	t.Cleanup(func() {
		f.down()
		_ = srv.Close()
		<-done
	})
	return f
}

var fakeServices = []grpc.ServiceDesc{
	{ServiceName: "Request", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{MethodName: "request", Handler: unaryHandler}}},
	{ServiceName: "BiRequestStream", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{
		StreamName: "requestBiStream", ServerStreams: true, ClientStreams: true,
		Handler: func(srv any, s grpc.ServerStream) error { return srv.(*fake).serveStream(s) },
	}}},
}

func unaryHandler(srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	var p payload
	if err := decode(&p); err != nil {
		return nil, err
	}
	return srv.(*fake).serveRequest(ctx, &p)
}

// reserved is an address that nobody else gets until the test ends, also while the server that listens there is down: a socket that does
// not listen has it.
func reserved(t *testing.T) string {
	t.Helper()
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(s) })
	if err := errors.Join(unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Bind(s, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(s)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint("127.0.0.1:", at.(*unix.SockaddrInet4).Port)
}

// up lets the server listen, at the address that it had.
func (f *fake) up() {
	l, err := net.Listen("tcp", f.addr)
	if err != nil {
		f.t.Fatal(err)
	}
	options := []grpc.ServerOption{grpc.ForceServerCodecV2(codec{})}
	if f.tls != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(f.tls)))
	}
	g := grpc.NewServer(options...)
	for i := range fakeServices {
		g.RegisterService(&fakeServices[i], f)
	}
	served := make(chan struct{})
	f.mu.Lock()
	f.stop = func() {
		g.Stop()
		_ = l.Close() // if it was not served yet
		<-served
	}
	f.mu.Unlock()
	go func() {
		_ = g.Serve(l) // until it is stopped
		close(served)
	}()
}

// down cuts all connections.
func (f *fake) down() {
	f.mu.Lock()
	stop := f.stop
	f.stop = nil
	f.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// change changes faults.
func (f *fake) change(do func(*faults)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do(&f.faults)
}

// set makes a service what it is; nil takes it away. Who subscribed is told.
func (f *fake) set(n serviceName, hosts []instance) {
	f.mu.Lock()
	_, had := f.services[n]
	if f.services[n] = hosts; hosts == nil {
		delete(f.services, n)
	}
	var notices []func()
	for _, c := range f.clients {
		if !f.faults.silent && c.subscribed[n] {
			notices = append(notices, c.notice(classNotify, map[string]any{"serviceInfo": f.info(n)}))
		}
		if had != (hosts != nil) && c.patterns[scope{n.namespace, n.group}] {
			change := fuzzyAddService
			if had {
				change = fuzzyDeleteService
			}
			notices = append(notices, c.notice(classFuzzyChange, map[string]any{"serviceKey": n.namespace + "@@" + n.group + "@@" + n.name, "changedType": change}))
		}
	}
	f.mu.Unlock()
	for _, send := range notices {
		send()
	}
}

// tell sends a notice to all clients.
func (f *fake) tell(class string, body any) {
	f.mu.Lock()
	var notices []func()
	for _, c := range f.clients {
		notices = append(notices, c.notice(class, body))
	}
	f.mu.Unlock()
	for _, send := range notices {
		send()
	}
}

func (c *fakeClient) notice(class string, body any) func() {
	return func() {
		c.send.Lock()
		defer c.send.Unlock()
		_ = c.stream.SendMsg(encode(class, body)) // the client may be gone
	}
}

func encode(class string, body any) *payload {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return &payload{class: class, body: text}
}

// info is called with mu held. As a real server, it leaves out what is not enabled.
func (f *fake) info(n serviceName) *serviceInfo {
	out := &serviceInfo{Name: n.name, Group: n.group, Hosts: []instance{}}
	for _, h := range f.services[n] {
		if h.Enabled {
			out.Hosts = append(out.Hosts, h)
		}
	}
	healthy := slices.ContainsFunc(out.Hosts, func(h instance) bool { return h.Healthy })
	if out.Protected = !healthy && len(out.Hosts) > 0; out.Protected {
		for i := range out.Hosts {
			out.Hosts[i].Healthy = true
		}
	}
	f.clock++
	if out.LastRefTime = f.clock; f.faults.skew != nil {
		out.LastRefTime = f.faults.skew()
	}
	return out
}

// clear makes a server that is down forget everything.
func (f *fake) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.services)
}

func (f *fake) note() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// await waits until ok holds for the server, which is locked meanwhile.
func (f *fake) await(what string, ok func() bool) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	for {
		f.mu.Lock()
		done, next := ok(), f.changed
		f.mu.Unlock()
		if done {
			return
		}
		select {
		case <-next:
		case <-ctx.Done():
			f.t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

func (f *fake) serveStream(s grpc.ServerStream) error {
	var p payload
	if err := s.RecvMsg(&p); err != nil {
		return err
	}
	from := peerOf(s.Context())
	c := &fakeClient{stream: s, subscribed: map[serviceName]bool{}, patterns: map[scope]bool{}}
	f.mu.Lock()
	c.registered = f.faults.register
	f.clients[from] = c
	ack := !f.faults.noAck
	fuzzy := f.faults.fuzzy
	f.note()
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.clients, from)
		f.note()
		f.mu.Unlock()
	}()
	if ack {
		c.notice(classSetupAck, map[string]any{"abilityTable": map[string]bool{abilityFuzzyWatch: fuzzy}})()
	}
	for {
		if err := s.RecvMsg(&p); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		f.mu.Lock()
		f.acks[p.class]++
		f.note()
		f.mu.Unlock()
	}
}

func peerOf(ctx context.Context) string {
	p, _ := peer.FromContext(ctx)
	return p.Addr.String()
}

func failure(code int, text string) *payload {
	return encode("ErrorResponse", map[string]any{"resultCode": 500, "errorCode": code, "message": text})
}

func (f *fake) serveRequest(ctx context.Context, p *payload) (*payload, error) {
	var n request
	if err := json.Unmarshal(p.body, &n); err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.calls[p.class]++
	f.headers = p.headers
	f.note()
	block := f.faults.block
	f.mu.Unlock()
	if block != nil {
		if wait := block(p.class, n); wait != nil {
			select {
			case <-wait:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.answer(peerOf(ctx), p, n), nil
}

// answer is called with mu held.
func (f *fake) answer(from string, p *payload, n request) *payload {
	if p.class == classServerCheck {
		return encode("ServerCheckResponse", map[string]any{"resultCode": 200, "connectionId": from})
	}
	c := f.clients[from]
	if c == nil || c.registered > 0 {
		if c != nil {
			c.registered--
		}
		return failure(errorUnregistered, "Connection is unregistered.")
	}
	if p.class != classHealthCheck && f.faults.password != "" && !f.tokens[p.headers["accessToken"]] {
		return failure(errorNoRight, "token invalid! "+p.headers["accessToken"])
	}
	if f.faults.answer != nil {
		if code := f.faults.answer(p.class, n); code != 0 {
			return failure(code, "no")
		}
	}
	return f.do(c, p, n)
}

func (f *fake) do(c *fakeClient, p *payload, n request) *payload {
	name := serviceName{n.Namespace, n.Group, n.Service}
	switch p.class {
	case classList:
		return f.list(p, n)
	case classSubscribe:
		var r subscribeRequest
		_ = json.Unmarshal(p.body, &r)
		if c.subscribed[name] = r.Subscribe; !r.Subscribe {
			delete(c.subscribed, name)
		}
		return encode("SubscribeServiceResponse", map[string]any{"resultCode": 200, "serviceInfo": f.info(name)})
	case classQuery:
		return encode("QueryServiceResponse", map[string]any{"resultCode": 200, "serviceInfo": f.info(name)})
	case classFuzzyWatch:
		return f.fuzzyWatch(c, p)
	}
	return encode(strings.TrimSuffix(p.class, requestSuffix)+responseSuffix, map[string]any{"resultCode": 200})
}

func (f *fake) list(p *payload, n request) *payload {
	var r listRequest
	_ = json.Unmarshal(p.body, &r)
	var names []string
	for s := range f.services {
		if s.namespace == n.Namespace && s.group == n.Group {
			names = append(names, s.name)
		}
	}
	slices.Sort(names)
	count := len(names)
	from := min(count, (r.PageNo-1)*r.PageSize)
	names = names[from:min(count, from+r.PageSize)]
	if f.faults.page != nil {
		names, count = f.faults.page(r.PageNo, names, count)
	}
	return encode("ServiceListResponse", map[string]any{"resultCode": 200, "count": count, "serviceNames": names})
}

func (f *fake) fuzzyWatch(c *fakeClient, p *payload) *payload {
	var r fuzzyRequest
	_ = json.Unmarshal(p.body, &r)
	if f.faults.fuzzyCode != 0 {
		return failure(f.faults.fuzzyCode, "too many")
	}
	parts := strings.Split(r.Pattern, ">>")
	c.patterns[scope{parts[0], parts[1]}] = true
	return encode("NamingFuzzyWatchResponse", map[string]any{"resultCode": 200})
}

func (f *fake) serveHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	if f.faults.hangLogin {
		f.calls["login"]++
		f.note()
		f.mu.Unlock()
		_ = r.ParseForm() // a connection's end is noticed once the body was read
		<-r.Context().Done()
		return
	}
	defer f.mu.Unlock()
	switch r.URL.Path {
	case "/serverlist":
		fmt.Fprint(w, f.faults.list)
	case "/nacos" + f.faults.loginPath:
		if r.FormValue("username") != "reader" || r.FormValue("password") != f.faults.password {
			http.Error(w, "unknown user! "+r.FormValue("password"), http.StatusForbidden)
			return
		}
		f.logins++
		token := fmt.Sprint("token-", f.logins)
		f.tokens[token] = true
		f.note()
		fmt.Fprintf(w, `{"accessToken":%q,"tokenTtl":18000}`, token)
	default:
		http.NotFound(w, r)
	}
}
