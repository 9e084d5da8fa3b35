package envoytest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	startLimit = 2 * time.Minute // from exec to a readable admin address
	stopLimit  = time.Minute     // from SIGTERM to SIGKILL
	logTail    = 16 << 10        // bytes of log shown when a test fails
)

// Options describe one Envoy process.
type Options struct {
	// Name is used in messages; default "envoy".
	Name string
	// Bootstrap is the configuration, YAML or JSON. Its admin address is
	// replaced by a free port of 127.0.0.1.
	Bootstrap []byte
	// Namespace to run in; nil is the caller's own.
	Namespace *Namespace
	// UID and GID to run as; 0 is the caller's own. Sidecars behind
	// Namespace.Intercept run as ProxyUID.
	UID int
	// LogLevel is Envoy's --log-level; default "warning".
	LogLevel string
	// Concurrency is the number of worker threads; default 1.
	Concurrency int
	// Resolver answers what the Envoy asks of DNS; zero is the machine's own. Start skips the test where a process can't
	// have mounts of its own.
	Resolver netip.AddrPort
	// Args are added to the command line.
	Args []string
	// Binary is the Envoy to run; default Binary().
	Binary string
}

func (o *Options) setDefaults(ctx context.Context) (err error) {
	if o.Name == "" {
		o.Name = "envoy"
	}
	if o.LogLevel == "" {
		o.LogLevel = "warning"
	}
	if o.Concurrency == 0 {
		o.Concurrency = 1
	}
	if o.Binary == "" {
		o.Binary, err = Binary(ctx)
	}
	return err
}

// Envoy is a running Envoy process. Its methods may be called from several
// goroutines.
type Envoy struct {
	// Read-only after Launch.
	Name     string
	AdminURL string // "http://127.0.0.1:PORT", reachable inside its namespace
	admin    *http.Client
	dir      string // private folder: configuration, admin address, log
	cmd      *exec.Cmd

	exited chan struct{} // closed when the process is gone
	status error         // of the process; readable after exited
}

// Start runs an Envoy for the length of a test.
func Start(t testing.TB, opts Options) *Envoy {
	t.Helper()
	if opts.Resolver.IsValid() {
		if err := unshare("true").Run(); err != nil {
			t.Skipf("skipped: a resolver of its own takes a mount namespace: %v", err)
		}
	}
	e, err := Launch(t.Context(), opts)
	if err != nil {
		t.Fatalf("start envoy: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of envoy %s (its end):\n%s", e.Name, e.Log())
		}
		if err := e.Close(); err != nil {
			t.Errorf("close envoy %s: %v", e.Name, err)
		}
	})
	return e
}

// Launch runs an Envoy until Close. It returns when the admin interface is up,
// which is before the Envoy is ready to serve: see WaitReady. An Envoy that
// exits at once, for instance over its configuration, is an error with the end
// of its log.
func Launch(ctx context.Context, opts Options) (*Envoy, error) {
	if err := opts.setDefaults(ctx); err != nil {
		return nil, err
	}
	config, err := withAdmin(opts.Bootstrap)
	if err != nil {
		return nil, fmt.Errorf("envoy %s: %w", opts.Name, err)
	}
	dir, err := workDir(config, opts.UID)
	if err != nil {
		return nil, fmt.Errorf("envoy %s: %w", opts.Name, err)
	}
	if opts.Resolver.IsValid() {
		if err := os.WriteFile(filepath.Join(dir, resolverFile), fmt.Appendf(nil, "nameserver %s\n", opts.Resolver), 0o644); err != nil {
			return nil, errors.Join(fmt.Errorf("envoy %s: %w", opts.Name, err), os.RemoveAll(dir))
		}
	}
	e := &Envoy{Name: opts.Name, admin: opts.Namespace.HTTPClient(), dir: dir, exited: make(chan struct{})}
	if err := e.run(opts); err != nil {
		return nil, errors.Join(fmt.Errorf("envoy %s: %w", opts.Name, err), os.RemoveAll(dir))
	}
	if err := e.waitAdmin(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("envoy %s: %w", opts.Name, err), e.Close())
	}
	return e, nil
}

