package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// The exit codes.
const (
	exitOK       = 0
	exitFailure  = 1
	exitUsage    = 2
	exitNotFound = 3
)

// exitError is an error with the exit code that it means.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func usageError(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// words demands exactly the named arguments.
func words(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != len(names) {
			example, _, _ := strings.Cut(strings.TrimSpace(c.Example), "\n")
			return usageError("want %s, as in '%s'", strings.Join(names, " and "), example)
		}
		return nil
	}
}

// withCodes makes every error of a command's own work a failure unless it has a code already. Errors
// before that, which are cobra's, mean wrong usage.
func withCodes(c *cobra.Command) {
	if work := c.RunE; work != nil {
		c.RunE = func(c *cobra.Command, args []string) error {
			err := work(c, args)
			var e *exitError
			if err == nil || errors.As(err, &e) {
				return err
			}
			return &exitError{exitFailure, err}
		}
	}
	if c.HasSubCommands() && c.RunE == nil {
		group(c)
	}
	for _, sub := range c.Commands() {
		withCodes(sub)
	}
}

// none demands that no words follow.
func none(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError("%q is not expected: '%s' takes flags only, see '%s --help'", args[0], c.CommandPath(), c.CommandPath())
	}
	return nil
}

// group makes a command that only holds others print its help when called alone, and refuse words
// that it does not know.
func group(c *cobra.Command) {
	c.DisableFlagsInUseLine = true
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usageError("unknown command %q for %q: see '%s --help'", args[0], c.CommandPath(), c.CommandPath())
		}
		return c.Help()
	}
}
