package nacos

import (
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/clusters/foreign"
)

// errDenied is an answer that says that the credentials do not do.
var errDenied = errors.New("access is denied")

// loginPaths are where servers take a name and a password, newest first. Where there is none, they answer one of absentStatus.
var loginPaths = []string{"/v3/auth/user/login", "/v1/auth/users/login", "/v1/auth/login"}

var absentStatus = []int{http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone, http.StatusNotImplemented}

const defaultTokenLife = 5 * time.Hour

// auth is what requests show. It keeps the token between sessions.
type auth struct {
	access foreign.Access
	http   *http.Client
	path   string // of Nacos' HTTP API: "/nacos"
	secure bool
	timing timing
	now    func() time.Time

	turn  chan struct{} // held by who logs in
	tried time.Time     // when somebody did; belongs to who holds turn

	mu    sync.Mutex
	token token // guarded by mu
}

type token struct {
	text     string
	got, end time.Time
}

func newAuth(a foreign.Access, c *http.Client, path string, secure bool, t timing, now func() time.Time) *auth {
	out := &auth{access: a, http: c, path: "/" + strings.Trim(path, "/"), secure: secure, timing: t, now: now, turn: make(chan struct{}, 1)}
	if out.path == "/" {
		out.path = ""
	}
	return out
}

func (a *auth) logsIn() bool { return a.access.Username != "" }

func (a *auth) current() token {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.token
}

// headers authenticate a request about a service of a group; both may be empty.
func (a *auth) headers(group, service string) map[string]string {
	out := map[string]string{}
	if t := a.current(); t.text != "" {
		out["accessToken"] = t.text
	} else if a.access.Token != "" {
		out["accessToken"] = a.access.Token
	}
	if a.access.AccessKey != "" {
		data := strconv.FormatInt(a.now().UnixMilli(), 10)
		if service != "" || group != "" {
			data += "@@" + groupedName(group, service)
		}
		out["ak"], out["data"], out["signature"] = a.access.AccessKey, data, sign(data, a.access.SecretKey)
	}
	return out
}

func groupedName(group, service string) string {
	if group == "" || strings.Contains(service, "@@") {
		return service
	}
	return group + "@@" + service
}

// sign is how Nacos' clients sign requests about services: HMAC with SHA-1, in base 64.
func sign(data, key string) string {
	mac := hmac.New(sha1.New, []byte(key))
	mac.Write([]byte(data))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// ensure logs in if there is no token that lasts a while.
func (a *auth) ensure(ctx context.Context, s server) error {
	if !a.logsIn() || a.now().Before(a.renewal()) {
		return nil
	}
	return a.login(ctx, s, a.current(), 0)
}

// renewal is when the token should be replaced: when a tenth of its life is left.
func (a *auth) renewal() time.Time {
	t := a.current()
	return t.end.Add(-t.end.Sub(t.got) / 10)
}

// refused is told that a request with the token was denied. It gives an error unless there is another now.
func (a *auth) refused(ctx context.Context, s server, used string) error {
	if !a.logsIn() {
		return errDenied
	}
	return a.login(ctx, s, token{text: used}, a.timing.relogin)
}

// login replaces a token; if someone else has replaced it, it does nothing. It fails if the last login is not as long ago as pause.
func (a *auth) login(ctx context.Context, s server, old token, pause time.Duration) error {
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if t := a.current(); t.text != old.text {
		return nil
	}
	if a.now().Sub(a.tried) < pause {
		return fmt.Errorf("%w, and the last login was just now", errDenied)
	}
	a.tried = a.now()
	ctx, cancel := context.WithTimeout(ctx, a.timing.login)
	defer cancel()
	t, err := a.ask(ctx, s)
	if err != nil {
		return fmt.Errorf("log in at %s: %w", s, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.token = t
	return nil
}

func (a *auth) ask(ctx context.Context, s server) (t token, err error) {
	for _, path := range loginPaths {
		var status int
		if t, status, err = a.askAt(ctx, s, path); !slices.Contains(absentStatus, status) {
			break
		}
	}
	return t, err
}

func (a *auth) askAt(ctx context.Context, s server, path string) (token, int, error) {
	scheme := "http://"
	if a.secure {
		scheme = "https://"
	}
	form := url.Values{"username": {a.access.Username}, "password": {a.access.Password}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, scheme+s.String()+a.path+path, strings.NewReader(form.Encode()))
	if err != nil {
		return token{}, 0, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := a.http.Do(req)
	if err != nil {
		return token{}, 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return token{}, 0, err
	}
	switch resp.StatusCode {
	case http.StatusOK:
		t, err := parseToken(body, a.now())
		return t, resp.StatusCode, err
	case http.StatusUnauthorized, http.StatusForbidden:
		return token{}, resp.StatusCode, fmt.Errorf("%w: the user name or password is wrong (%s)", errDenied, statusText(resp))
	case http.StatusInternalServerError: // of version 3.1, where a wrong password is an exception that nobody catches
		return token{}, resp.StatusCode, fmt.Errorf("%w: the server fails (%s), as it does if the password is wrong", errDenied, statusText(resp))
	}
	return token{}, resp.StatusCode, errors.New(statusText(resp))
}

// statusText is that of an answer, which need not have a text.
func statusText(resp *http.Response) string { return strings.TrimSpace(resp.Status) }

// parseToken reads the answer to a login, which newer servers may wrap.
func parseToken(body []byte, now time.Time) (token, error) {
	type answer struct {
		Token string `json:"accessToken"`
		Life  int64  `json:"tokenTtl"` // seconds
	}
	var a struct {
		answer
		Data answer `json:"data"`
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return token{}, errors.New("the answer is no JSON") // it may hold a token
	}
	got := a.answer
	if got.Token == "" {
		got = a.Data
	}
	if got.Token == "" {
		return token{}, errors.New("the answer holds no token")
	}
	life := defaultTokenLife
	if got.Life > 0 && got.Life < int64(365*24*time.Hour/time.Second) {
		life = time.Duration(got.Life) * time.Second
	}
	return token{text: got.Token, got: now, end: now.Add(life)}, nil
}

// redact takes credentials out of what a server says.
func (a *auth) redact(text string) string {
	for _, secret := range []string{a.current().text, a.access.Token, a.access.Password, a.access.SecretKey} {
		if len(secret) > 3 {
			text = strings.ReplaceAll(text, secret, "…")
		}
	}
	return text
}
