package gen

import (
	"strings"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// headerFormat gives a value as Envoy takes it: commands stay commands, unless it knows one of them not. Then the
// value is meant literally.
func headerFormat(v string) string {
	if model.ValidHeaderFormat(v) {
		return v
	}
	return strings.ReplaceAll(v, "%", "%%")
}
