package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/isthmus-mesh/isthmus/test/bench/floor"
	"github.com/isthmus-mesh/isthmus/test/bench/world"
)

// roleVar makes this binary a server that its parent drives over its standard input and output, so
// that what the server uses is counted apart from what the proxies use.
const roleVar = "ISTHMUS_BENCH_ROLE"

// The roles.
const (
	roleHub    = "hub"    // a hub with synthetic registries
	roleFloor  = "floor"  // a server of encoded bytes
	roleWriter = "writer" // a controller alone
)

// rpcName is the one service of a server process.
const rpcName = "Server"

// None is an argument or result that says nothing.
type None struct{}

// Setup is what a server is to serve. A hub and a writer take the Spec, a floor the Material.
type Setup struct {
	Spec     world.Spec
	Material floor.Material
}

// Loaded says that a server is ready.
type Loaded struct {
	Addr string
	Took time.Duration
}

// Change gives an endpoint of a service a new address; Count of them change one by one, the last to
// Marker. A server answers with the time (Unix ns) of the last one.
type Change struct {
	Service int
	Count   int
	Every   time.Duration
	Marker  string
}

// Create makes a service in a member.
type Create struct {
	Service int
	Marker  string
}

// Usage is what a process has used since it began. Builds counts encoded resources by type.
type Usage struct {
	CPU           time.Duration
	RSS, Heap     uint64 // bytes
	Goroutines    int
	Builds        map[string]uint64
	Kept          float64 // bytes of encoded resources
	Commits       float64
	CommitSeconds float64
}

func (u Usage) builds() (n uint64) {
	for _, b := range u.Builds {
		n += b
	}
	return n
}

// usage reads what this process has used.
func usage(collect bool) (u Usage, err error) {
	if collect {
		runtime.GC()
		runtime.GC() // the first one's finalizers and cleanups free more
	}
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return u, fmt.Errorf("getrusage: %w", err)
	}
	u.CPU = time.Duration(r.Utime.Nano() + r.Stime.Nano())
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u.Heap, u.Goroutines = m.HeapAlloc, runtime.NumGoroutine()
	u.RSS, err = residentSize()
	return u, err
}

func residentSize() (uint64, error) {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, fmt.Errorf("memory of the process: %w", err)
	}
	f := strings.Fields(string(b))
	if len(f) < 2 {
		return 0, errors.New("memory of the process: /proc/self/statm is short")
	}
	pages, err := strconv.ParseUint(f[1], 10, 64)
	return pages * uint64(os.Getpagesize()), err
}

// profiler is the part of every server that profiles it.
type profiler struct{ file *os.File }

// StartProfile records where the process spends its time, into a file, until StopProfile.
func (p *profiler) StartProfile(path string, _ *None) (err error) {
	if p.file, err = os.Create(path); err != nil {
		return err
	}
	return pprof.StartCPUProfile(p.file)
}

// StopProfile ends the profile.
func (p *profiler) StopProfile(None, *None) error {
	pprof.StopCPUProfile()
	return p.file.Close()
}

// HeapProfile writes what is alive, and what was allocated, into a file.
func (p *profiler) HeapProfile(path string, _ *None) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	runtime.GC()
	return errors.Join(pprof.Lookup("allocs").WriteTo(f, 0), f.Close())
}

// pipe is standard input and output as one connection.
type pipe struct {
	io.Reader
	io.WriteCloser
}

// serveRole runs a server process until its parent hangs up.
func serveRole(role string) error {
	var server any
	switch role {
	case roleHub:
		server = &hubServer{}
	case roleFloor:
		server = &floorServer{}
	case roleWriter:
		server = &writerServer{}
	default:
		return fmt.Errorf("%s: unknown role %q", roleVar, role)
	}
	r := rpc.NewServer()
	if err := r.RegisterName(rpcName, server); err != nil {
		return err
	}
	r.ServeConn(pipe{os.Stdin, os.Stdout})
	return nil
}

// child is a server process.
type child struct {
	cmd *exec.Cmd
	rpc *rpc.Client
}

// spawn starts a server process on so many cores, 0 for all.
func spawn(ctx context.Context, role string, cores int) (*child, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("this program's file: %w", err)
	}
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), roleVar+"="+role)
	if cores > 0 {
		cmd.Env = append(cmd.Env, "GOMAXPROCS="+strconv.Itoa(cores))
	}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the %s process: %w", role, err)
	}
	return &child{cmd: cmd, rpc: rpc.NewClient(pipe{out, in})}, nil
}

// call asks the server; it fails when ctx ends first.
func call[A, R any](ctx context.Context, c *child, method string, args A) (reply R, err error) {
	done := c.rpc.Go(rpcName+"."+method, args, &reply, make(chan *rpc.Call, 1)).Done
	select {
	case x := <-done:
		if x.Error != nil {
			return reply, fmt.Errorf("server process: %s: %w", method, x.Error)
		}
		return reply, nil
	case <-ctx.Done():
		return *new(R), fmt.Errorf("server process: %s: %w", method, ctx.Err())
	}
}

// stop hangs up and waits for the process to end.
func (c *child) stop() error {
	return errors.Join(c.rpc.Close(), c.cmd.Wait())
}
