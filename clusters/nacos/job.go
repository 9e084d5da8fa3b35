package nacos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

const (
	pageSize  = 500      // names in one page of a list
	maxNames  = 200_000  // of one group
	maxBytes  = 32 << 20 // of these names
	listTries = 3        // of a list that changes while it is read
)

// errPartial is a list that is not whole: it says nothing of the names that are not in it.
var errPartial = errors.New("the list changed while it was read")

// errTooLarge is a list that exceeds what is read of one.
var errTooLarge = errors.New("the list is too large")

// list reads the names of a group's services. With errPartial come those that were seen.
func (s *session) list(ctx context.Context, sc scope) (names []string, err error) {
	seen := map[string]bool{}
	for range listTries {
		if names, err = s.pages(ctx, sc); err == nil {
			return names, nil
		}
		if !errors.Is(err, errPartial) {
			return nil, err
		}
		for _, n := range names {
			seen[n] = true
		}
	}
	return slices.Collect(maps.Keys(seen)), err
}

// pages reads a list once. It is whole if every page gives the same number of names, and that many different ones came.
func (s *session) pages(ctx context.Context, sc scope) (out []string, err error) {
	seen := map[string]bool{}
	total, size := -1, 0
	for page := 1; total < 0 || (page-1)*pageSize < total; page++ {
		var r listResponse
		req := listRequest{request: request{Module: "naming", Namespace: sc.namespace, Group: sc.group}, PageNo: page, PageSize: pageSize}
		if err := s.call(ctx, classList, sc.group, "", req, &r); err != nil {
			return nil, err
		}
		if total >= 0 && total != r.Count {
			return out, errPartial
		}
		if total = r.Count; total < 0 || total > maxNames {
			return nil, fmt.Errorf("%w: %d names; at most %d are read", errTooLarge, total, maxNames)
		}
		for _, n := range r.Names {
			n = plainName(sc.group, n)
			if seen[n] || len(out) == total {
				return out, errPartial
			}
			if size += len(n); size > maxBytes {
				return nil, fmt.Errorf("%w: more than %d bytes of names", errTooLarge, maxBytes)
			}
			seen[n], out = true, append(out, n)
		}
	}
	if len(out) != total {
		return out, errPartial
	}
	return out, nil
}

func (n serviceName) request() request {
	return request{Module: "naming", Namespace: n.namespace, Service: n.name, Group: n.group}
}

// subscribe asks to be told of a service, and gives what it is now.
func (s *session) subscribe(ctx context.Context, n serviceName) (*serviceInfo, error) {
	return s.info(ctx, classSubscribe, n, subscribeRequest{request: n.request(), Subscribe: true})
}

// unsubscribe asks to be told no more.
func (s *session) unsubscribe(ctx context.Context, n serviceName) error {
	return s.call(ctx, classSubscribe, n.group, n.name, subscribeRequest{request: n.request()}, nil)
}

// query gives what a service is now. One that does not exist has no instances.
func (s *session) query(ctx context.Context, n serviceName) (*serviceInfo, error) {
	return s.info(ctx, classQuery, n, queryRequest{request: n.request()})
}

func (s *session) info(ctx context.Context, class string, n serviceName, body any) (*serviceInfo, error) {
	var r infoResponse
	if err := s.call(ctx, class, n.group, n.name, body, &r); err != nil {
		return nil, err
	}
	if r.Info == nil {
		return nil, fmt.Errorf("%s: the answer holds no service", class)
	}
	return r.Info, nil
}

// fuzzyWatch asks to be told of the names of a group's services.
func (s *session) fuzzyWatch(ctx context.Context, sc scope) error {
	req := fuzzyRequest{request: request{Module: "naming", Namespace: sc.namespace}, Pattern: sc.pattern(), Watch: watchTypeWatch, Initializing: true, Received: []string{}}
	return s.call(ctx, classFuzzyWatch, sc.group, "", req, nil)
}
