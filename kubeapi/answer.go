package kubeapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// head is what an answer says of itself.
type head struct {
	metav1.TypeMeta
	list  metav1.ListMeta
	items int
	parts int // objects and lists within the items, or whatever has a length
	most  bounds
}

// bounds are what a page of a list may have.
type bounds struct {
	bytes        int64
	items, parts int
}

var errNoObject = errors.New("it is not what a list looks like")

// bound fails for more items than a page has that a server in its right mind sends.
func (h head) bound() error {
	if h.items > h.most.items || h.parts > h.most.parts {
		return errTooMuch
	}
	return nil
}

// What an answer may have: small items and parts take many times more memory than their text. A server that
// does not heed the limit of a page gives more items than were asked for.
const (
	maxAnswer = 64 << 20
	maxItems  = 20 * pageSize
	maxParts  = 1 << 20
)

// largeAnswer is how many bytes an answer may have while there are others.
const largeAnswer = 16 << 20

// errTooMuch is an answer beyond the bounds.
var errTooMuch = fmt.Errorf("%w: it has too much in it", ErrUnreadable)

type answerKey struct{}

// do reads an answer. Large ones are read one after the other: until done is called.
func (c *Client) do(ctx context.Context, r *rest.Request) (res rest.Result, done func()) {
	b := &bounded{ctx: ctx, left: c.most.bytes, small: largeAnswer, large: c.large}
	return r.Do(context.WithValue(ctx, answerKey{}, b)), b.done
}

// bounded is a body that ends with an error when it is too long.
type bounded struct {
	io.ReadCloser
	ctx         context.Context
	left, small int64 // bytes until it is too long, and until it is large
	large       chan struct{}
	held        bool
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooMuch
	}
	if b.small <= 0 && !b.held {
		select {
		case b.large <- struct{}{}:
			b.held = true
		case <-b.ctx.Done():
			return 0, b.ctx.Err()
		}
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	b.small -= int64(n)
	return n, err
}

// done lets the next large answer be read.
func (b *bounded) done() {
	if b.held {
		b.held = false
		<-b.large
	}
}

// protobufMagic begins what an API server encodes as protobuf.
var protobufMagic = []byte("k8s\x00")

// decode puts an answer into out, after a look at what it says of itself: something else than an API server,
// or one in trouble, may answer 200 with anything, which must not be taken for an empty list.
func (c *Client) decode(ctx context.Context, res rest.Result, out runtime.Object) error {
	body, err := res.Raw()
	if err != nil {
		return err
	}
	want, err := c.kindOf(out)
	if err != nil {
		return err
	}
	raw, custom := out.(*RawList)
	got := head{most: c.most}
	switch {
	case bytes.HasPrefix(body, protobufMagic):
		err = got.protobuf(body[len(protobufMagic):])
	case custom:
		err = got.json(ctx, body, raw.add)
		raw.ListMeta = got.list
	default:
		err = got.json(ctx, body, func([]byte) error { return nil })
	}
	if err == nil {
		err = got.check(want)
	}
	if err == nil && !custom {
		err = res.Into(out)
	}
	if err == nil {
		err = lacksRevision(out)
	}
	return err
}

// kindOf gives the kind that an answer must have.
func (c *Client) kindOf(out runtime.Object) (metav1.TypeMeta, error) {
	if raw, custom := out.(*RawList); custom {
		return raw.TypeMeta, nil
	}
	kinds, _, err := c.scheme.ObjectKinds(out)
	if err != nil {
		return metav1.TypeMeta{}, err
	}
	version, kind := kinds[0].ToAPIVersionAndKind()
	return metav1.TypeMeta{APIVersion: version, Kind: kind}, nil
}

