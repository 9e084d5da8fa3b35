package kube

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	// jsonPlace is a place in JSON that was made of the YAML, and that nobody wrote.
	jsonPlace = regexp.MustCompile(`\(line \d+:\d+\):?[\s\x{a0}]*`)
	wrongType = regexp.MustCompile(`^cannot unmarshal (\S+(?: \S+)?) into Go (?:struct field \w+\.(\S+)|value) of type (\S+)$`)
	badField  = regexp.MustCompile(`field (\w+): `)
)

// Reason is what a decoder of JSON or protobuf complains of in words of the file: without the names of
// Go types and without places in the JSON that the file was turned into. A common trap, an unquoted yes
// or 1.2, is told with the way out. The field at fault is "" if the decoder does not say it.
func Reason(err error) (reason, field string) {
	msg := strings.TrimPrefix(err.Error(), "json: ")
	if rest, ok := strings.CutPrefix(msg, "proto:"); ok {
		msg = strings.TrimLeft(rest, " \u00a0")
	}
	msg = jsonPlace.ReplaceAllString(msg, "")
	if m := badField.FindStringSubmatch(msg); m != nil {
		return msg, m[1]
	}
	if at := fieldOf(err); at != "" {
		return at + ": " + msg, lastName(at)
	}
	if faults := misfitsOf(err); len(faults) > 0 {
		return err.Error(), lastName(faults[0].Field)
	}
	m := wrongType.FindStringSubmatch(msg)
	if m == nil {
		return msg, ""
	}
	msg = fmt.Sprintf("want %s, not %s", wanted(m[3]), given(m[1]))
	if m[3] == "string" && (m[1] == "bool" || strings.HasPrefix(m[1], "number")) {
		msg += ": write the value in quotes"
	}
	if m[2] != "" {
		msg = m[2] + ": " + msg
	}
	return msg, m[2][strings.LastIndexByte(m[2], '.')+1:]
}

// lastName is the name that the path of a field ends with.
func lastName(path string) string {
	name := path[strings.LastIndexByte(path, '.')+1:]
	if i := strings.IndexByte(name, '['); i > 0 {
		name = name[:i]
	}
	return name
}

// wanted says what a Go type looks like in YAML.
func wanted(t string) string {
	switch t = strings.TrimLeft(t, "*"); {
	case t == "string":
		return "a text"
	case t == "bool":
		return "true or false"
	case strings.HasPrefix(t, "[]"):
		return "a list"
	case strings.HasPrefix(t, "int"), strings.HasPrefix(t, "uint"), strings.HasPrefix(t, "float"):
		return "a number"
	}
	return "an object"
}

// given says what JSON calls a value.
func given(t string) string {
	switch t {
	case "number":
		return "a number"
	case "array":
		return "a list"
	case "bool":
		return "true or false"
	case "object":
		return "an object"
	case "string":
		return "a text"
	}
	return "the " + t // "number 1.5"
}
