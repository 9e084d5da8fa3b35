package lastgood

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"
)

// keeper writes what a tap remembers.
type keeper struct {
	*registry
	tap     *tap
	cost    time.Duration // of the last write
	failing string        // why it failed, "" if it did not
	over    bool          // a newer instance writes
}

// keep writes now and then until ctx ends.
func (k *keeper) keep(ctx context.Context) {
	beat := time.NewTicker(pulse)
	defer beat.Stop()
	for !k.over {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			k.touch()
			continue
		case <-k.tap.changed:
		}
		timer := time.NewTimer(max(k.opts.Every, share*k.cost))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		k.save()
	}
}

// save writes the rows if they have changed.
func (k *keeper) save() {
	if k.over {
		return
	}
	h := header{Saved: time.Now(), Of: k.terms.of(), Aside: k.terms.aside()} // before the rows: what it is about is among these, or of no interest
	rows := k.tap.take()
	if rows == nil {
		return
	}
	err := k.file.write(k.serial, h, rows)
	k.cost = time.Since(h.Saved)
	if errors.Is(err, errOutdated) {
		k.over = true
		return
	}
	if err != nil {
		k.tap.again()
	}
	k.report(err)
}

// touch notes that what was written still holds.
func (k *keeper) touch() {
	if !k.tap.live() {
		return
	}
	err := k.file.touch(k.serial, time.Now())
	switch {
	case errors.Is(err, errOutdated):
		k.over = true
		return
	case err != nil:
		k.tap.again()
	}
	k.report(err)
}

// cause leaves out of an error the name of the file, which is another each time.
func cause(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}

// report tells what goes wrong, and logs it once.
func (k *keeper) report(err error) {
	text := ""
	if err != nil {
		text = cause(err).Error()
	}
	k.tap.fail(text, time.Now())
	if text != "" && k.failing == "" {
		k.log.Warn("last good rows can't be kept", "err", err)
	}
	k.failing = text
}