// check compares kinds. Servers leave out the version of what they tell of kinds.
func (h head) check(want metav1.TypeMeta) error {
	if h.Kind != want.Kind || h.APIVersion != want.APIVersion && (h.APIVersion != "" || !strings.HasPrefix(h.Kind, "API")) {
		return fmt.Errorf("it is a %q of %q", Clip(h.Kind), Clip(h.APIVersion))
	}
	return nil
}

// lacksRevision fails for a list that does not say as of when it is.
func lacksRevision(out runtime.Object) error {
	if l, ok := out.(metav1.ListMetaAccessor); ok && l.GetListMeta().GetResourceVersion() == "" {
		return errors.New("it has no resourceVersion")
	}
	return nil
}

// protobuf reads the kind of a runtime.Unknown, and counts the items of the list in it: fields 1 and 2 of
// both are what they are of themselves, and what they hold.
func (h *head) protobuf(body []byte) error {
	return eachField(body, func(n protowire.Number, v []byte) error {
		switch n {
		case 1:
			var t runtime.TypeMeta
			if err := t.Unmarshal(v); err != nil {
				return err
			}
			h.TypeMeta = metav1.TypeMeta{APIVersion: t.APIVersion, Kind: t.Kind}
		case 2:
			return eachField(v, func(n protowire.Number, item []byte) error {
				if n == 2 {
					h.items++
					h.parts += fields(item, 6)
				}
				return h.bound()
			})
		}
		return nil
	})
}

// fields counts the fields in a message that may be messages, and in those, some levels deep. What is text
// ends soon, since it is none.
func fields(msg []byte, levels int) (n int) {
	if levels == 0 {
		return 0
	}
	_ = eachField(msg, func(_ protowire.Number, v []byte) error {
		n += 1 + fields(v, levels-1)
		return nil
	})
	return n
}

// eachField visits the fields of a protobuf message that have a length.
func eachField(msg []byte, visit func(protowire.Number, []byte) error) error {
	for len(msg) > 0 {
		n, typ, size := protowire.ConsumeTag(msg)
		if size < 0 {
			return protowire.ParseError(size)
		}
		msg = msg[size:]
		if size = protowire.ConsumeFieldValue(n, typ, msg); size < 0 {
			return protowire.ParseError(size)
		}
		if typ == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(msg)
			if err := visit(n, v); err != nil {
				return err
			}
		}
		msg = msg[size:]
	}
	return nil
}

// json reads what an answer says of itself, and gives its items one by one. It ends with ctx.
func (h *head) json(ctx context.Context, body []byte, item func([]byte) error) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return errNoObject
	}
	seen := map[string]bool{}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return err
		}
		key, _ := name.(string)
		if seen[key] || len(seen) > 100 {
			return fmt.Errorf("field %q is there twice, or one of too many", Clip(key))
		}
		seen[key] = true
		if err := h.field(ctx, dec, key, item); err != nil {
			return err
		}
	}
	_, err := dec.Token()
	return err
}

func (h *head) field(ctx context.Context, dec *json.Decoder, key string, item func([]byte) error) error {
	switch key {
	case "kind":
		return dec.Decode(&h.Kind)
	case "apiVersion":
		return dec.Decode(&h.APIVersion)
	case "metadata":
		return dec.Decode(&h.list)
	case "items":
		return h.eachItem(ctx, dec, item)
	}
	var other json.RawMessage
	return dec.Decode(&other)
}

func (h *head) eachItem(ctx context.Context, dec *json.Decoder, item func([]byte) error) error {
	switch t, err := dec.Token(); {
	case err != nil:
		return err
	case t == nil: // null
		return nil
	case t != json.Delim('['):
		return errNoObject
	}
	for dec.More() {
		var text json.RawMessage
		if err := dec.Decode(&text); err != nil {
			return err
		}
		h.items++
		h.parts += bytes.Count(text, []byte("{")) + bytes.Count(text, []byte("["))
		if err := errors.Join(ctx.Err(), h.bound(), item(text)); err != nil {
			return err
		}
	}
	_, err := dec.Token()
	return err
}
