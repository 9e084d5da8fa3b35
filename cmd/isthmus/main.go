// Command isthmus is the hub of a multi-cluster service mesh, and the command line to look into one.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
)

// version is set by the linker.
var version = "unknown"

func main() {
	// What libraries have to say comes as errors too, and the log has one form.
	klog.SetLogger(logr.Discard())
	log.SetOutput(io.Discard)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(execute(ctx, newRoot(time.Now), os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs one command line and gives its exit code.
func execute(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(stderr, "isthmus:", err)
	var e *exitError
	if errors.As(err, &e) {
		return e.code
	}
	fmt.Fprintln(stderr, "See 'isthmus --help', or --help behind any command.")
	return exitUsage // only what cobra itself refuses comes without a code
}

// newRoot makes the command tree; now is what ages are counted to.
func newRoot(now func() time.Time) *cobra.Command {
	root := &cobra.Command{
		Use:   "isthmus",
		Short: "Join clusters into one service mesh",
		Long: `Isthmus joins clusters into one service mesh: 'isthmus serve' runs the hub, the other
commands look into a running one.

Exit codes: 0 success, 1 failure, 2 wrong usage, 3 the named thing does not exist.`,
		Version:       build().Version, // adds --version
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate(build().String())
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newServe(), newBootstrap(), newVersion(), newCheck(), newRender(), newRoute(now), newFindings(), newCluster(now), newRegistry(now), newProxy(now), newService(now))
	withCodes(root)
	return root
}
