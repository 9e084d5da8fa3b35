package main

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

func shardInfo(c model.ClusterID, synced bool) pushcontext.ShardInfo {
	return pushcontext.ShardInfo{
		Key: model.ShardKey{Provider: model.ProviderFile, Cluster: c}, Synced: synced, Status: model.Status{State: model.StateSyncing, Since: time.Now()},
	}
}

func TestWaitingSaysForWhat(t *testing.T) {
	t.Parallel()
	config := []model.ShardKey{{Provider: model.ProviderKubernetes, Cluster: "c"}, {Provider: model.ProviderFile, Cluster: "west"}}
	for want, tc := range map[string]struct {
		shards   []pushcontext.ShardInfo
		expected []model.ShardKey
	}{
		"not ready: starting":                                      {},
		"not ready: waiting for file/west":                         {shards: []pushcontext.ShardInfo{shardInfo("east", true), shardInfo("west", false)}},
		"not ready: everything is read, and about to be published": {shards: []pushcontext.ShardInfo{shardInfo("east", true)}},
		"not ready: waiting for file/east, file/west":              {shards: []pushcontext.ShardInfo{shardInfo("east", false), shardInfo("west", false)}},
		"not ready: waiting for kubernetes/c":                      {[]pushcontext.ShardInfo{shardInfo("west", true)}, config},
		"not ready: waiting for kubernetes/c, file/west":           {nil, config},
	} {
		if got := errWaiting(tc.shards, tc.expected).Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestWaitingIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		shards := []pushcontext.ShardInfo{shardInfo("east", true), shardInfo("west", false)}
		opened, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			logWaiting(t.Context(), opened, func() []pushcontext.ShardInfo { return shards }, slog.New(slog.NewTextHandler(&text, nil)))
		}()
		<-time.After(11 * time.Second) // of the bubble's own time
		synctest.Wait()
		close(opened)
		<-done
		if n := strings.Count(text.String(), "waiting for a registry"); n != 2 || !strings.Contains(text.String(), "cluster=west provider=file for=10s") {
			t.Errorf("%d lines:\n%s", n, &text)
		}
	})
}

func TestWaitingEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	logWaiting(ctx, make(chan struct{}), nil, slog.New(slog.DiscardHandler))
}
