package nacos

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

const (
	unaryMethod  = "/Request/request"
	streamMethod = "/BiRequestStream/requestBiStream"
	maxMessage   = 32 << 20 // bytes: a service with 50 000 instances
	maxText      = 200      // bytes of what a server says that are repeated
	// clientVersion is what the server shows for us. Nacos reads versions in this form.
	clientVersion = "Isthmus-Go-Client:v1.0.0"
)

// serverError is an answer that says that a request failed.
type serverError struct {
	class string // of the request
	code  int
	text  string
}

func (e *serverError) Error() string {
	return fmt.Sprintf("%s: the server says %d: %s", strings.TrimSuffix(e.class, requestSuffix), e.code, e.text)
}

// Is makes an answer about missing rights errDenied.
func (e *serverError) Is(target error) bool { return target == errDenied && e.code == errorNoRight }

// session is one connection to one server. Everything that was asked for over it ends with it. Its methods may be called by
// any goroutine; what it is told by the server goes to its owner as events, in order.
type session struct {
	server  server
	cc      *grpc.ClientConn
	auth    *auth
	pace    *rate.Limiter
	timing  timing
	metrics *metrics
	stream  grpc.ClientStream
	events  chan func(*watcher)

	ctx  context.Context // ends with the session; its cause says why
	end  context.CancelCauseFunc
	work sync.WaitGroup
}

// dialer is what all sessions of a registry have in common.
type dialer struct {
	auth    *auth
	pace    *rate.Limiter
	tls     *tls.Config
	timing  timing
	metrics *metrics
}

// dial connects to a server and registers there. The session ends with ctx; it must be closed.
func (d dialer) dial(ctx context.Context, to server) (*session, error) {
	creds := insecure.NewCredentials()
	if d.tls != nil {
		creds = credentials.NewTLS(d.tls)
	}
	cc, err := grpc.NewClient("passthrough:///"+to.grpcAddr(), grpc.WithTransportCredentials(creds), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(), grpc.WithIdleTimeout(0), grpc.WithUserAgent("isthmus"),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return nil, err
	}
	s := &session{server: to, cc: cc, auth: d.auth, pace: d.pace, timing: d.timing, metrics: d.metrics, events: make(chan func(*watcher), 64)}
	s.ctx, s.end = context.WithCancelCause(ctx)
	if err := s.open(); err != nil {
		s.close(err)
		return nil, err
	}
	return s, nil
}

// open does what comes before the first request: all of it on one HTTP/2 connection, which the server knows the client by.
func (s *session) open() error {
	if err := s.auth.ensure(s.ctx, s.server); err != nil {
		return err
	}
	var check serverCheckResponse
	if err := s.ask(s.ctx, classServerCheck, nil, plainRequest{"internal"}, &check); err != nil {
		return err
	}
	stream, err := s.cc.NewStream(s.ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, streamMethod)
	if err != nil {
		return plainError(err)
	}
	s.stream = stream
	if err := s.send(classSetup, setupRequest{
		plainRequest: plainRequest{"internal"}, ClientVersion: clientVersion,
		Labels: map[string]string{"source": "sdk", "module": "naming", "AppName": "isthmus"}, Abilities: map[string]bool{abilityFuzzyWatch: true},
	}); err != nil {
		return err
	}
	s.work.Go(func() { s.end(s.receive()) })
	if err := s.registered(); err != nil {
		return err
	}
	s.work.Go(func() { s.end(s.beat()) })
	return nil
}

// registered waits until the server has taken note of the connection, which it does some time after the stream begins.
func (s *session) registered() error {
	for late := time.Now().Add(s.timing.request); ; {
		err := s.ask(s.ctx, classHealthCheck, nil, plainRequest{"internal"}, nil)
		var e *serverError
		if !errors.As(err, &e) || e.code != errorUnregistered || time.Now().After(late) {
			return err
		}
		if err := sleep(s.ctx, s.timing.poll); err != nil {
			return err
		}
	}
}

// close ends the session and waits for all that it started.
func (s *session) close(cause error) {
	s.end(cause)
	_ = s.cc.Close() // it fails only if it is closed
	s.work.Wait()
}

func (s *session) tell(f func(*watcher)) {
	select {
	case s.events <- f:
	case <-s.ctx.Done():
	}
}

// send writes to the stream. It is called by the goroutine that opens the session, and then by the one that receives.
func (s *session) send(class string, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	if err := s.stream.SendMsg(&payload{class: class, body: text}); err != nil && !errors.Is(err, io.EOF) {
		return plainError(err)
	}
	return nil // io.EOF: why is what receive gets
}