// workDir makes a folder that the Envoy's user may read and write, holding the
// configuration. It is not in t.TempDir, which other users cannot enter.
func workDir(config []byte, uid int) (string, error) {
	dir, err := os.MkdirTemp("", "isthmus-envoy-")
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "bootstrap.json")
	err = errors.Join(os.Chmod(dir, 0o755), os.WriteFile(file, config, 0o644))
	if uid != 0 {
		err = errors.Join(err, os.Chown(dir, uid, uid))
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

// run starts the process and the goroutine that reaps it.
func (e *Envoy) run(opts Options) error {
	binary, err := os.Open(opts.Binary)
	if err != nil {
		return err
	}
	defer binary.Close()
	log, err := os.Create(filepath.Join(e.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	e.cmd = command(opts, e.dir)
	e.cmd.Stdout, e.cmd.Stderr = log, log
	e.cmd.ExtraFiles = []*os.File{binary}
	if err := opts.Namespace.Do(e.cmd.Start); err != nil {
		return fmt.Errorf("start %s: %w", opts.Binary, err)
	}
	go func() {
		e.status = e.cmd.Wait()
		close(e.exited)
	}()
	return nil
}

// command builds the process. The binary is executed through an inherited
// descriptor, number 3: the cache may lie in a home folder that the Envoy's
// user cannot enter.
func command(opts Options, dir string) *exec.Cmd {
	cmd := exec.Command("/proc/self/fd/3", append([]string{
		"--config-path", filepath.Join(dir, "bootstrap.json"),
		"--admin-address-path", filepath.Join(dir, "admin"),
		"--disable-hot-restart",
		"--concurrency", strconv.Itoa(opts.Concurrency),
		"--log-level", opts.LogLevel,
	}, opts.Args...)...)
	cmd.Args[0] = "envoy"
	if opts.Resolver.IsValid() {
		cmd = withResolver(cmd, filepath.Join(dir, resolverFile))
	}
	cmd.Dir = dir
	// An own process group keeps a terminal's Ctrl-C for the parent, which then
	// stops its Envoys in order; should the parent be killed, they go too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if opts.UID != 0 {
		id := uint32(opts.UID)
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: id, Gid: id}
	}
	return cmd
}

// resolverFile is in the Envoy's folder, and in the place of the machine's own.
const resolverFile = "resolv.conf"

// withResolver has the command see the file as /etc/resolv.conf: clusters say how they are resolved, but not by whom.
func withResolver(cmd *exec.Cmd, file string) *exec.Cmd {
	const script = `mount --bind "$1" /etc/resolv.conf && shift && exec "$@"`
	return unshare(append([]string{"sh", "-c", script, "envoy", file, cmd.Path}, cmd.Args[1:]...)...)
}

// unshare runs a command that others don't see the mounts of.
func unshare(args ...string) *exec.Cmd {
	flags := []string{"--mount", "--propagation", "private"}
	if os.Geteuid() != 0 {
		flags = append(flags, "--map-root-user")
	}
	return exec.Command("unshare", append(flags, args...)...)
}

// waitAdmin waits for the file into which Envoy writes its admin address.
func (e *Envoy) waitAdmin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	return Poll(ctx, func() error {
		if err := e.alive(); err != nil {
			return err
		}
		addr, err := os.ReadFile(filepath.Join(e.dir, "admin"))
		if err != nil {
			return fmt.Errorf("no admin address yet: %w", err)
		}
		if len(addr) == 0 {
			return errors.New("no admin address yet: the file is empty")
		}
		e.AdminURL = "http://" + strings.TrimSpace(string(addr))
		return nil
	})
}

// alive is a Permanent error if the process has exited.
func (e *Envoy) alive() error {
	select {
	case <-e.exited:
		return Permanent(fmt.Errorf("it exited (%v); the end of its log:\n%s", e.cmd.ProcessState, e.Log()))
	default:
		return nil
	}
}

// Pid of the process.
func (e *Envoy) Pid() int { return e.cmd.Process.Pid }

// Exited is closed when the process is gone, for whatever reason.
func (e *Envoy) Exited() <-chan struct{} { return e.exited }

// Stop asks the process to end (SIGTERM, which cuts requests in flight) and
// waits until it is gone. Stopping a stopped Envoy does nothing.
func (e *Envoy) Stop() error {
	return e.end(syscall.SIGTERM)
}

// Kill ends the process without notice (SIGKILL) and waits until it is gone.
func (e *Envoy) Kill() error {
	return e.end(syscall.SIGKILL)
}

func (e *Envoy) end(signal syscall.Signal) error {
	if err := e.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	select {
	case <-e.exited:
		return nil
	case <-limit.C:
	}
	if signal == syscall.SIGKILL {
		return fmt.Errorf("process %d outlives SIGKILL", e.Pid())
	}
	return e.end(syscall.SIGKILL)
}

// Close stops the process if it still runs and removes its files.
func (e *Envoy) Close() error {
	return errors.Join(e.Stop(), os.RemoveAll(e.dir))
}

// Log is the end of what the process has written so far.
func (e *Envoy) Log() string { return tail(filepath.Join(e.dir, "log")) }

// tail is the end of a log file, or why it cannot be read.
func tail(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > logTail {
		if _, err := f.Seek(-logTail, io.SeekEnd); err != nil {
			return err.Error()
		}
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
