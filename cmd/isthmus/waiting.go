package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// errWaiting says what the serving gate waits for: registries, and some that are expected.
func errWaiting(shards []pushcontext.ShardInfo, expected []model.ShardKey) error {
	var missing []string
	for _, k := range expected {
		if !slices.ContainsFunc(shards, func(s pushcontext.ShardInfo) bool { return s.Key == k }) {
			missing = append(missing, k.String())
		}
	}
	for _, s := range shards {
		if !s.Synced {
			missing = append(missing, s.Key.String())
		}
	}
	switch {
	case len(shards) == 0 && len(missing) == 0:
		return errors.New("not ready: starting")
	case len(missing) == 0:
		return errors.New("not ready: everything is read, and about to be published")
	}
	return errors.New("not ready: waiting for " + strings.Join(missing, ", "))
}

// logWaiting logs what is awaited until the gate opens or ctx ends.
func logWaiting(ctx context.Context, opened <-chan struct{}, shards func() []pushcontext.ShardInfo, log *slog.Logger) {
	t := time.NewTicker(5 * time.Second)
	defer t.Stop()
	for {
		select {
		case <-opened:
			return
		case <-ctx.Done():
			return
		case now := <-t.C:
			for _, s := range shards() {
				if !s.Synced {
					log.Info("waiting for a registry before serving", "cluster", s.Key.Cluster, "provider", s.Key.Provider,
						"for", now.Sub(s.Status.Since).Round(time.Second), "err", s.Status.Err)
				}
			}
		}
	}
}
