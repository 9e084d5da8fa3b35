package secrets

import (
	"context"
	"errors"
)

// contact tells of contact with the API server when it is lost, and when it is back, and not of each try. It is used
// by the goroutine that makes the requests.
type contact struct {
	SecretOptions
	last string // why there is none; "" if there is
}

// note is given why there is no contact now, or "".
func (c *contact) note(ctx context.Context, lost string) {
	if lost == c.last || ctx.Err() != nil {
		return
	}
	c.last = lost
	var err error
	if lost == "" {
		c.Log.Info("secrets of remote clusters can be read again", "namespace", c.Namespace)
	} else {
		err = errors.New(lost)
		c.Log.Warn("secrets of remote clusters can't be read; the clusters stay as they are", "namespace", c.Namespace, "err", err)
	}
	if c.OnContact != nil {
		c.OnContact(err)
	}
}
