package kube

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	api "github.com/isthmus-mesh/isthmus/api/v1alpha1"
	"github.com/isthmus-mesh/isthmus/clusters/kube/validate"
)

// The codes of findings that conversion makes itself.
const (
	codeUnreadable = "Unreadable" // the spec can't be decoded, or is missing
	codeFailed     = "Failed"     // conversion failed, which is a fault of the program
	codeNotServed  = "NotServed"  // a field without effect
	codeTooLarge   = "TooLarge"   // it would make more endpoints than one object may
)

// maxEndpoints is how many endpoints a ServiceEntry may list, each for every host and port.
const maxEndpoints = 1 << 18

// specOf gives the spec of a kind whose objects are checked. It reports false for other kinds: Kubernetes has checked
// those. The spec is nil if there is none, or if it is no message.
func specOf(value any) (spec proto.Message, checked bool) {
	switch v := value.(type) {
	case *ServiceEntry:
		if v != nil && v.Spec != nil {
			spec = v.Spec
		}
	case *WorkloadEntry:
		if v != nil && v.Spec != nil {
			spec = v.Spec
		}
	case *Config:
		if v != nil {
			spec = v.Spec
		}
	case *Broken, *Declared:
	default:
		return nil, false
	}
	return spec, true
}

// findings says what there is to say of an object on its own, errors first. This is the one place where it is decided
// whether an object is in force: with an error it is not, unless all that is wrong is that fields have no effect.
func (c *Converter) findings(o Object, spec proto.Message) (_ []model.Finding, refused bool) {
	if v, broken := o.Value.(*Broken); broken && v != nil {
		if len(v.Faults) > 0 {
			return bounded(of(o.Ref, v.Faults)), true
		}
		return []model.Finding{refusal(o, codeUnreadable, v.Reason)}, true
	}
	if d, ok := o.Value.(*Declared); ok && d != nil {
		out := bounded(d.findings(o.Ref))
		return out, validate.Refused(out)
	}
	if spec == nil {
		return []model.Finding{refusal(o, codeUnreadable, "it has no spec")}, true
	}
	out := of(o.Ref, oddOf(o.Value))
	if !slices.ContainsFunc(out, refuses) {
		out = slices.Concat(c.checked(o, spec), out)
	}
	return bounded(out), slices.ContainsFunc(out, refuses)
}

// refuses reports whether a finding keeps an object from being in force. That a field has no effect does not, bad as it may be.
func refuses(f model.Finding) bool {
	return f.Severity == model.SeverityError && f.Code != codeNotServed && f.Code != api.CodeUnknownField
}

// oddOf is what the text of an object's spec has that its kind has not.
func oddOf(value any) []model.Finding {
	switch v := value.(type) {
	case *ServiceEntry:
		return v.Odd
	case *WorkloadEntry:
		return v.Odd
	case *Config:
		return v.Odd
	}
	return nil
}

// of makes findings those of an object.
func of(ref model.ObjectKey, list []model.Finding) []model.Finding {
	list = slices.Clone(list)
	for i := range list {
		list[i].Object = ref
	}
	return list
}

// checked gives what is wrong with a spec that could be decoded.
func (c *Converter) checked(o Object, spec proto.Message) []model.Finding {
	out := validate.Object(o.Ref, spec)
	if se, ok := spec.(*networking.ServiceEntry); ok && len(se.Hosts)*len(se.Ports)*len(se.Endpoints) > maxEndpoints {
		out = append(out, refusal(o, codeTooLarge, fmt.Sprintf("its hosts, ports and endpoints make more than %d endpoints: make several entries of it, or select workloads", maxEndpoints)))
	}
	for _, f := range notServedFields(o.Ref.Kind, spec.ProtoReflect()) {
		out = append(out, f.finding(o.Ref))
	}
	return out
}

// bounded puts findings in order, errors first, and bounds them.
func bounded(out []model.Finding) []model.Finding {
	slices.SortStableFunc(out, func(a, b model.Finding) int { return cmp.Compare(b.Severity, a.Severity) })
	out = slices.Clip(out[:min(len(out), maxReasons)])
	for i := range out {
		out[i].Field, out[i].Message = shortened(out[i].Field), shortened(out[i].Message)
	}
	return out
}

// shortened bounds what a finding quotes of its object.
func shortened(s string) string {
	const most = 512
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

func refusal(o Object, code, message string) model.Finding {
	return model.Finding{Code: code, Severity: model.SeverityError, Object: o.Ref, Message: message}
}

// quarantine gives what an object with errors leaves in force: the rows of its last good version, nil if it has had
// none, and what is wrong with it now.
func (c *Converter) quarantine(o Object, findings []model.Finding, good *Object, look Lookup) (res Result) {
	kept := "it is not in force"
	if good != nil {
		if was := c.Convert(*good, look); !was.Refused {
			res.Rows, kept = was.Rows, "its last good version stays in force"
		}
	}
	res.Findings, res.Refused = findings, true
	row := c.noted(o, &res)
	row.Refused, row.Findings = true, findings
	if _, meta := metaOf(o.Ref.Kind, o.Value); meta != nil {
		row.Generation = meta.Generation
	}
	for _, f := range findings {
		if f.Severity == model.SeverityError {
			res.problem("%s; %s", told(f), kept)
		}
	}
	return res
}

// noted gives the row that carries what is to be said of an object. Kinds whose rows are of other types get one for this.
func (c *Converter) noted(o Object, res *Result) *model.Config {
	key := model.RowKey{Kind: model.RowConfig, Key: o.Ref.String()}
	for i := range res.Rows {
		if row, ok := res.Rows[i].Obj.(*model.Config); ok && res.Rows[i].Row == key {
			return row
		}
	}
	row := c.configRow(o, o.Ref.Kind)
	res.row(key.Key, row)
	return row
}

// note adds what is to be said of an object that is in force to its rows and its problems.
func (c *Converter) note(o Object, findings []model.Finding, res *Result) {
	if res.Findings = findings; len(findings) == 0 {
		return
	}
	row := c.noted(o, res)
	row.Findings = findings
	for _, f := range findings {
		switch {
		case f.Code == codeNotServed:
			row.NotServedFields = append(row.NotServedFields, f.Field)
		case f.Severity >= model.SeverityWarning:
			res.problem("%s", told(f))
		}
	}
	slices.Sort(row.NotServedFields)
}

// told is a finding as a problem says it, which names the object elsewhere.
func told(f model.Finding) string {
	if f.Field == "" {
		return f.Message
	}
	return fmt.Sprintf("%s: %s", f.Field, f.Message)
}
