// Command bench measures the hub on synthetic meshes: what it costs to connect proxies, how long
// changes take to reach them, and what the single writer can do. The hub runs in a process of its
// own, so that its use of the machine is counted apart from that of the proxies; beside it, in the
// same run, a server that only copies bytes is measured: the floor. The table goes to standard
// output, progress to standard error.
//
//	bench [-profile small,big] [-proto both] [-only STEP] [-cpuprofile FILE] …
//
// It exits with status 1 when a budget does not hold and -check is given, 2 when it could not
// measure.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/isthmus-mesh/isthmus/test/bench/fleet"
	"github.com/isthmus-mesh/isthmus/test/bench/floor"
)

// options are the flags.
type options struct {
	profiles   string
	proto      string
	only       string
	json       string
	cpuProfile string
	memProfile string
	floor      bool
	check      bool
	cores      int
	overrides  profile // of zero values none
}

func parse(args []string, usage io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(usage)
	fs.StringVar(&o.profiles, "profile", "small,big", "what to measure: small, big, or both with a comma")
	fs.StringVar(&o.proto, "proto", "both", "sotw, delta or both")
	fs.StringVar(&o.only, "only", "", "one step beside start and connect: "+strings.Join(stepNames(), ", "))
	fs.StringVar(&o.json, "json", "", "also write all figures to this `file`")
	fs.StringVar(&o.cpuProfile, "cpuprofile", "", "write CPU profiles of the hub, of the step of -only or else all, to `file`-PROFILE-WHAT")
	fs.StringVar(&o.memProfile, "memprofile", "", "write memory profiles of the hub, at its end, to `file`-PROFILE-WHAT")
	fs.BoolVar(&o.floor, "floor", true, "measure the floor too")
	fs.BoolVar(&o.check, "check", false, "exit with status 1 when a budget does not hold")
	fs.IntVar(&o.cores, "cores", 0, "GOMAXPROCS of the measured server; 0 is all")
	fs.IntVar(&o.overrides.proxies, "proxies", 0, "streams, instead of the profile's")
	fs.IntVar(&o.overrides.together, "together", 0, "streams that connect at one time, instead of the profile's")
	fs.IntVar(&o.overrides.spec.Services, "services", 0, "services, instead of the profile's")
	fs.IntVar(&o.overrides.changes, "changes", 0, "isolated changes, instead of the profile's")
	fs.IntVar(&o.overrides.churn, "churn", 0, "background changes per second, instead of the profile's")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	switch {
	case fs.NArg() > 0:
		return o, fmt.Errorf("there is no argument %q: see -help", fs.Arg(0))
	case o.proto != "both" && o.proto != "sotw" && o.proto != "delta":
		return o, fmt.Errorf("-proto is sotw, delta or both, not %q", o.proto)
	case o.only != "" && !knownStep(o.only):
		return o, fmt.Errorf("-only: there is no step %q: use one of %s", o.only, strings.Join(stepNames(), ", "))
	}
	return o, nil
}

const stepWriter = "writer"

func stepNames() (names []string) {
	for _, s := range steps() {
		names = append(names, s.name)
	}
	return append(names, stepWriter)
}

func knownStep(name string) bool {
	return strings.Contains(","+strings.Join(stepNames(), ",")+",", ","+name+",")
}

