package secrets

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"
)

// TestContactIsToldOnce: attempts that fail alike say the same, whatever their requests and connections were.
func TestContactIsToldOnce(t *testing.T) {
	t.Parallel()
	told := 0
	c := contact{SecretOptions: SecretOptions{Options: Options{}.withDefaults(), OnContact: func(error) { told++ }}}
	for i := range 5 {
		conn := &net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: 40000 + i}, Addr: &net.TCPAddr{Port: 6443}, Err: os.NewSyscallError("read", syscall.ECONNRESET)}
		c.note(t.Context(), fmt.Errorf("watch: %w", &url.Error{Op: "Get", URL: fmt.Sprint("https://h/?timeoutSeconds=", 300+i), Err: conn}))
	}
	c.note(t.Context(), &url.Error{Op: "Get", URL: "https://h/", Err: errors.New("no route")})
	c.note(t.Context(), nil)
	c.note(t.Context(), nil)
	if told != 3 {
		t.Errorf("told %d times", told)
	}
}
