// Package script replays incidents against a whole hub: members made of ordinary YAML, proxies that
// speak xDS over memory connections, and a clock that stands still until the script moves it.
//
// A scenario is a text archive in testdata: a script followed by the files that it uses. It is named
// after the incident that it covers and begins with what was seen, what is right, and where it was
// reported. The verbs are those of rsc.io/script ("cmp", "stdout", "!", …) and the ones that
// verbs_test.go lists, each with its own help ("help VERB").
package script
