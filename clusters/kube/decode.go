package kube

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Contents is what a file of YAML or JSON holds.
type Contents struct {
	Items    []Item
	Faults   []Fault        // documents that can't be read: the file as a whole is not to be trusted, unless only one object is meant
	Warnings []Fault        // things that are accepted but have no effect
	Ignored  map[string]int // objects of kinds that are of no concern to the mesh, by "group/Kind"
}

// Item is one object and the line at which its document starts.
type Item struct {
	Line   int
	Object Object
}

// Fault is something wrong in a file.
type Fault struct {
	Line   int // 1-based
	Reason string
	// Broken is the object, of a kind that is checked, whose spec can't be decoded, as one without spec; nil if the
	// fault is of more than one object. Its last good version stays in force: see [Store].
	Broken *Object
}

// Decode reads a file: documents separated by "---", each an object or a list of objects. The
// objects' revision is a hash of their content, their time is when the file was modified.
func Decode(data []byte, modified time.Time) Contents {
	d := &decoder{modified: modified, full: true}
	for _, doc := range split(data) {
		d.document(doc)
	}
	return d.out
}

type decoder struct {
	modified time.Time
	full     bool // objects are told by their whole names, not by their kinds alone
	doc      document
	out      Contents
}

type document struct {
	text []byte
	line int // of its first line
}

// split cuts the file at lines that start with "---" or are "...".
func split(data []byte) []document {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	var out []document
	cur := document{line: 1}
	line := 0
	for len(data) > 0 {
		end := bytes.IndexByte(data, '\n') + 1
		if end == 0 {
			end = len(data)
		}
		text := data[:end]
		data = data[end:]
		line++
		if rest, ok := separator(text); ok {
			out = append(out, cur)
			cur = document{line: line, text: append([]byte(nil), rest...)}
			continue
		}
		cur.text = append(cur.text, text...)
	}
	return append(out, cur)
}

func separator(line []byte) (rest []byte, ok bool) {
	if r, found := bytes.CutPrefix(line, []byte("---")); found && (len(r) == 0 || strings.ContainsRune(" \t\r\n", rune(r[0]))) {
		if len(r) == 0 {
			r = []byte("\n")
		}
		return r, true
	}
	if string(bytes.TrimRight(line, " \t\r\n")) == "..." && line[0] == '.' {
		return []byte("\n"), true
	}
	return nil, false
}

// firstLine is the line of the document's first content.
func (d document) firstLine() int {
	for i, l := range bytes.Split(d.text, []byte("\n")) {
		if t := bytes.TrimSpace(l); len(t) > 0 && t[0] != '#' {
			return d.line + i
		}
	}
	return d.line
}

func (d *decoder) document(doc document) {
	d.doc = doc
	defer d.caught()
	js, err := yaml.YAMLToJSONStrict(doc.text)
	if err != nil {
		line, reason := yamlError(err)
		if line == 0 {
			d.fault(doc.firstLine(), "%s", reason)
		} else {
			d.fault(doc.line+line-1, "%s", reason)
		}
		return
	}
	if js = bytes.TrimSpace(js); bytes.Equal(js, []byte("null")) {
		return
	}
	d.object(js, typeMeta{})
}

// caught makes a panic a fault of the document.
func (d *decoder) caught() {
	if p := recover(); p != nil {
		d.fault(d.doc.firstLine(), "can't be read: %v", p)
	}
}

var yamlLine = regexp.MustCompile(`line (\d+): `)

// keyTwice is the parser's complaint of a key that is there already.
var keyTwice = regexp.MustCompile(`^(line \d+: )key "(.*?)" already set in map`)

// betweenObjects says what is likely missing where a key that every object has is there twice.
func betweenObjects(key string) string {
	switch key {
	case "apiVersion", "kind", "metadata", "spec":
		return ": if another object begins here, a line '---' must be before it"
	}
	return ""
}

// yamlError takes the line (relative to the document, 0 if unknown) out of the parser's message.
func yamlError(err error) (int, string) {
	msg := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
	msg = strings.Join(strings.Fields(strings.TrimPrefix(msg, "yaml: ")), " ")
	msg = strings.TrimPrefix(msg, "unmarshal errors: ")
	if m := keyTwice.FindStringSubmatch(msg); m != nil {
		msg = m[1] + strconv.Quote(m[2]) + " is there twice" + betweenObjects(m[2])
	}
	m := yamlLine.FindStringSubmatchIndex(msg)
	if m == nil {
		return 0, msg
	}
	line, _ := strconv.Atoi(msg[m[2]:m[3]])
	return line, msg[:m[0]] + msg[m[1]:]
}

func (d *decoder) fault(line int, format string, args ...any) {
	d.out.Faults = append(d.out.Faults, Fault{Line: line, Reason: fmt.Sprintf(format, args...)})
}

func (d *decoder) warn(line int, format string, args ...any) {
	d.out.Warnings = append(d.out.Warnings, Fault{Line: line, Reason: fmt.Sprintf(format, args...)})
}

type typeMeta struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

func (t typeMeta) group() string {
	group, _, found := strings.Cut(t.APIVersion, "/")
	if !found {
		return ""
	}
	return group
}

type listMeta struct {
	typeMeta
	Items []json.RawMessage `json:"items"`
}

