package main

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// show is the demo from start to end.
func show(ctx context.Context, o options, out io.Writer) (err error) {
	fmt.Fprint(out, "Two clusters, east and west, are folders of YAML. One hub merges them, Envoys serve the result.\n\n")
	s, err := setUp(ctx, o, out)
	defer func() { err = errors.Join(err, s.close()) }()
	if err != nil {
		return err
	}
	if err := s.play(ctx, out); err != nil {
		return err
	}
	if o.once {
		fmt.Fprintln(out, "\nEvery expected answer came.")
		return nil
	}
	s.invite(o, out)
	<-ctx.Done()
	fmt.Fprintln(out, "\nStopping.")
	return nil
}

// play asks, takes backends of hello away from east, and asks again.
func (s *stage) play(ctx context.Context, out io.Writer) error {
	east, west, gateway := s.proxies[0], s.proxies[1], s.proxies[2]
	fmt.Fprint(out, "\nWho answers? hello is in both clusters and prefers the zone of the client.\n\n")
	err := s.askAll(ctx, out, []question{
		{east, "hello", []string{helloEast1, helloEast2}},
		{west, "hello", []string{helloWest1, helloWest2}},
		{gateway, "hello", []string{helloEast1, helloEast2, helloWest1, helloWest2}},
		{west, "only-east", []string{"only-east-1 (east)"}},
		{east, "only-west", []string{"only-west-1 (west)"}},
		{east, "mixed", []string{mixedEast, mixedWest}},
		{west, "mixed", []string{mixedEast, mixedWest}},
		{gateway, "mixed", []string{mixedEast, mixedWest}},
	})
	if err != nil {
		return err
	}
	fmt.Fprint(out, "\nOne backend of hello in east is scaled away.\n\n")
	if err := s.scaleAway(ctx, out, "hello", "hello-east-2"); err != nil {
		return err
	}
	fmt.Fprint(out, "\nThe other one becomes sick.\n\n")
	if err := s.failOver(ctx, out, "hello", "hello-east-1"); err != nil {
		return err
	}
	fmt.Fprint(out, "\nWho answers now? Clients in east are served by west.\n\n")
	err = s.askAll(ctx, out, []question{
		{east, "hello", []string{helloWest1, helloWest2}},
		{west, "hello", []string{helloWest1, helloWest2}},
		{gateway, "hello", []string{helloWest1, helloWest2}},
	})
	if err != nil {
		return err
	}
	return s.federate(ctx, out)
}

// The backends of the example, as they are counted.
const (
	helloEast1 = "hello-east-1 (east)"
	helloEast2 = "hello-east-2 (east)"
	helloWest1 = "hello-west-1 (west)"
	helloWest2 = "hello-west-2 (west)"
	mixedEast  = "mixed-vm (east)"
	mixedWest  = "mixed-west-1 (west)"
)

// invite prints what to try.
func (s *stage) invite(o options, out io.Writer) {
	hello, err := s.services.service("hello")
	if err != nil {
		return // it was found before
	}
	curl := fmt.Sprintf("curl -s -H 'Host: %s' http://%%s/\n", hello.Hostname)
	fmt.Fprint(out, "\nAll of it runs until Ctrl-C. In another terminal, try:\n\n")
	fmt.Fprintf(out, "  export ISTHMUS_HUB=%s\n", s.hub.URL)
	for _, args := range []string{
		"cluster list", "service list", "service explain " + hello.Hostname + " --proxy " + s.proxies[0].options.ID,
		"registry list", "proxy list", "proxy config clusters " + s.proxies[0].options.ID, "proxy config endpoints " + s.proxies[0].options.ID,
	} {
		fmt.Fprintf(out, "  %s %s\n", o.hub, args)
	}
	for _, p := range s.proxies {
		fmt.Fprintf(out, "  "+curl, p.addr(hello.Ports[0].Port))
	}
	fmt.Fprintf(out, "\nEdit, add or remove files below %s and ask again.\n", s.clusters)
}
