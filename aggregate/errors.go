package aggregate

import "errors"

// ErrRegistriesRunning is returned by Run when registries did not return in time.
var ErrRegistriesRunning = errors.New("registries still running after shutdown grace")
