package model_test

import (
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

func TestUnknownCommand(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{
		"": "", "no command": "", "100%%": "", "%%BOGUS%%": "", "%REQ(:PATH)% %REQ(a?b):5% %DURATION%": "", "%REQ_WITHOUT_QUERY(:PATH)%": "", "%EMIT_TIME(%s)%": "",
		"%BOGUS%": "%BOGUS%", "%DURATION% %BOGUS(x)%": "%BOGUS(x)%", "%DURATION(x)%": "%DURATION(x)%", "%REQ%": "%REQ%", "%REQ()%": "%REQ()%", "50%": "%", "%duration%": "%", "%UPSTREAM_HOST:5%": "%UPSTREAM_HOST:5%",
	} {
		if got := model.UnknownCommand(format); got != want || model.ValidFormat(format) != (want == "") {
			t.Errorf("%s: %q, want %q", format, got, want)
		}
	}
	for format, want := range map[string]bool{"%REQ_WITHOUT_QUERY(:PATH)%": false, "%%REQ_WITHOUT_QUERY(x)": true, "%REQ(:PATH)%": true, "%BOGUS%": false} {
		if got := model.ValidHeaderFormat(format); got != want {
			t.Errorf("of a header: %s: %t", format, got)
		}
	}
}
