package secrets

import (
	"context"
	"testing"
)

// TestContactIsToldOnce: attempts that fail alike are told once, and nothing is told once it is over.
func TestContactIsToldOnce(t *testing.T) {
	t.Parallel()
	var told []string
	c := contact{SecretOptions: SecretOptions{Options: Options{}.withDefaults(), OnContact: func(err error) {
		if err == nil {
			told = append(told, "")
		} else {
			told = append(told, err.Error())
		}
	}}}
	for _, lost := range []string{"", "no route", "no route", "refused", "", ""} {
		c.note(t.Context(), lost)
	}
	over, end := context.WithCancel(t.Context())
	end()
	c.note(over, "no route")
	if len(told) != 3 || told[0] != "no route" || told[1] != "refused" || told[2] != "" {
		t.Errorf("told %q", told)
	}
}
