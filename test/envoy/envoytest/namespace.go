package envoytest

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace with one interface, eth0, on the bridge of
// its Network. The nil Namespace is the one that the process itself runs in.
type Namespace struct {
	// Read-only after NewNetwork.
	Name string     // as NewNetwork was told
	Addr netip.Addr // of eth0
	id   string     // as `ip netns` knows it
}

// path of the namespace's file, by which a thread enters it.
func (n *Namespace) path() string { return "/var/run/netns/" + n.id }

// Do calls fn on a thread inside the namespace. What fn itself opens or starts
// stays there: sockets, processes. Goroutines that fn starts are outside.
func (n *Namespace) Do(fn func() error) error {
	if n == nil {
		return fn()
	}
	done := make(chan error, 1)
	go func() { done <- n.enter(fn) }()
	return <-done
}

// enter must be a goroutine's only work: if the way back fails, the thread
// stays locked and so dies with the goroutine instead of serving others in the
// wrong namespace.
func (n *Namespace) enter(fn func() error) error {
	runtime.LockOSThread()
	home, err := os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
	if err != nil {
		return err
	}
	defer home.Close()
	target, err := os.Open(n.path())
	if err != nil {
		return err
	}
	defer target.Close()
	if err := unix.Setns(int(target.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter namespace %s: %w", n.Name, err)
	}
	result := fn()
	if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("leave namespace %s: %w", n.Name, err)
	}
	runtime.UnlockOSThread()
	return result
}

// Dial connects over TCP from inside the namespace. Addr must hold an IP
// address: names are resolved on other threads.
func (n *Namespace) Dial(ctx context.Context, addr string) (net.Conn, error) {
	if _, err := netip.ParseAddrPort(addr); err != nil && n != nil {
		return nil, fmt.Errorf("dial in namespace %s: %w", n.Name, err)
	}
	var conn net.Conn
	err := n.Do(func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, "tcp", addr)
		return err
	})
	return conn, err
}

// Listen opens a TCP listener at an "IP:PORT" inside the namespace.
func (n *Namespace) Listen(addr string) (net.Listener, error) {
	if _, err := netip.ParseAddrPort(addr); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	var l net.Listener
	err := n.Do(func() (err error) {
		l, err = net.Listen("tcp", addr)
		return err
	})
	return l, err
}

// Start starts a command inside the namespace.
func (n *Namespace) Start(cmd *exec.Cmd) error { return n.Do(cmd.Start) }

// Run runs a command inside the namespace; an error carries what it printed.
func (n *Namespace) Run(ctx context.Context, stdin, name string, args ...string) error {
	_, err := n.run(ctx, stdin, name, args...)
	return err
}

// Output is Run without input, for what the command prints.
func (n *Namespace) Output(ctx context.Context, name string, args ...string) (string, error) {
	return n.run(ctx, "", name, args...)
}

func (n *Namespace) run(ctx context.Context, stdin, name string, args ...string) (string, error) {
	var out strings.Builder
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &out
	if err := n.Start(cmd); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(out.String()))
	}
	return out.String(), nil
}
