package model

import (
	"context"
	"time"
)

// Kind is the kind of a row.
type Kind uint8

// The row kinds.
const (
	RowService Kind = iota
	RowEndpoints
	RowWorkload
	RowConfig
	RowKinds // number of kinds
)

var kindNames = [...]string{"service", "endpoints", "workload", "config"}

// String gives the lower-case name.
func (k Kind) String() string { return kindNames[k] }

// RowKey identifies a row within one shard: its kind and the source object's key. A ServiceEntry
// with several hosts makes a row per host, keyed "ServiceEntry/ns/name/host".
type RowKey struct {
	Kind Kind
	Key  string
}

// Object is a row's value: *Service, *Endpoints, *Workload or *Config.
type Object interface{ RowKind() Kind }

// RowKind implements Object.
func (*Service) RowKind() Kind { return RowService }

// RowKind implements Object.
func (*Endpoints) RowKind() Kind { return RowEndpoints }

// RowKind implements Object.
func (*Workload) RowKind() Kind { return RowWorkload }

// RowKind implements Object.
func (*Config) RowKind() Kind { return RowConfig }

// Event sets one row to a complete new value, or deletes it (Obj == nil).
type Event struct {
	Row RowKey
	Obj Object
}

// Registry reports everything one provider knows in one cluster.
//
// Run blocks until ctx ends and then returns ctx.Err() or nil; an error before that means that the
// registry gave up and is reported as its status. Run must call Sink.Replace before Sink.Put. All
// goroutines that it started are joined before it deletes a key they could still write, and before
// it returns. A registry never sees other registries.
type Registry interface {
	Key() ShardKey
	Run(ctx context.Context, out Sink) error
}

// Lifecycle attaches registries and detaches them with all that they brought.
type Lifecycle interface {
	// Attach adds a registry. If one with its key is attached, the new one runs beside it and takes
	// over with its first Replace. Attaching the one in force again ends a replacement that has not taken over;
	// if it has, the old one runs again, as the replacement of it.
	Attach(Registry)
	// Detach ends every instance of the key and removes what it contributed.
	Detach(ShardKey)
}

// Sink takes what one registry instance reports. Calls never block, call nobody back and are safe from any goroutine:
// who makes them may hold a lock of his own, so that what is said stays in order. Values are immutable once passed. Calls after the instance was detached or replaced have no effect.
type Sink interface {
	// Replace gives the full truth: the first sync, and every relist.
	Replace(*ShardState)
	// Put gives the complete new values of rows. Rows of one call reach the same snapshot, so what
	// changed together, such as a service and its endpoints, belongs into one.
	Put(...Event)
	// Status reports contact with the source; it never removes data.
	Status(Status)
}

// State is a registry's contact with its source.
type State string

// The states. A registry that has lost contact is stale: its last good data stays.
const (
	StateSyncing  State = "syncing"
	StateLive     State = "live"
	StateStale    State = "stale"
	StateDegraded State = "degraded" // live, but a replacement (new credentials, new settings) fails
	StateTimeout  State = "timeout"  // has not synced within its start-up time; still trying
)

// Status is what a registry says of itself.
type Status struct {
	State State
	Since time.Time // when State was entered
	Err   string    // why it is stale; "" otherwise. Never holds a credential
	// StaleAfter is how long it may be stale before proxies of other members prefer other endpoints; 0: as the hub's settings say.
	StaleAfter time.Duration
	Problems   []Problem // items that keep their last good content
}

// Problem is one item of a source that can't be used.
type Problem struct {
	Item   string // file path or object key
	Line   int    // 1-based line, 0 if unknown
	Reason string // a sentence
	Since  time.Time
	Broad  bool // it is of the source or a part of it, not of one object
	Held   bool // the item is gone, and served as it was for a time
	More   int  // it stands for so many that are not listed; else 0
}
