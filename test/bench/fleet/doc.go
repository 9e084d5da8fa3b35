// Package fleet opens many ADS streams that each behave as one Envoy: clusters first, then their
// endpoints, then listeners and the routes they name, an ACK for every response. Responses are
// scanned on the wire and never decoded, and what proxies of one class learn is worked out once,
// so that thousands of streams cost little beside the server they measure.
package fleet
