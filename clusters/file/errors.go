package file

import "errors"

var errTooLarge = errors.New("it is too large")
