package model

import "fmt"

// Severity says what a finding means for its object.
type Severity uint8

// The severities.
const (
	SeverityInfo    Severity = iota // worth knowing
	SeverityWarning                 // works, most likely not as meant
	SeverityError                   // the object, or the part of it that Field names, is not used
)

var severityNames = [...]string{"info", "warning", "error"}

// String gives the lower-case name.
func (s Severity) String() string { return severityNames[s] }

// MarshalText gives String.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Finding is something about one configuration object that its author should know.
type Finding struct {
	Code     string // stable, for filters and documentation: "VirtualServiceUnknownHost"
	Severity Severity
	Object   ObjectKey
	Field    string // path of JSON names with indexes: "http[0].route[1].weight"; "" for the whole object
	Message  string // a sentence that says what to do
}

// String gives "severity Kind/namespace/name field: message [code]".
func (f Finding) String() string {
	field := ""
	if f.Field != "" {
		field = " " + f.Field
	}
	return fmt.Sprintf("%s %s%s: %s [%s]", f.Severity, f.Object, field, f.Message, f.Code)
}