// receive acknowledges and passes on what the server says, until the stream ends.
func (s *session) receive() error {
	for {
		var p payload
		if err := s.stream.RecvMsg(&p); err != nil {
			if errors.Is(err, io.EOF) {
				return errors.New("the server has closed the connection")
			}
			return plainError(err)
		}
		var n notice
		if err := json.Unmarshal(p.body, &n); err != nil {
			n = notice{} // what it is about is not known
			s.tell((*watcher).missed)
		}
		if err := s.handle(p.class, n); err != nil {
			return err
		}
	}
}

// handle takes a notice. One that is not known is acknowledged too, or the server would take the client for dead.
func (s *session) handle(class string, n notice) error {
	at := s.auth.now()
	switch class {
	case classSetupAck:
		s.tell(func(w *watcher) { w.able(n.Abilities) })
		return nil // takes no answer
	case classNotify:
		s.tell(func(w *watcher) { w.pushed(n.about(), n.Info, at) })
	case classFuzzySync:
		s.tell(func(w *watcher) { w.named(n.Contexts) })
	case classFuzzyChange:
		s.tell(func(w *watcher) { w.named([]fuzzyContext{{Key: n.Key, Changed: n.Changed}}) })
	}
	ack := struct {
		ResultCode int    `json:"resultCode"`
		RequestID  string `json:"requestId"`
	}{resultSuccess, n.RequestID}
	if err := s.send(strings.TrimSuffix(class, requestSuffix)+responseSuffix, ack); err != nil {
		return err
	}
	if class == classReset {
		return &resetError{host: n.ServerIP, port: fmt.Sprint(n.ServerPort)}
	}
	return nil
}

// resetError ends a session that the server wants to go elsewhere; host and port may say where.
type resetError struct{ host, port string }

func (*resetError) Error() string { return "the server asks to connect anew" }

// beat asks for a sign of life now and then. The token is renewed on the way.
func (s *session) beat() error {
	for misses := 0; ; {
		if err := sleep(s.ctx, s.timing.beat); err != nil {
			return err
		}
		if err := s.auth.ensure(s.ctx, s.server); err != nil && s.auth.now().After(s.auth.current().end) {
			return err
		}
		err := s.ask(s.ctx, classHealthCheck, nil, plainRequest{"internal"}, nil)
		var refusal *serverError
		switch {
		case err == nil:
			misses = 0
		case errors.As(err, &refusal):
			return err
		default:
			if misses++; misses == maxMisses {
				return fmt.Errorf("no sign of life: %w", err)
			}
		}
	}
}

const maxMisses = 2 // signs of life, before a server is taken for dead

// call makes a request about a service of a group, at the pace that is allowed. A token that has ended is replaced once.
func (s *session) call(ctx context.Context, class, group, service string, body, into any) error {
	for again := false; ; again = true {
		if err := s.pace.Wait(ctx); err != nil {
			return err
		}
		headers := s.auth.headers(group, service)
		err := s.ask(ctx, class, headers, body, into)
		s.metrics.request(err)
		if !errors.Is(err, errDenied) || again {
			return err
		}
		if s.auth.refused(ctx, s.server, headers["accessToken"]) != nil {
			return err
		}
	}
}

// ask makes a request.
func (s *session) ask(ctx context.Context, class string, headers map[string]string, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timing.request)
	defer cancel()
	var p payload
	if err := s.cc.Invoke(ctx, unaryMethod, &payload{class: class, headers: headers, body: text}, &p); err != nil {
		return plainError(err)
	}
	var r response
	if err := json.Unmarshal(p.body, &r); err != nil {
		return fmt.Errorf("%s: the answer is no JSON", class)
	}
	if r.ResultCode != resultSuccess {
		return &serverError{class: class, code: r.ErrorCode, text: clip(s.auth.redact(r.Message))}
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(p.body, into); err != nil {
		return fmt.Errorf("%s: the answer can't be read: %s", class, clip(err.Error()))
	}
	return nil
}

// plainError gives an error of gRPC without its wrapping; a time-out stays recognisable.
func plainError(err error) error {
	st, ok := status.FromError(err)
	switch {
	case !ok:
		return err
	case st.Code() == codes.DeadlineExceeded:
		return context.DeadlineExceeded
	case st.Code() == codes.Canceled:
		return context.Canceled
	}
	return fmt.Errorf("%s: %s", st.Code(), clip(st.Message()))
}

func clip(text string) string {
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}

// sleep waits, or gives the cause of ctx's end.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
