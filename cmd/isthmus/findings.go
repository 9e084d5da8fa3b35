package main

import (
	"io"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
)

func newFindings() *cobra.Command {
	v := &view{}
	var least, kind, namespace string
	c := &cobra.Command{
		Use:   "findings",
		Short: "List mistakes in the configuration of a running hub",
		Long: `List what a hub has to say about the configuration objects that it reads, the worst first within an object: errors (the
object, or the field, is not used), warnings (it works, most likely not as meant) and what is worth knowing. 'isthmus
check' tells the same of files before they are applied.`,
		Example: "  isthmus findings\n  isthmus findings --severity warning -n shop\n  isthmus findings --kind VirtualService -o json",
		Args:    none,
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		q := url.Values{}
		for key, value := range map[string]string{"severity": least, "kind": kind, "namespace": namespace} {
			if value != "" {
				q.Set(key, value)
			}
		}
		return v.print(c, "/debug/findings", q, func(w io.Writer, raw []byte) error {
			list, err := decode[[]debug.ObjectFinding](raw)
			if err != nil {
				return err
			}
			return findingsTable(list, severalClusters(list), false).Write(w)
		})
	}
	c.Flags().StringVar(&least, "severity", "", "the least `SEVERITY` to list: error, warning or info")
	c.Flags().StringVar(&kind, "kind", "", "list those about objects of one `KIND`")
	c.Flags().StringVarP(&namespace, "namespace", "n", "", "list those about objects of one `NAMESPACE`")
	v.bind(c)
	return c
}

func severalClusters(list []debug.ObjectFinding) bool {
	for _, f := range list {
		if f.Cluster != list[0].Cluster {
			return true
		}
	}
	return false
}
