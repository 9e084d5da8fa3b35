package envoytest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// HTTPClient dials inside the namespace, over HTTP/1.1, a fresh connection for
// each request.
func (n *Namespace) HTTPClient() *http.Client {
	return n.client(HTTP1)
}

// HTTP2Client is HTTPClient over HTTP/2 with prior knowledge. It keeps its
// connections: call CloseIdleConnections at the end.
func (n *Namespace) HTTP2Client() *http.Client {
	return n.client(HTTP2)
}

func (n *Namespace) client(kind Kind) *http.Client {
	var protocols http.Protocols
	protocols.SetHTTP1(kind == HTTP1)
	protocols.SetUnencryptedHTTP2(kind == HTTP2)
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: kind == HTTP1,
		Protocols:         &protocols,
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return n.Dial(ctx, addr)
		},
	}}
}

// StatusError is an HTTP answer other than 200.
type StatusError struct {
	Code int
	Body string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("status %d: %s", e.Code, strings.TrimSpace(e.Body))
}

// Get asks url for host (the Host header; "" leaves the one of the URL) and
// reads the Answer of a Backend. A status other than 200 is a *StatusError.
func Get(ctx context.Context, client *http.Client, url, host string) (Answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return Answer{}, err
	}
	req.Host = host
	resp, err := client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return Answer{}, fmt.Errorf("get %s: %w", url, err)
	}
	if resp.StatusCode != http.StatusOK {
		return Answer{}, fmt.Errorf("get %s: %w", url, &StatusError{Code: resp.StatusCode, Body: string(body)})
	}
	var answer Answer
	if err := json.Unmarshal(body, &answer); err != nil {
		return Answer{}, fmt.Errorf("get %s: not the answer of a backend: %w", url, err)
	}
	return answer, nil
}

// EchoTCP connects to addr ("IP:PORT") in ns, reads the backend's line, sends
// text, reads it back, and returns the line without its end, "NAME CLUSTER".
func EchoTCP(ctx context.Context, ns *Namespace, addr, text string) (string, error) {
	conn, err := ns.Dial(ctx, addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if _, err := io.WriteString(conn, text); err != nil {
		return "", fmt.Errorf("echo at %s: %w", addr, err)
	}
	in := bufio.NewReader(conn)
	banner, err := in.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("echo at %s: read its name: %w", addr, err)
	}
	back := make([]byte, len(text))
	if _, err := io.ReadFull(in, back); err != nil {
		return "", fmt.Errorf("echo at %s: %w", addr, err)
	}
	if string(back) != text {
		return "", fmt.Errorf("echo at %s: sent %q, got %q", addr, text, back)
	}
	return strings.TrimSuffix(banner, "\n"), nil
}
