// Package evaluate tells what a proxy does with a request, from the resources that it was sent: which listener takes the
// connection, which filter chain, virtual host and route match, to which clusters the request goes in which shares, and
// which endpoints these have. It follows Envoy's rules of precedence as its API documents them, so it serves to explain
// a configuration to people, and as what a real Envoy is compared with in tests.
//
// It evaluates what routing depends on and nothing else: filters that answer requests themselves (authorisation, rate
// limits) are not looked at, faults are told and not injected.
package evaluate
