package model

import "strings"

// Nearest gives the name that a mistyped one most likely stands for: that which differs in the fewest letters, the first of several.
// It is "" if none is near: a third of the letters may differ, counting one that is left out, added, another one, or two in
// the wrong order. That letters are large or small, and '-' and '_', make no difference.
func Nearest(word string, names []string) (best string) {
	const longest = 100
	plain := strings.NewReplacer("_", "", "-", "")
	of := []byte(strings.ToLower(plain.Replace(word)))
	if len(of) == 0 || len(of) > longest {
		return ""
	}
	least := len(of)/3 + 1
	if len(of) < 3 {
		least = 1
	}
	for _, name := range names {
		to := []byte(strings.ToLower(plain.Replace(name)))
		if name == word || len(to) > longest || len(to)-len(of) >= least || len(of)-len(to) >= least {
			continue
		}
		if d := distance(of, to); d < least {
			best, least = name, d
		}
	}
	return best
}

// distance is how many letters differ, where two that change places count once.
func distance(a, b []byte) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
