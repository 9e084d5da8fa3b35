// Package validate checks configuration objects of the Istio API on their own, without looking at any other object:
// names, ports, hosts, weights, regular expressions, durations, what excludes what, and what can't be reached. The
// rules are those that Istio's admission webhook enforces; what a webhook would refuse is an error here, what it would
// warn of is a warning. All sources of configuration use it, so an object means the same wherever it is from.
package validate
