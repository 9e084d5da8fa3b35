package status

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// LeaseName is the Lease that the replica holds that writes.
const LeaseName = "isthmus-status-leader"

// Election is who writes.
type Election struct {
	Client    kubernetes.Interface
	Namespace string
	Identity  string // another for each replica
	// Duration is how long a leader that is not heard of stays one; 15s
	Duration time.Duration
	Log      *slog.Logger
}

// Run tells whenever this replica is elected, with a context that ends when it is no leader any more. It runs until ctx ends.
func (e Election) Run(ctx context.Context, elected func(ctx context.Context)) error {
	if e.Duration == 0 {
		e.Duration = 15 * time.Second
	}
	for ctx.Err() == nil {
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Name: LeaseName, Namespace: e.Namespace}, Client: e.Client.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: e.Identity},
			},
			LeaseDuration: e.Duration, RenewDeadline: e.Duration * 2 / 3, RetryPeriod: e.Duration / 6, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) {
					e.Log.Info("this replica writes the status of objects", "replica", e.Identity)
					elected(ctx)
				},
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			return fmt.Errorf("elect who writes the status of objects: %w", err)
		}
		elector.Run(ctx)
	}
	return ctx.Err()
}
