// Command demo shows the hub at work: it runs one on an example of two
// clusters, with real backends, an Envoy sidecar in each cluster and an Envoy
// gateway, sends requests and prints who answered, takes a backend away and
// shows the change arriving. It leaves all running until Ctrl-C, and then stops
// what it started.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// A closed terminal and a reader that went away end it too: nothing may stay behind.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// options are those of the command line and the environment.
type options struct {
	once    bool
	example string
	hub     string // isthmus binary
}

// run is the command; its result is the exit status: 0 if every expected answer
// came.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	o := options{hub: os.Getenv("ISTHMUS_BIN")}
	if o.hub == "" {
		o.hub = "bin/isthmus"
	}
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.BoolVar(&o.once, "once", false, "end when all is shown, instead of at Ctrl-C")
	flags.StringVar(&o.example, "example", "examples/two-clusters", "folder of clusters to run on a copy of")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if err := show(ctx, o, out); err != nil {
		if ctx.Err() != nil {
			return 1 // interrupted: it is known why
		}
		fmt.Fprintln(errs, "\ndemo:", err)
		return 1
	}
	return 0
}
