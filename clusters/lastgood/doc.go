// Package lastgood keeps on disk what registries reported last, so that a hub that is started while a
// cluster's API server is down serves what it knew of that cluster, as stale, instead of nothing.
//
// There is one file for each registry. It is written in the background, whole, some time after a change; replaced in
// one step, so that it is never half written; and compressed, with a checksum. That takes about a second of processor time for
// 100 000 endpoints with their pods; then writing rests fifty times as long, and a registry never waits for it. Rows
// hold no credentials. The format has a version, and a file of another one, like any that can't be read to its end,
// counts as none.
package lastgood
