//go:build !race

package envoytest

const raceEnabled = false
