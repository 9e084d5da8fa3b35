// Package pushcontext holds the published state of the hub: an immutable, versioned PushContext
// made of small views that are shared between versions, the deltas between versions, and the Hub
// through which one writer publishes and any number of readers follow.
//
//	services ─merge─► ServiceView ──┐            Hub: current ──► readers
//	                  ShapeView     ├─► Builder ─► PushContext + Delta ─► ring ─► Between(from, to)
//	MeshConfig ─────► MeshView ─────┘   derives HostView, PortView, InstanceView
//
// A view is the complete input of some xDS resources: whatever is built from it is memoised on it
// (see [Memo]) and dies with it, so there is no cache to invalidate. A view's Rev is the version at
// which it last changed; an unchanged view keeps its pointer. A view that replaces another knows for
// some commits, or until all of it was made anew, what was built from that one: so readers can tell
// what of a changed view is as it was.
//
// Nothing that was published may change. The build tag isthmus_assert makes the Hub checksum every
// snapshot and panic if one differs when the next takes its place.
package pushcontext
