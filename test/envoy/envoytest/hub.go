package envoytest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// hubReady bounds the time from exec to an open serving gate.
const hubReady = 2 * time.Minute

// HubOptions describe one hub process.
type HubOptions struct {
	// Binary is the isthmus command.
	Binary string
	// Dir holds the clusters; "" if they are elsewhere, as Args say.
	Dir string
	// GRPC, HTTP and Monitoring are the addresses that it listens on, "IP:PORT".
	GRPC, HTTP, Monitoring string
	// Log is the file that its output is appended to.
	Log string
	// Args are added to the command line.
	Args []string
	// Env is added to the environment.
	Env []string
}

// Hub is a hub process that can be stopped and started again.
type Hub struct {
	// Read-only after NewHub.
	GRPC       string // "IP:PORT" of ADS
	URL        string // of its debug endpoints
	MetricsURL string
	opts       HubOptions
	client     *http.Client

	// Owned by the caller of Start and Stop.
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process is gone
}

// LaunchHub runs a hub until Stop. It is ready when this returns.
func LaunchHub(ctx context.Context, opts HubOptions) (*Hub, error) {
	h := NewHub(opts)
	return h, h.Start(ctx)
}

// NewHub describes a hub that does not run yet.
func NewHub(opts HubOptions) *Hub {
	gone := make(chan struct{})
	close(gone)
	return &Hub{
		GRPC:       opts.GRPC,
		URL:        "http://" + opts.HTTP,
		MetricsURL: "http://" + opts.Monitoring + "/metrics",
		opts:       opts,
		client:     (*Namespace)(nil).HTTPClient(),
		exited:     gone,
	}
}

// StartHub runs a hub for the length of a test.
func StartHub(t testing.TB, opts HubOptions) *Hub {
	t.Helper()
	h, err := LaunchHub(t.Context(), opts)
	if err != nil {
		t.Fatalf("start hub: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the hub:\n%s", h.Log())
		}
		if err := h.Stop(); err != nil {
			t.Errorf("stop hub: %v", err)
		}
	})
	return h
}

// Start runs the process, again or for the first time, and waits until it is
// ready.
func (h *Hub) Start(ctx context.Context) error {
	log, err := os.OpenFile(h.opts.Log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(h.opts.Binary, h.args()...)
	cmd.Stdout, cmd.Stderr, cmd.Env = log, log, append(os.Environ(), h.opts.Env...)
	// As for Envoys: Ctrl-C is the parent's to handle, its death is not survived.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its state is read after exited
		close(exited)
	}()
	h.cmd, h.exited = cmd, exited
	if err := h.waitReady(ctx); err != nil {
		return errors.Join(fmt.Errorf("hub: %w", err), h.Kill())
	}
	return nil
}

func (h *Hub) args() []string {
	args := []string{"serve", "--grpc-addr", h.GRPC, "--http-addr", h.opts.HTTP, "--monitoring-addr", h.opts.Monitoring}
	if h.opts.Dir != "" {
		args = append(args, "--dir", h.opts.Dir)
	}
	return append(args, h.opts.Args...)
}

func (h *Hub) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, hubReady)
	defer cancel()
	return Poll(ctx, func() error {
		if !h.Running() {
			return Permanent(fmt.Errorf("it exited (%v); the end of its log:\n%s", h.cmd.ProcessState, h.Log()))
		}
		_, err := h.Get(ctx, h.URL+"/ready")
		return err
	})
}

// Stop asks the process to end (SIGTERM) and waits until it is gone. An exit
// status other than 0 is an error. Stopping a stopped hub does nothing.
func (h *Hub) Stop() error {
	if !h.Running() {
		return nil
	}
	if err := h.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	select {
	case <-h.exited:
	case <-limit.C:
		return errors.Join(errors.New("the hub outlives SIGTERM"), h.Kill())
	}
	if !h.cmd.ProcessState.Success() {
		return fmt.Errorf("the hub exited with %v", h.cmd.ProcessState)
	}
	return nil
}

// Kill ends the process without notice (SIGKILL) and waits until it is gone.
func (h *Hub) Kill() error {
	err := h.cmd.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-h.exited
	return err
}

// Running reports whether the process is there.
func (h *Hub) Running() bool {
	select {
	case <-h.exited:
		return false
	default:
		return true
	}
}

// Get reads a page of the hub, such as URL+"/debug/clusterz". A status other
// than 200 is a *StatusError.
func (h *Hub) Get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %w", url, &StatusError{Code: resp.StatusCode, Body: string(body)})
	}
	return body, err
}

// Metric is the sum of a metric over all its labels that hold the pairs, each
// `name="value"`; 0 if there is none.
func (h *Hub) Metric(ctx context.Context, name string, pairs ...string) (float64, error) {
	body, err := h.Get(ctx, h.MetricsURL)
	if err != nil {
		return 0, err
	}
	return sumMetric(body, name, pairs)
}

// sumMetric reads the text format of Prometheus.
func sumMetric(body []byte, name string, pairs []string) (sum float64, err error) {
	for line := range bytes.Lines(body) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(string(line)), name)
		if !ok || rest == "" || (rest[0] != '{' && rest[0] != ' ') {
			continue
		}
		space := strings.LastIndexByte(rest, ' ')
		if !containsAll(rest[:space], pairs) {
			continue
		}
		v, err := strconv.ParseFloat(rest[space+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("metric %s: %w", name, err)
		}
		sum += v
	}
	return sum, nil
}

func containsAll(s string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return false
		}
	}
	return true
}

// Log is the end of what the hub has written, over all its runs.
func (h *Hub) Log() string { return tail(h.opts.Log) }
