package debug

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// forwarded are the headers by which a proxy in between shows itself.
var forwarded = []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"}

// LoopbackOnly lets only callers on this machine through: callers can't be authenticated yet. A
// loopback peer alone is not enough: a proxy on this machine may speak for somebody else, and a web
// page in a local browser may reach us under a name of its own (DNS rebinding) or across sites.
func LoopbackOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if why := refusal(r); why != "" {
			http.Error(w, "debug endpoints answer only to this machine: "+why, http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func refusal(r *http.Request) string {
	if peer, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !peer.Addr().Unmap().IsLoopback() {
		return "the caller is not on a loopback address"
	}
	if !localHost(r.Host) {
		return "the Host header is not a loopback address"
	}
	for _, h := range forwarded {
		if r.Header.Get(h) != "" {
			return "the request went through a proxy"
		}
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "none" && site != "same-origin" {
		return "the request comes from another site's page"
	}
	return ""
}

func localHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.Unmap().IsLoopback()
}
