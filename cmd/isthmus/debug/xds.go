package debug

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/isthmus-mesh/isthmus/pushcontext"
	"github.com/isthmus-mesh/isthmus/xds"
	"github.com/isthmus-mesh/isthmus/xds/gen"
)

// XDS shows the proxies of a server.
type XDS struct{ Server *xds.Server }

// Proxies implements Proxies.
func (x XDS) Proxies() []Proxy {
	var out []Proxy
	for _, c := range x.Server.Connections() {
		out = append(out, proxy(c))
	}
	return out
}

func proxy(c xds.Connection) Proxy {
	kind, rest, _ := strings.Cut(c.ID, "~")
	_, rest, _ = strings.Cut(rest, "~")
	name, _, _ := strings.Cut(rest, "~")
	p := Proxy{
		ConnectionID: c.Connection, NodeID: c.ID, Name: name, Type: kind, Cluster: string(c.Cluster), Namespace: c.Namespace,
		Network: c.Class.Network, Locality: c.Class.Locality.String(), Version: c.Version, Address: c.Peer,
		Protocol: c.Protocol.String(), ConnectedAt: c.Connected, Types: map[string]Watch{},
	}
	for i := range c.Types {
		p.Types[c.Types[i].Short] = watch(&c.Types[i])
	}
	return p
}

func watch(t *xds.TypeStatus) Watch {
	w := Watch{
		Wildcard: t.Wildcard, Names: t.Subscribed, Resources: t.Resources, Version: t.Sent.Version,
		Sent: t.Sent.Nonce, Acked: t.Acked.Nonce, Status: string(t.State()), Rejected: t.Rejected,
	}
	if t.Nack != nil {
		w.Error, w.ErrorAt = t.Nack.Message, t.Nack.Time
	}
	return w
}

// Failures implements Proxies.
func (x XDS) Failures() []Failure {
	var out []Failure
	for _, f := range x.Server.Failures() {
		out = append(out, Failure{Type: f.TypeURL, Name: f.Name, Error: f.Err})
	}
	return out
}

// Audience implements Proxies.
func (x XDS) Audience(connection string) (gen.Class, pushcontext.Reader, error) {
	for _, c := range x.Server.Connections() {
		if c.Connection == connection {
			return c.Class, c.Reader(), nil
		}
	}
	return gen.Class{}, pushcontext.Reader{}, gone()
}

// Dump implements Proxies.
func (x XDS) Dump(ctx context.Context, connection string, types []string) (json.RawMessage, error) {
	d, err := x.Server.ConfigDump(ctx, connection, types...)
	switch {
	case errors.Is(err, xds.ErrUnknownProxy):
		return nil, gone()
	case err != nil:
		return nil, err
	}
	return protojson.MarshalOptions{Multiline: true, Indent: "  ", UseProtoNames: true}.Marshal(d)
}

func gone() error {
	return &statusError{http.StatusNotFound, errors.New("the proxy has just disconnected: try again")}
}
