package kube

import "errors"

var errTrustDomain = errors.New("trustDomain has characters that no domain has")

var errNotOurs = errors.New("not one object of a kind that concerns the mesh")

// Why an address can't be used.
var (
	errNoUnicast  = errors.New("not a unicast address")
	errNoAddress  = errors.New("it has neither address nor network")
	errAddress    = errors.New("not an IP address, DNS name or unix:// path (ports go in the ports field)")
	errSocketPath = errors.New("a unix socket needs an absolute path (or @ and a name)")
	errSocketPort = errors.New("a unix socket has no ports")
)