// object decodes one object; implied is what a typed list says of its items.
func (d *decoder) object(js []byte, implied typeMeta) {
	line := d.doc.firstLine()
	var l listMeta
	if err := kjson.UnmarshalCaseSensitivePreserveInts(js, &l); err != nil {
		reason, _ := Reason(err)
		d.fault(line, "%s", reason)
		return
	}
	if l.Kind == "" && l.APIVersion == "" {
		l.typeMeta = implied
	}
	switch {
	case l.Kind == "" || l.APIVersion == "":
		d.fault(line, "has no apiVersion or no kind")
	case strings.HasSuffix(l.Kind, "List"):
		item := typeMeta{APIVersion: l.APIVersion, Kind: strings.TrimSuffix(l.Kind, "List")}
		for _, it := range l.Items {
			d.object(it, item)
		}
	default:
		d.kind(js, l.typeMeta, line)
	}
}

func (d *decoder) kind(js []byte, t typeMeta, line int) {
	kind, value := blank(t)
	if value == nil || kind == KindConfigMap && !meshConfigMap(js) {
		d.skip(t, line)
		return
	}
	d.decode(js, kind, value, line)
}

// skip counts objects of other kinds, and says so where one looks like endpoints but is not read.
func (d *decoder) skip(t typeMeta, line int) {
	switch {
	case t.APIVersion == "v1" && t.Kind == "Endpoints":
		d.warn(line, "Endpoints are not read: write an EndpointSlice of discovery.k8s.io/v1")
	case t.group() == "discovery.k8s.io":
		d.warn(line, "%s of %s is not read: use discovery.k8s.io/v1", t.Kind, t.APIVersion)
	}
	if d.out.Ignored == nil {
		d.out.Ignored = map[string]int{}
	}
	d.out.Ignored[t.group()+"/"+t.Kind]++
}

func (d *decoder) decode(js []byte, kind string, value any, line int) {
	unknown, err := kjson.UnmarshalStrict(js, value)
	if err != nil {
		d.undecodable(line, d.title(js, kind), err)
		return
	}
	for _, e := range unknown {
		d.warn(d.lineOf(e, line), "%s: %v has no effect", d.title(js, kind), e)
	}
	if r, ok := value.(rawSpec); ok {
		v, err := r.typed()
		if err != nil {
			d.undecodable(line, kind, err)
			d.broken(js, kind, r.meta(), err)
			return
		}
		value = v
	}
	d.add(js, kind, value, line)
}

// title is what an object is called in what is said of it: "Pod/shop/web", or its kind if it has no name that is one.
func (d *decoder) title(js []byte, kind string) string {
	var meta metav1.PartialObjectMetadata
	if !d.full || json.Unmarshal(js, &meta) != nil {
		return kind
	}
	if o, err := d.named(js, kind, &Other{Meta: meta.ObjectMeta}); err == nil {
		return o.Ref.String()
	}
	return kind
}

func (d *decoder) add(js []byte, kind string, value any, line int) {
	o, err := d.named(js, kind, value)
	if err != nil {
		d.fault(line, "%s: %v", kind, err)
		return
	}
	d.out.Items = append(d.out.Items, Item{Line: line, Object: o})
}

// broken says of which object the last fault is, if it has a name.
func (d *decoder) broken(js []byte, kind string, meta metav1.ObjectMeta, why error) {
	f := &d.out.Faults[len(d.out.Faults)-1]
	if o, err := d.named(js, kind, &Broken{Meta: meta, Reason: strings.TrimPrefix(f.Reason, kind+": "), Faults: misfitsOf(why)}); err == nil {
		f.Broken = &o
	}
}

// named wraps an object whose name is one.
func (d *decoder) named(js []byte, kind string, value any) (Object, error) {
	o, _ := NewObject(kind, value)
	if err := validName(o.Ref.Name); err != nil {
		return Object{}, fmt.Errorf("metadata.name: %w", err)
	}
	if o.Ref.Kind != KindNamespace && o.Ref.Kind != KindNode {
		if o.Ref.Namespace == "" {
			_, meta := metaOf(kind, value)
			meta.Namespace = "default"
			o.Ref.Namespace = "default"
		}
		if !validLabel(o.Ref.Namespace) {
			return Object{}, fmt.Errorf("metadata.namespace: %q is not a namespace name", clip(o.Ref.Namespace))
		}
	}
	sum := sha256.Sum256(js)
	o.Revision, o.Time = hex.EncodeToString(sum[:6]), d.modified
	return o, nil
}

// validName checks an object's name; row keys are made of it, so a "/" would be ambiguous.
func validName(s string) error {
	if s == "" {
		return fmt.Errorf("it is empty")
	}
	return validDNS(s)
}

// undecodable says why an object can't be decoded, at the line of the field if only one can be meant.
func (d *decoder) undecodable(line int, title string, err error) {
	reason, field := Reason(err)
	if at := OnlyLine(d.doc.text, field); at > 0 {
		line = d.doc.line + at - 1
	}
	d.fault(line, "%s: %s", title, reason)
}

// OnlyLine is the number, from 1, of the line that begins with a field; 0 if none does or several do.
func OnlyLine(text []byte, field string) int {
	found := 0
	for i, l := range bytes.Split(text, []byte("\n")) {
		if field == "" || !strings.HasPrefix(strings.TrimLeft(string(l), " \t-\""), field+":") {
			continue
		}
		if found > 0 {
			return 0
		}
		found = i + 1
	}
	return found
}

var quoted = regexp.MustCompile(`"([^"]+)"`)

// lineOf looks for the line of the field that a message quotes, as "spec.foo" or "foo".
func (d *decoder) lineOf(err error, otherwise int) int {
	m := quoted.FindStringSubmatch(err.Error())
	if m == nil {
		return otherwise
	}
	field := m[1][strings.LastIndexByte(m[1], '.')+1:] + ":"
	for i, l := range bytes.Split(d.doc.text, []byte("\n")) {
		if strings.HasPrefix(strings.TrimLeft(string(l), " \t-\""), field) {
			return d.doc.line + i
		}
	}
	return otherwise
}
