package lastgood

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
)

// A file is gzip, whose trailer has the checksum, of JSON values: a header, and for each row its key and the row.
const (
	format  = "isthmus last good rows"
	version = 1
)

type header struct {
	Format  string
	Version int
	Model   string // what rows can say: see shape
	Shard   model.ShardKey
	Saved   time.Time
	Of      string `json:",omitempty"` // as in Terms
	Aside   []byte `json:",omitempty"` // likewise
	Rows    int
}

type rowKey struct{ Kind, Key string }

// What follows shadows fields of the model that have no JSON of their own, or that would be written too often; all
// other fields are written and read as they are.
type (
	addr struct { // netip.AddrPort as text has no port where it has no IP
		Cluster model.ClusterID
		IP      netip.Addr
		Port    uint16
		Host    string
	}
	endpoint struct {
		model.Endpoint
		Addr   addr
		Source *model.Source `json:",omitempty"` // none if it is that of the row

		MTLSSource *model.Source `json:",omitempty"`
	}
	leftOut struct {
		model.LeftOut
		Addr addr
	}
	endpoints struct {
		*list
		Endpoints []endpoint
		LeftOut   []leftOut
	}
	list     = model.Endpoints // by another name, since it has a field of its own name
	workload struct {
		*model.Workload
		Address addr
	}
	config struct {
		*model.Config
		Spec *spec `json:",omitempty"`
	}
	// spec is what Config.Spec may be. One field is set.
	spec struct {
		Message string                `json:",omitempty"` // name of a message, which is in Wire
		Wire    []byte                `json:",omitempty"`
		Gateway *model.NetworkGateway `json:",omitempty"`
		Host    *model.ResolvedHost   `json:",omitempty"`

		Registry  *api.RegistrySpec         `json:",omitempty"`
		Federated *api.FederatedServiceSpec `json:",omitempty"`
		Bridge    *api.McpBridgeSpec        `json:",omitempty"`
	}
)

// encode writes rows, limit bytes of them at most before they are packed. A row that can't be written fails it all:
// that is a fault of the program.
func encode(w io.Writer, h header, rows map[model.RowKey]model.Object, limit int64) error {
	zip, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	h.Format, h.Version, h.Model, h.Rows = format, version, shape(), len(rows)
	out := json.NewEncoder(&limited{zip, limit})
	out.SetEscapeHTML(false)
	if err := out.Encode(h); err != nil {
		return err
	}
	for k, o := range rows {
		row, err := rowOf(o)
		if err == nil {
			err = errors.Join(out.Encode(rowKey{k.Kind.String(), k.Key}), out.Encode(row))
		}
		if err != nil {
			return fmt.Errorf("row %s %s: %w", k.Kind, k.Key, err)
		}
	}
	return zip.Close()
}

// limited takes left bytes more.
type limited struct {
	io.Writer
	left int64
}

// errTooLarge says that there are more rows than may be kept.
var errTooLarge = errors.New("more rows than may be kept")

// Write implements io.Writer.
func (l *limited) Write(b []byte) (int, error) {
	if l.left -= int64(len(b)); l.left < 0 {
		return 0, errTooLarge
	}
	return l.Writer.Write(b)
}

func rowOf(o model.Object) (any, error) {
	switch o := o.(type) {
	case *model.Endpoints:
		return endpointsOf(o), nil
	case *model.Workload:
		return workload{o, addrOf(o.Address)}, nil
	case *model.Config:
		s, err := specOf(o.Spec)
		return config{o, s}, err
	}
	return o, nil
}

func endpointsOf(o *model.Endpoints) endpoints {
	out := endpoints{list: o}
	for i := range o.Endpoints {
		e := endpoint{Endpoint: o.Endpoints[i], Addr: addrOf(o.Endpoints[i].Addr), MTLSSource: o.Endpoints[i].MTLSSource}
		if e.Endpoint.Source != nil && *e.Endpoint.Source != o.Source {
			e.Source = e.Endpoint.Source
		}
		out.Endpoints = append(out.Endpoints, e)
	}
	for _, l := range o.LeftOut {
		out.LeftOut = append(out.LeftOut, leftOut{l, addrOf(l.Addr)})
	}
	return out
}

func addrOf(a model.Addr) addr {
	return addr{a.Cluster, a.AddrPort.Addr(), a.AddrPort.Port(), a.Host}
}

func (a addr) model() model.Addr {
	return model.Addr{Cluster: a.Cluster, AddrPort: netip.AddrPortFrom(a.IP, a.Port), Host: a.Host}
}

