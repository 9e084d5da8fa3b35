package kube

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// shape says what a value of JSON is: itself, if it is a short one.
func shape(js json.RawMessage) string {
	switch {
	case len(js) == 0:
		return "nothing"
	case js[0] == '{':
		return "an object"
	case js[0] == '[':
		return "a list"
	}
	return clip(string(js))
}

// misfit says why a value can't be that of a field that is no message; "" if it can.
func misfit(js json.RawMessage, f protoreflect.FieldDescriptor) string {
	var text string
	isText := json.Unmarshal(js, &text) == nil
	switch kind := f.Kind(); kind {
	case protoreflect.EnumKind:
		return noEnum(js, text, isText, f.Enum())
	case protoreflect.BoolKind:
		return noBool(js, text)
	case protoreflect.StringKind:
		switch {
		case isText:
			return ""
		case js[0] == '{' || js[0] == '[':
			return "it is a text, not " + shape(js)
		case js[0] == 't' || js[0] == 'f': // which may be written as yes
			return "it is a text: write the value in quotes"
		}
		return "it is a text: write " + strconv.Quote(clip(string(js)))
	case protoreflect.BytesKind:
		return ""
	default:
		return noNumber(js, text, kind)
	}
}

func noBool(js json.RawMessage, text string) string {
	switch {
	case string(js) == "true" || string(js) == "false":
		return ""
	case text == "true" || text == "false":
		return "it is true or false: write " + text + " without quotes"
	}
	return "it is true or false, not " + shape(js)
}

func noEnum(js json.RawMessage, text string, isText bool, d protoreflect.EnumDescriptor) string {
	if _, err := strconv.ParseInt(string(js), 10, 32); err == nil {
		return ""
	}
	if isText && d.Values().ByName(protoreflect.Name(text)) != nil {
		return ""
	}
	var names []string
	for i := range d.Values().Len() {
		names = append(names, string(d.Values().Get(i).Name()))
	}
	out := fmt.Sprintf("%s is none of %s", shape(js), strings.Join(names, ", "))
	if near := model.Nearest(text, names); near != "" {
		out += "; did you mean " + near + "?"
	}
	return out
}

// noNumber looks at numbers, which may be written in quotes.
func noNumber(js json.RawMessage, text string, kind protoreflect.Kind) string {
	number := string(js)
	if js[0] == '"' {
		number = text
	}
	_, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return "it is a number, not " + shape(js)
	}
	bits := 32
	switch kind {
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return ""
	case protoreflect.Int64Kind, protoreflect.Uint64Kind, protoreflect.Sint64Kind, protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind:
		bits = 64
	}
	switch kind {
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		if _, err := strconv.ParseUint(number, 10, bits); err != nil {
			return fmt.Sprintf("it is a whole number from 0 to %d, not %s", uint64(1)<<bits-1, clip(number))
		}
	default:
		if _, err := strconv.ParseInt(number, 10, bits); err != nil {
			return fmt.Sprintf("it is a whole number from %d to %d, not %s", int64(-1)<<(bits-1), uint64(1)<<(bits-1)-1, clip(number))
		}
	}
	return ""
}

var (
	plainNumber = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)
	inDays      = regexp.MustCompile(`^([0-9]{1,6})d$`)
	withUnit    = regexp.MustCompile(`^[-+]?([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$`)
)

// noDuration says why a value is no duration as Go has them, and how it is written; "" if it is one.
func noDuration(js json.RawMessage) string {
	var text string
	if json.Unmarshal(js, &text) == nil {
		if _, err := time.ParseDuration(text); err == nil {
			return ""
		}
	} else {
		text = string(js)
	}
	days := inDays.FindStringSubmatch(text)
	switch {
	case js[0] == '{' || js[0] == '[':
		return "it is a duration such as 10s, not " + shape(js)
	case plainNumber.MatchString(text):
		return fmt.Sprintf("%s is not a duration: write %ss", shape(js), clip(text))
	case days != nil:
		n, _ := strconv.Atoi(days[1])
		return fmt.Sprintf("%s is not a duration: write %dh", shape(js), 24*n)
	case withUnit.MatchString(text):
		return fmt.Sprintf("%s is longer than a duration can be", shape(js))
	}
	return fmt.Sprintf("%s is not a duration: write a number with its unit, such as 500ms, 10s, 5m or 1h", shape(js))
}
