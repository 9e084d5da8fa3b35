package kube

import (
	"bytes"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serial "k8s.io/apimachinery/pkg/runtime/serializer/json"
)

// rawObject is an object of a custom kind as the API server sent it, for [DecodeJSON].
type rawObject struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	text []byte
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *rawObject) UnmarshalJSON(js []byte) error { return r.read(bytes.Clone(js)) }

// read takes the text as it is.
func (r *rawObject) read(js []byte) error {
	var head struct {
		metav1.TypeMeta
		Metadata struct{ Name, Namespace, ResourceVersion string }
	}
	if err := json.Unmarshal(js, &head); err != nil {
		return err
	}
	r.TypeMeta = head.TypeMeta
	r.Name, r.Namespace, r.ResourceVersion = head.Metadata.Name, head.Metadata.Namespace, head.Metadata.ResourceVersion
	r.text = js
	return nil
}

// DeepCopyObject implements runtime.Object.
func (r *rawObject) DeepCopyObject() runtime.Object {
	c := *r
	c.text = bytes.Clone(r.text)
	return &c
}

// rawList is a page of such objects.
type rawList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []rawObject
}

// newRawList makes an empty page of a kind.
func newRawList(apiVersion, kind string) *rawList {
	return &rawList{TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: kind + "List"}}
}

// add takes one more item, whose text is its own from then on.
func (r *rawList) add(js []byte) error {
	var o rawObject
	if err := o.read(js); err != nil {
		return err
	}
	r.Items = append(r.Items, o)
	return nil
}

// DeepCopyObject implements runtime.Object.
func (r *rawList) DeepCopyObject() runtime.Object {
	c := *r
	c.Items = make([]rawObject, len(r.Items))
	for i := range r.Items {
		c.Items[i] = *r.Items[i].DeepCopyObject().(*rawObject)
	}
	return &c
}

// rawCodec decodes JSON: kinds that the scheme has into their types, all others into a rawObject.
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
	return &rawObject{}, nil
}
