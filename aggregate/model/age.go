package model

import "time"

// Older orders by age, the oldest first. What nobody knows when it was made counts as the youngest: a service of a registry
// that keeps no such time takes nothing from one that does.
func Older(a, b time.Time) int {
	switch {
	case a.IsZero() && b.IsZero():
		return 0
	case a.IsZero():
		return 1
	case b.IsZero():
		return -1
	}
	return a.Compare(b)
}
