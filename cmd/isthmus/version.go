package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/output"
)

// buildInfo is also what --monitoring-addr answers at /version.
type buildInfo struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func build() buildInfo {
	return buildInfo{Version: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
}

// String is the line that 'isthmus version' and 'isthmus --version' print.
func (b buildInfo) String() string {
	return fmt.Sprintf("isthmus %s (%s, %s/%s)\n", b.Version, b.Go, b.OS, b.Arch)
}

func newVersion() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Example: "  isthmus version\n  isthmus version -o json",
		Args:    none,
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		b := build()
		switch format {
		case output.JSON, output.YAML:
			return output.Encode(c.OutOrStdout(), format, b)
		case output.Text:
			_, err := fmt.Fprint(c.OutOrStdout(), b)
			return err
		}
		return usageError("-o %s: want one of %s, %s, %s", format, output.Text, output.JSON, output.YAML)
	}
	c.Flags().StringVarP(&format, "output", "o", output.Text, "one of table, json, yaml")
	return c
}
