package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/test/envoy/envoytest"
)

const (
	fewRequests  = 10  // sent for each question
	manyRequests = 200 // at most, until each expected backend has answered
)

// question is asked of a service through a proxy.
type question struct {
	from    *proxy
	service string   // as catalog.service finds it
	want    []string // the backends that answer, all of them and no others
}

// tally counts answers by backend.
type tally map[string]int

func (t tally) String() string {
	var parts []string
	for _, b := range slices.Sorted(maps.Keys(t)) {
		parts = append(parts, fmt.Sprintf("%d x %s", t[b], b))
	}
	return strings.Join(parts, ", ")
}

// ask sends requests until each expected backend has answered.
func (q question) ask(ctx context.Context, svc debug.Service) (tally, error) {
	t := tally{}
	client := (*envoytest.Namespace)(nil).HTTPClient()
	for n := 0; n < fewRequests || n < manyRequests && len(t) < len(q.want); n++ {
		a, err := request(ctx, client, q.from, svc)
		if err != nil {
			return t, err
		}
		t[fmt.Sprintf("%s (%s)", a.Name, a.Cluster)]++
	}
	if got := slices.Sorted(maps.Keys(t)); !slices.Equal(got, q.want) {
		return t, fmt.Errorf("expected answers of %s", strings.Join(q.want, " and "))
	}
	return t, nil
}

// request is one request for a service through a proxy.
func request(ctx context.Context, client *http.Client, p *proxy, svc debug.Service) (envoytest.Answer, error) {
	return envoytest.Get(ctx, client, "http://"+p.addr(svc.Ports[0].Port)+"/", svc.Hostname)
}

// askAll asks and prints a table. Its error says which answers were not as
// expected.
func (s *stage) askAll(ctx context.Context, out io.Writer, questions []question) error {
	var errs []error
	row(out, "FROM", "ASKS FOR", "ANSWERS")
	for _, q := range questions {
		svc, err := s.services.service(q.service)
		if err != nil {
			return err
		}
		t, err := q.ask(ctx, svc)
		answers := t.String()
		if err != nil {
			answers += " <- " + err.Error()
			errs = append(errs, fmt.Errorf("%s asks for %s: %w", q.from.label, svc.Hostname, err))
		}
		row(out, q.from.label, fmt.Sprintf("%s:%d", svc.Hostname, svc.Ports[0].Port), answers)
	}
	return errors.Join(errs...)
}

func row(out io.Writer, from, what, answers string) {
	fmt.Fprintf(out, "  %-16s %-42s %s\n", from, what, answers)
}
