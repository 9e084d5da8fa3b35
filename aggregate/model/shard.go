package model

import (
	"iter"
	"maps"
)

// ShardState is everything one registry reports at one moment. It is immutable; build one with
// [NewShardBuilder].
type ShardState struct {
	rows map[RowKey]Object
}

// Rows yields all rows in no particular order.
func (s *ShardState) Rows() iter.Seq2[RowKey, Object] { return maps.All(s.rows) }

// Row gives one row.
func (s *ShardState) Row(k RowKey) (Object, bool) {
	o, ok := s.rows[k]
	return o, ok
}

// Len is the number of rows.
func (s *ShardState) Len() int { return len(s.rows) }

// With gives a copy in which the events are applied in order. Its cost is that of a full copy: it
// is for tests and oracles.
func (s *ShardState) With(events ...Event) *ShardState {
	rows := maps.Clone(s.rows)
	for _, e := range events {
		if e.Obj == nil {
			delete(rows, e.Row)
		} else {
			rows[e.Row] = e.Obj
		}
	}
	return &ShardState{rows: rows}
}

// ShardBuilder collects rows for a ShardState.
type ShardBuilder struct{ rows map[RowKey]Object }

// NewShardBuilder starts an empty state.
func NewShardBuilder() *ShardBuilder { return &ShardBuilder{rows: map[RowKey]Object{}} }

// Add sets the row of o's kind under key and returns the builder.
func (b *ShardBuilder) Add(key string, o Object) *ShardBuilder {
	b.rows[RowKey{Kind: o.RowKind(), Key: key}] = o
	return b
}

// Build gives the state; the builder must not be used afterwards.
func (b *ShardBuilder) Build() *ShardState {
	s := &ShardState{rows: b.rows}
	b.rows = nil
	return s
}
