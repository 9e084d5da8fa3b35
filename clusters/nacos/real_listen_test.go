package nacos

import (
	"encoding/hex"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// listening are the addresses of this machine at which a port is served.
func listening(t *testing.T, port uint16) (out []netip.Addr) {
	t.Helper()
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			t.Skip("which ports are served is not known: ", err)
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) < 4 || f[3] != "0A" { // it listens
				continue
			}
			at, number, _ := strings.Cut(f[1], ":")
			raw, err := hex.DecodeString(at)
			if n, bad := strconv.ParseUint(number, 16, 16); err != nil || bad != nil || uint16(n) != port {
				continue
			}
			for word := range slices.Chunk(raw, 4) { // each in the order of the machine
				slices.Reverse(word)
			}
			a, _ := netip.AddrFromSlice(raw)
			out = append(out, a.Unmap())
		}
	}
	return out
}

// The servers of tests serve no other machine, but for a port of raft, for which there is no setting; and the ports of two are not the same.
func TestRealServerIsThisMachinesOnly(t *testing.T) {
	at := sharedNacos(t)
	t.Parallel()
	host, port := split(t, at.Host)
	for _, p := range []uint16{port, port + 1000, port + 1001} {
		if got := listening(t, p); !slices.Equal(got, []netip.Addr{netip.MustParseAddr(host)}) {
			t.Errorf("port %d is served at %v, want %s alone", p, got, host)
		}
	}
	if block := netip.MustParseAddr(host).As4()[1]; port != 20_000+10*uint16(block) {
		t.Errorf("the block of addresses %d has port %d", block, port)
	}
}