func specOf(s any) (*spec, error) {
	switch s := s.(type) {
	case nil:
		return nil, nil
	case *model.NetworkGateway:
		return &spec{Gateway: s}, nil
	case *model.ResolvedHost:
		return &spec{Host: s}, nil
	case *api.RegistrySpec:
		return &spec{Registry: s}, nil
	case *api.FederatedServiceSpec:
		return &spec{Federated: s}, nil
	case *api.McpBridgeSpec:
		return &spec{Bridge: s}, nil
	case proto.Message:
		wire, err := proto.Marshal(s)
		return &spec{Message: string(s.ProtoReflect().Descriptor().FullName()), Wire: wire}, err
	}
	return nil, fmt.Errorf("specification of type %T", s)
}

func (s *spec) model() (any, error) {
	switch {
	case s == nil:
		return nil, nil
	case s.Gateway != nil:
		return s.Gateway, nil
	case s.Host != nil:
		return s.Host, nil
	case s.Registry != nil:
		return s.Registry, nil
	case s.Federated != nil:
		return s.Federated, nil
	case s.Bridge != nil:
		return s.Bridge, nil
	}
	return anypb.UnmarshalNew(&anypb.Any{TypeUrl: "/" + s.Message, Value: s.Wire}, proto.UnmarshalOptions{})
}

// errForeign is any file that was not written by this version for this registry.
var errForeign = errors.New("not a file of this version for this cluster")

// decode reads what encode has written, of at most limit bytes when unpacked.
func decode(r io.Reader, shard model.ShardKey, limit int64) (header, *model.ShardState, error) {
	zip, err := gzip.NewReader(bufio.NewReader(r))
	if err != nil {
		return header{}, nil, fmt.Errorf("%w: %w", errForeign, err)
	}
	return decodeRows(io.LimitReader(zip, limit), shard)
}

// decodeRows reads to the end, so that the checksum is compared.
func decodeRows(r io.Reader, shard model.ShardKey) (h header, s *model.ShardState, err error) {
	in := json.NewDecoder(r)
	if err := in.Decode(&h); err != nil {
		return h, nil, fmt.Errorf("%w: %w", errForeign, err)
	}
	if h.Format != format || h.Version != version || h.Model != shape() || h.Shard != shard {
		return h, nil, errForeign
	}
	b := model.NewShardBuilder()
	for range h.Rows {
		var k rowKey
		if err := in.Decode(&k); err != nil {
			return h, nil, fmt.Errorf("row: %w", err)
		}
		o, err := decodeRow(in, k)
		if err != nil {
			return h, nil, fmt.Errorf("row %s %s: %w", k.Kind, k.Key, err)
		}
		b.Add(k.Key, o)
	}
	if err := in.Decode(&struct{}{}); !errors.Is(err, io.EOF) {
		return h, nil, fmt.Errorf("end: %w", cmp.Or(err, errForeign))
	}
	return h, b.Build(), nil
}

func decodeRow(in *json.Decoder, k rowKey) (model.Object, error) {
	switch k.Kind {
	case model.RowService.String():
		o := &model.Service{}
		return o, in.Decode(o)
	case model.RowEndpoints.String():
		w := endpoints{list: &model.Endpoints{}}
		err := in.Decode(&w)
		return w.model(), err
	case model.RowWorkload.String():
		w := workload{Workload: &model.Workload{}}
		err := in.Decode(&w)
		w.Workload.Address = w.Address.model()
		return w.Workload, err
	case model.RowConfig.String():
		w := config{Config: &model.Config{}}
		if err := in.Decode(&w); err != nil {
			return nil, err
		}
		var err error
		w.Config.Spec, err = w.Spec.model()
		return w.Config, err
	}
	return nil, errForeign
}

func (w endpoints) model() *model.Endpoints {
	o := w.list
	for i := range w.Endpoints {
		e := w.Endpoints[i].Endpoint
		e.Addr, e.Source, e.MTLSSource = w.Endpoints[i].Addr.model(), w.Endpoints[i].Source, w.Endpoints[i].MTLSSource
		if e.Source == nil {
			e.Source = &o.Source
		}
		o.Endpoints = append(o.Endpoints, e)
	}
	for _, l := range w.LeftOut {
		l.LeftOut.Addr = l.Addr.model()
		o.LeftOut = append(o.LeftOut, l.LeftOut)
	}
	return o
}
