package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/output"
)

const (
	defaultHub = "http://127.0.0.1:8080"
	hubEnv     = "ISTHMUS_HUB"
)

// view is what the commands that look into a hub share.
type view struct {
	hub     string
	format  string
	timeout time.Duration
	now     func() time.Time
}

// bind adds the shared flags to a command.
func (v *view) bind(c *cobra.Command) {
	v.bindHub(c)
	v.bindFormat(c)
}

// hubDefault is the hub that is asked if no flag names one.
func hubDefault() string {
	if env := os.Getenv(hubEnv); env != "" {
		return env
	}
	return defaultHub
}

func (v *view) bindHub(c *cobra.Command) {
	c.Flags().StringVar(&v.hub, "hub", hubDefault(), "URL of the hub's --http-addr, as seen from this machine (or $"+hubEnv+")")
	c.Flags().DurationVar(&v.timeout, "timeout", 10*time.Second, "how long to wait for the hub's answer")
}

func (v *view) bindFormat(c *cobra.Command) {
	c.Flags().StringVarP(&v.format, "output", "o", output.Text, "one of "+formats())
}

func formats() string { return strings.Join(output.Formats(), ", ") }

func checkFormat(format string) error {
	if !slices.Contains(output.Formats(), format) {
		return usageError("-o %s: want one of %s", format, formats())
	}
	return nil
}

// show reads a debug endpoint and prints it: as it came, or as a table.
func (v *view) show(c *cobra.Command, path string, query url.Values, table func(raw []byte) (*output.Table, error)) error {
	return v.print(c, path, query, func(w io.Writer, raw []byte) error {
		t, err := table(raw)
		if err != nil {
			return err
		}
		return t.Write(w)
	})
}

// print is show for text that is more than a table.
func (v *view) print(c *cobra.Command, path string, query url.Values, text func(w io.Writer, raw []byte) error) error {
	if err := checkFormat(v.format); err != nil {
		return err
	}
	raw, err := v.get(c.Context(), path, query)
	if err != nil {
		return err
	}
	if v.format == output.JSON || v.format == output.YAML {
		return output.Encode(c.OutOrStdout(), v.format, json.RawMessage(raw))
	}
	out := &outlet{w: c.OutOrStdout()}
	if err := text(out, raw); out.err != nil {
		return out.err
	} else if err != nil {
		return fmt.Errorf("%s%s answers with something unexpected; is it the --http-addr of a hub of this version: %w", v.hub, path, err)
	}
	return nil
}

// outlet keeps the error of writing apart from that of what is written.
type outlet struct {
	w   io.Writer
	err error
}

func (o *outlet) Write(b []byte) (int, error) {
	n, err := o.w.Write(b)
	if err != nil {
		o.err = err
	}
	return n, err
}

func (v *view) wide() bool { return v.format == output.Wide }

func (v *view) get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	if v.timeout <= 0 {
		return nil, usageError("--timeout must be above 0")
	}
	hub := v.hub
	if !strings.Contains(hub, "://") {
		hub = "http://" + hub
	}
	base, err := url.Parse(hub)
	if err != nil || base.Host == "" {
		return nil, usageError("--hub %q is not a URL like %s", v.hub, defaultHub)
	}
	base.Path, base.RawQuery = strings.TrimSuffix(base.Path, "/")+path, query.Encode()
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base.String(), nil)
	if err != nil {
		return nil, usageError("--hub %q: %w", v.hub, err)
	}
	// No proxy from the environment, and no connection left behind.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("no hub answers at %s; start one with 'isthmus serve', or name another with --hub: %w", v.hub, err)
	}
	defer res.Body.Close()
	return body(res)
}

func body(res *http.Response) ([]byte, error) {
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", res.Request.URL, err)
	}
	if res.Header.Get("Server") != debug.ServerName { // what it says is about something else
		return nil, fmt.Errorf("%s answers with %s and is no hub; is it the --http-addr of one", res.Request.URL, res.Status)
	}
	if res.StatusCode == http.StatusOK {
		return raw, nil
	}
	said := strings.TrimSpace(string(raw))
	switch res.StatusCode {
	case http.StatusNotFound:
		return nil, &exitError{exitNotFound, fmt.Errorf("%s", said)}
	case http.StatusBadRequest:
		return nil, usageError("%s", said)
	case http.StatusServiceUnavailable:
		return nil, errors.New("the hub has not read its clusters yet; 'isthmus cluster list -o wide' says what it waits for")
	case http.StatusForbidden:
		return nil, fmt.Errorf("%s; run this command where the hub runs, or forward a port to it", said)
	}
	return nil, fmt.Errorf("%s: %s: %s", res.Request.URL, res.Status, said)
}

func decode[T any](raw []byte) (T, error) {
	var v T
	err := json.Unmarshal(raw, &v)
	return v, err
}
