package kubeapi

import (
	"bytes"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serial "k8s.io/apimachinery/pkg/runtime/serializer/json"
)

// RawObject is an object of a custom kind as the API server sent it, with its name and revision.
type RawObject struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Text []byte
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *RawObject) UnmarshalJSON(js []byte) error { return r.read(bytes.Clone(js)) }

// read takes the text as it is.
func (r *RawObject) read(js []byte) error {
	var head struct {
		metav1.TypeMeta
		Metadata struct{ Name, Namespace, ResourceVersion string }
	}
	if err := json.Unmarshal(js, &head); err != nil {
		return err
	}
	r.TypeMeta = head.TypeMeta
	r.Name, r.Namespace, r.ResourceVersion = head.Metadata.Name, head.Metadata.Namespace, head.Metadata.ResourceVersion
	r.Text = js
	return nil
}

// DeepCopyObject implements runtime.Object.
func (r *RawObject) DeepCopyObject() runtime.Object {
	c := *r
	c.Text = bytes.Clone(r.Text)
	return &c
}

// RawList is a page of such objects.
type RawList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []RawObject
}

// NewRawList makes an empty page of a kind.
func NewRawList(apiVersion, kind string) *RawList {
	return &RawList{TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: kind + "List"}}
}

// add takes one more item, whose text is its own from then on.
func (r *RawList) add(js []byte) error {
	var o RawObject
	if err := o.read(js); err != nil {
		return err
	}
	r.Items = append(r.Items, o)
	return nil
}

// DeepCopyObject implements runtime.Object.
func (r *RawList) DeepCopyObject() runtime.Object {
	c := *r
	c.Items = make([]RawObject, len(r.Items))
	for i := range r.Items {
		c.Items[i] = *r.Items[i].DeepCopyObject().(*RawObject)
	}
	return &c
}

// rawCodec decodes JSON: kinds that the scheme has into their types, all others into a RawObject.
type rawCodec struct{ scheme *runtime.Scheme }

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (c rawCodec) SupportedMediaTypes() []runtime.SerializerInfo {
	events := serial.NewSerializerWithOptions(serial.DefaultMetaFactory, c.scheme, c.scheme, serial.SerializerOptions{})
	return []runtime.SerializerInfo{{
		MediaType: runtime.ContentTypeJSON, MediaTypeType: "application", MediaTypeSubType: "json", EncodesAsText: true,
		Serializer:       serial.NewSerializerWithOptions(serial.DefaultMetaFactory, c, c.scheme, serial.SerializerOptions{}),
		StreamSerializer: &runtime.StreamSerializerInfo{EncodesAsText: true, Serializer: events, Framer: serial.Framer},
	}}
}

// EncoderForVersion implements runtime.NegotiatedSerializer.
func (c rawCodec) EncoderForVersion(e runtime.Encoder, _ runtime.GroupVersioner) runtime.Encoder {
	return e
}

// DecoderToVersion implements runtime.NegotiatedSerializer.
func (c rawCodec) DecoderToVersion(d runtime.Decoder, _ runtime.GroupVersioner) runtime.Decoder {
	return d
}

// New implements runtime.ObjectCreater.
func (c rawCodec) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	if c.scheme.Recognizes(kind) {
		return c.scheme.New(kind)
	}
	return &RawObject{}, nil
}
