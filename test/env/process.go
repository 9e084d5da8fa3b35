package env

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

const (
	startLimit = 120 * time.Second // from exec to ready
	logTail    = 4 << 10           // bytes of a log that a failed test shows
)

// process is a server that belongs to this process and dies with it.
type process struct {
	cmd    *exec.Cmd
	log    string
	exited chan struct{} // closed when it is gone
}

// launch runs a program, with its output appended to a log, until ready gives nil.
func launch(ctx context.Context, log, program string, args []string, ready func(context.Context) error) (*process, error) {
	out, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = out, out
	// Ctrl-C is the parent's to handle, its death is not survived.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, log: log, exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // its state is read after exited
		close(p.exited)
	}()
	if err := p.await(ctx, ready); err != nil {
		p.kill()
		return nil, fmt.Errorf("%w; the end of its log:\n%s", err, p.tail())
	}
	return p, nil
}

func (p *process) await(ctx context.Context, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	return envoytest.Poll(ctx, func() error {
		if !p.running() {
			return envoytest.Permanent(fmt.Errorf("it exited (%v)", p.cmd.ProcessState))
		}
		return ready(ctx)
	})
}

func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// kill ends the process without notice. Killing a dead one does nothing.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only if it is gone
	<-p.exited
}

func (p *process) tail() string {
	f, err := os.Open(p.log)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if _, err := f.Seek(-logTail, io.SeekEnd); err != nil && !errors.Is(err, syscall.EINVAL) {
		return err.Error()
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// answers asks a page, which must answer 200.
func answers(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return nil
}
