package xds

import (
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ErrUnknownProxy means that no proxy with the id is connected.
var ErrUnknownProxy = errors.New("no such proxy is connected")

// ErrUnknownType means that resources of the type are not served.
var ErrUnknownType = errors.New("resource type is not served")

var (
	errNotReady = status.Error(codes.Unavailable, "the hub is still reading its clusters; try again")
	errDraining = status.Error(codes.Unavailable, "the hub is shutting down")
	errAge      = status.Error(codes.Unavailable, "maximum connection age reached; connect again")
	errBusy     = status.Error(codes.ResourceExhausted, "too many new streams; try again")
	errSlow     = status.Error(codes.DeadlineExceeded, "the proxy does not read what it is sent")
	errPanic    = status.Error(codes.Internal, "the hub failed while it served this stream; connect again")
	errNoNode   = status.Error(codes.InvalidArgument, "the first request of a stream must have a node")
)

func invalid(format string, a ...any) error {
	return status.Errorf(codes.InvalidArgument, format, a...)
}
