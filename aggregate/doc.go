// Package aggregate merges what all registries report into one snapshot of the mesh.
//
//	registry ──► mailbox ─┐                ┌─ apply to shard rows and indexes
//	registry ──► mailbox ─┼─► controller ──┼─ mark dirty services, arm the debouncer
//	registry ──► mailbox ─┘  1 goroutine   └─ commit ──► pushcontext.Hub ──► streams
//
// Registries convert; the controller alone merges and publishes; nobody changes what was published.
// A mailbox belongs to one run of one registry instance and coalesces by key, so a flapping source or
// a slow writer costs a bounded amount of memory, and what a detached instance still writes reaches
// nobody. Attaching a key that is attached already is a swap: the new instance runs beside the old
// one and takes over with its first full truth, and only the difference is a change.
//
// A commit:
//
//  1. takes the dirty services and the reasons; derives mesh-wide settings, gateways and policies anew if
//     their rows changed (see basis), and adds the services that are merged into something else then;
//  2. merges each dirty service from its rows of all shards and from the workloads that its selectors
//     join (a FederatedService's from those of its sources), on all processors if there are many, while
//     the writer waits;
//  3. drops results that equal what is published: they keep their pointers; if nothing is left and no
//     registry's state changed, no version is spent and no stream wakes; results that differ only in
//     candidates left out are published without waking anybody;
//  4. classifies the rest: a service that keeps its shape pointer changed endpoints only;
//  5. builds the next PushContext, sharing everything that did not change;
//  6. publishes it (delta first, then the pointer, then the notification) and logs one line.
//
// When a commit happens is the debouncer's business; it never decides what is in it: every commit
// holds everything applied so far. What a registry puts in one call is committed together.
//
// Before the serving gate opens nothing is published, but [Controller.Shards] tells how far each
// registry has come. The gate waits for every registry, for a time, for the config cluster's API server
// without end, and for a moment for the addresses of gateways that are known by name.
//
// [Rebuild] derives the same services from shard states alone. Tests compare the two, and an idle
// controller checks some services that way at a time, in steps of a few milliseconds (see scrub.go).
package aggregate
