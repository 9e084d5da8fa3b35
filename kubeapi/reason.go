package kubeapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Look is the operation of a look for one kind among those that are served.
const Look = "tell of"

// answered reports that an error is what the API server said, rather than that it said nothing.
func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.Is(err, ErrUnreadable) || errors.As(err, &status)
}

// explain sorts an error and says in a sentence what to do. Texts hold nothing that changes between
// attempts, and nothing of a credential.
func (c *Contact) explain(at Place, op string, err error) (Failure, string) {
	if err == nil {
		return failNone, ""
	}
	if errors.Is(err, ErrUnreadable) {
		return failServer, fmt.Sprintf("what %s gives as %s can't be read; it is asked again", c.host, at.words())
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return failContact, c.unreached(err)
	}
	switch code := status.Status().Code; {
	case code == http.StatusUnauthorized:
		return failRefused, c.host + " refuses the credential (401): it has expired or was revoked; give the cluster a new one"
	case code == http.StatusForbidden && (at.Resource == "" || op == Look):
		return failDenied, "the right to see which kinds are served is missing (403): bind the cluster role system:discovery to the credential's account"
	case code == http.StatusForbidden:
		return failDenied, fmt.Sprintf("the right to %s %s is missing (403): allow list and watch of it to the credential's account%s", op, at.words(), c.asIn())
	case code == http.StatusNotFound:
		return failMissing, fmt.Sprintf("%s does not serve %s (404)", c.host, at.words())
	case code == http.StatusTooManyRequests:
		return failServer, c.host + " is overloaded (429); it is asked again"
	case code >= 300 && code < 400:
		return failContact, fmt.Sprintf("%s redirects elsewhere (%d), which is not followed: give the address of the API server itself", c.host, code)
	default:
		return failServer, fmt.Sprintf("%s fails to %s %s (%d); it is asked again", c.host, op, at.words(), code)
	}
}

// asIn names where the rights are written down.
func (c *Contact) asIn() string {
	if c.role == "" {
		return ""
	}
	return ", as in " + c.role
}

// unreached explains an error without an answer.
func (c *Contact) unreached(err error) string {
	var dns *net.DNSError
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var alert tls.AlertError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &dns):
		return "the name " + Clip(dns.Name) + " can't be resolved: check the address of the API server in the kubeconfig, and the hub's DNS"
	case utilnet.IsConnectionRefused(err):
		return c.host + " refuses connections: check that the API server runs, and its address in the kubeconfig"
	case errors.As(err, &unknown):
		return "the certificate of " + c.host + " is not signed by the kubeconfig's authority: give its certificate-authority-data"
	case errors.As(err, &name):
		return "the certificate of " + c.host + " is not for that name: use one that it names, or set tls-server-name"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the certificate of " + c.host + " has expired or is not valid yet: renew it, and check the clocks"
	case errors.As(err, &invalid):
		return "the certificate of " + c.host + " is not valid"
	case errors.As(err, &alert):
		return c.host + " refuses the TLS connection (" + Clip(alert.Error()) + "): check the client certificate in the kubeconfig"
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return c.host + " does not speak TLS: check the scheme and the port of the API server in the kubeconfig"
	case timedOut(err):
		return c.host + " does not answer: check the network and the firewalls between the hub and the API server"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return c.host + " can't be reached (no route): check the network between the hub and the API server"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), utilnet.IsConnectionReset(err), errors.Is(err, net.ErrClosed):
		return c.host + " closes connections: check what stands between the hub and the API server"
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return c.host + " can't be reached: " + Clip(err.Error())
}

func timedOut(err error) bool {
	var t interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &t) && t.Timeout() ||
		strings.Contains(err.Error(), "client connection lost") // what a connection without sign of life ends with
}

// hostOf gives the host and port of an API server's address.
func hostOf(address string) string {
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		return u.Host
	}
	return Clip(address)
}

// Clip shortens a text for messages.
func Clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}