func (o options) chosen() ([]profile, error) {
	var ps []profile
	for name := range strings.SplitSeq(o.profiles, ",") {
		p, err := profileNamed(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		ps = append(ps, p.with(o.overrides))
	}
	return ps, nil
}

// with gives the profile with what is set in o.
func (p profile) with(o profile) profile {
	for _, f := range []struct{ to, from *int }{
		{&p.proxies, &o.proxies}, {&p.together, &o.together}, {&p.spec.Services, &o.spec.Services}, {&p.changes, &o.changes}, {&p.churn, &o.churn},
	} {
		if *f.from != 0 {
			*f.to = *f.from
		}
	}
	return p
}

func main() {
	if role := os.Getenv(roleVar); role != "" {
		if err := serveRole(role); err != nil {
			fatal(err)
		}
		return
	}
	o, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := bench(ctx, o, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fatal(err)
	}
	if o.check && !ok {
		os.Exit(1)
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "bench:", err)
	os.Exit(2)
}

// result is everything measured in one profile.
type result struct {
	Profile  string
	About    string
	Hub      map[string]map[string]float64 // by protocol, by figure
	Floor    map[string]map[string]float64
	profiled profile
}

// bench measures and writes the table; it reports whether all budgets hold.
func bench(ctx context.Context, o options, out, progress io.Writer) (bool, error) {
	began := time.Now()
	ps, err := o.chosen()
	if err != nil {
		return false, err
	}
	var results []*result
	for _, p := range ps {
		r, err := o.measure(ctx, p, progress)
		if err != nil {
			return false, err
		}
		results = append(results, r)
	}
	if o.json != "" {
		if err := writeJSON(o.json, results); err != nil {
			return false, err
		}
	}
	return report(out, results, time.Since(began))
}

func writeJSON(path string, results []*result) error {
	b, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return fmt.Errorf("figures: %w", err)
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

func (o options) measure(ctx context.Context, p profile, progress io.Writer) (*result, error) {
	res := &result{Profile: p.name, About: p.about, Hub: map[string]map[string]float64{}, Floor: map[string]map[string]float64{}, profiled: p}
	if o.only == "" || o.only == stepWriter {
		figures, err := o.measureWriter(ctx, p, progress)
		if err != nil {
			return nil, err
		}
		res.Hub[stepWriter] = figures
	}
	if o.only == stepWriter {
		return res, nil
	}
	for _, proto := range []string{"sotw", "delta"} {
		if o.proto != "both" && o.proto != proto {
			continue
		}
		if err := o.pair(ctx, p, proto, res, progress); err != nil {
			return nil, err
		}
	}
	return res, nil
}

// pair measures the hub over one protocol, then the floor with the bytes that the hub sent.
func (o options) pair(ctx context.Context, p profile, proto string, res *result, progress io.Writer) error {
	if proto == "sotw" && p.sotw > 0 {
		p.proxies = min(p.proxies, p.sotw)
	}
	hub := &run{profile: p, delta: proto == "delta", role: roleHub, opts: o, progress: progress}
	if err := hub.measure(ctx); err != nil {
		return err
	}
	res.Hub[proto] = hub.figures
	if !o.floor {
		return nil
	}
	m, err := hub.recorded()
	if err != nil {
		return err
	}
	low := &run{profile: p, delta: hub.delta, role: roleFloor, material: m, opts: o, progress: progress}
	if err := low.measure(ctx); err != nil {
		return err
	}
	res.Floor[proto] = low.figures
	return nil
}

func (r *run) recorded() (floor.Material, error) {
	m := floor.Material{Delta: r.delta, Bodies: map[string][]byte{}}
	for _, url := range []string{fleet.ClusterURL, fleet.EndpointURL, fleet.ListenerURL, fleet.RouteURL, fleet.VirtualHostURL} {
		b, err := fleet.Resources(r.fleet.Recorded(url))
		if err != nil {
			return m, fmt.Errorf("recorded %s: %w", url, err)
		}
		m.Bodies[url] = b
	}
	if r.light {
		m.Light = r.profile.proxies
	}
	return m, nil
}

func (r *run) profileBegin(ctx context.Context) error {
	if r.profiling || r.opts.cpuProfile == "" || r.role == roleFloor {
		return nil
	}
	r.profiling = true
	_, err := call[string, None](ctx, r.server, "StartProfile", r.profilePath(r.opts.cpuProfile))
	return err
}

func (r *run) profilePath(file string) string {
	what := "sotw"
	switch {
	case r.role == roleWriter:
		what = stepWriter
	case r.delta:
		what = "delta"
	}
	return file + "-" + r.name + "-" + what
}

func (r *run) profileEnd(ctx context.Context) error {
	var errs []error
	if r.profiling {
		_, err := call[None, None](ctx, r.server, "StopProfile", None{})
		errs = append(errs, err)
	}
	if r.opts.memProfile != "" && r.role != roleFloor {
		_, err := call[string, None](ctx, r.server, "HeapProfile", r.profilePath(r.opts.memProfile))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// measureWriter measures the controller alone on one core.
func (o options) measureWriter(ctx context.Context, p profile, progress io.Writer) (map[string]float64, error) {
	r := &run{profile: p, role: roleWriter, opts: o, progress: progress, figures: map[string]float64{}}
	r.say("one core")
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	server, err := spawn(ctx, roleWriter, 1)
	if err != nil {
		return nil, err
	}
	r.server = server
	return r.figures, errors.Join(r.floodWriter(ctx), server.stop())
}

// dirty is the size of the commit that has a budget.
const dirty = 100

// smallFloods is how many of them are measured for each flood of all services: one alone says little.
const smallFloods = 4

func (r *run) floodWriter(ctx context.Context) error {
	if _, err := call[Setup, Loaded](ctx, r.server, "Load", Setup{Spec: r.spec}); err != nil {
		return err
	}
	if err := r.profileBegin(ctx); err != nil {
		return err
	}
	var all, small Flood
	rounds := float64(r.floods * smallFloods)
	for range r.floods {
		f, err := call[int, Flood](ctx, r.server, "Flood", r.spec.Services)
		if err != nil {
			return err
		}
		all.add(f)
		for range smallFloods {
			if f, err = call[int, Flood](ctx, r.server, "Flood", min(dirty, r.spec.Services)); err != nil {
				return err
			}
			small.add(f)
		}
	}
	r.set("writer_applied_s", float64(all.Events)/all.Applied.Seconds())
	r.set("writer_published_s", float64(all.Events)/all.CPU.Seconds())
	r.set("writer_commits", float64(all.Commits)/float64(r.floods))
	r.set("commit_100_ms", 1000*small.CommitSeconds/rounds)
	return r.profileEnd(ctx)
}
