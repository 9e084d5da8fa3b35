package kube

import "fmt"

// DecodeJSON reads one object of the Kubernetes API as the server encodes it in JSON. Its revision is
// its resourceVersion. Warnings name fields that are not known and have no effect. It fails for an object
// that can't be read, or whose kind does not concern the mesh.
func DecodeJSON(js []byte) (o Object, warnings []string, err error) {
	d := &decoder{doc: document{text: js, line: 1}}
	d.one(js)
	switch {
	case len(d.out.Faults) > 0:
		return Object{}, nil, fmt.Errorf("%s", d.out.Faults[0].Reason)
	case len(d.out.Items) != 1:
		return Object{}, nil, errNotOurs
	}
	for _, w := range d.out.Warnings {
		warnings = append(warnings, w.Reason)
	}
	o = d.out.Items[0].Object
	o, _ = NewObject(o.Ref.Kind, o.Value)
	return o, warnings, nil
}

func (d *decoder) one(js []byte) {
	defer d.caught()
	d.object(js, typeMeta{})
}
