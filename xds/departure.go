package xds

import (
	"context"
	"errors"
	"log/slog"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Why streams are refused: the label "reason" of isthmus_xds_refused_streams_total.
const (
	refusedNotReady = "not_ready"       // the serving gate is closed
	refusedDraining = "draining"        // the hub is shutting down
	refusedBusy     = "busy"            // too many came at once
	refusedSilent   = "silent"          // no node came in time
	refusedNode     = "node"            // the node is missing or malformed
	refusedCluster  = "unknown_cluster" // the node is of a cluster that the hub does not have
)

// refusalReasons gives, for each reason, whether it is logged: what the hub's own state explains is only
// counted.
func refusalReasons() map[string]bool {
	return map[string]bool{
		refusedNotReady: false, refusedDraining: false,
		refusedBusy: true, refusedSilent: true, refusedNode: true, refusedCluster: true,
	}
}

// refusalEvery is how often refused streams are logged for each reason; all are counted.
const refusalEvery = 10 * time.Second

// turnedAway counts a stream that was refused before it was a proxy's, and logs why. The node is the id
// that the client gave, "" if none.
func (s *Server) turnedAway(reason, node, peer string, err error) error {
	s.metrics.refusedStreams[reason].Inc()
	if !refusalReasons()[reason] {
		return err
	}
	s.mu.Lock()
	t := s.turned[reason]
	if t == nil {
		t = &throttle{every: refusalEvery}
		s.turned[reason] = t
	}
	held, pass := t.pass(s.now())
	s.mu.Unlock()
	if pass {
		s.log.Warn("a proxy is refused", "proxy", node, "peer", peer, "reason", reason, "err", status.Convert(err).Message(), "unlogged", held)
	}
	return err
}

// departed logs the end of a stream that a proxy had introduced itself on, and refuses any other that the
// hub ended.
func (st *stream) departed(err error) {
	switch {
	case st.id != nil:
		if gone := context.Cause(st.peer.Context()); gone != nil && errors.Is(err, gone) {
			err = context.Canceled
		}
		level, why := departure(err)
		st.s.log.LogAttrs(context.WithoutCancel(st.ctx), level, "proxy disconnected", slog.String("proxy", st.id.id),
			slog.String("cluster", string(st.id.class.Cluster)), slog.Duration("after", st.s.now().Sub(st.opened)), slog.String("reason", why))
	case st.refusal != "":
		st.s.turnedAway(st.refusal, st.claimed, remote(st.peer.Context()), err)
	}
}

// departure says why a stream ended. That a proxy leaves, or is sent to another replica, is nothing special.
func departure(err error) (slog.Level, string) {
	switch code := status.Code(err); {
	case err == nil:
		return slog.LevelInfo, "the proxy ended the stream"
	case errors.Is(err, context.Canceled), code == codes.Canceled:
		return slog.LevelInfo, "the connection is gone"
	case code == codes.Unavailable:
		return slog.LevelInfo, status.Convert(err).Message()
	}
	return slog.LevelWarn, status.Convert(err).Message()
}

// claimedID is the id in an encoded node that was refused; "" if there is none that can be read.
func claimedID(node []byte) string {
	var n corev3.Node
	if len(node) > maxNode || proto.Unmarshal(node, &n) != nil {
		return ""
	}
	return clip(n.Id, maxNodeID)
}
