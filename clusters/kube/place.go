package kube

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"unicode/utf8"
)

// misplaced is an error of a decoder, and which field it is about.
type misplaced struct {
	error
	field string // "http[0].timeout"
}

func (m misplaced) Unwrap() error { return m.error }

var jsonColumn = regexp.MustCompile(`\(line 1:(\d+)\)`)

// placed says which field of JSON on one line an error is about, if it says at which column.
func placed(js []byte, err error) error {
	m := jsonColumn.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	column, _ := strconv.Atoi(m[1])
	if field := fieldAt(js, column); field != "" {
		return misplaced{err, field}
	}
	return err
}

// fieldAt gives the path of the value that begins at a column, from 1, or that it is within; "" if there is none.
func fieldAt(js []byte, column int) string {
	d := json.NewDecoder(bytes.NewReader(js))
	w := &pathWalk{}
	for {
		token, err := d.Token()
		if err != nil {
			return ""
		}
		at := w.path()
		if end := d.InputOffset(); end <= int64(len(js)) && utf8.RuneCount(js[:end]) >= column {
			return at
		}
		w.step(token)
	}
}

// pathWalk follows the tokens of JSON.
type pathWalk struct{ levels []pathLevel }

type pathLevel struct {
	list  bool
	index int    // of the item, in a list
	key   string // of the value, in an object; "" before it is read
}

func (w *pathWalk) step(token json.Token) {
	switch token {
	case json.Delim('{'), json.Delim('['):
		w.levels = append(w.levels, pathLevel{list: token == json.Delim('[')})
		return
	case json.Delim('}'), json.Delim(']'):
		w.levels = w.levels[:len(w.levels)-1]
	}
	if len(w.levels) == 0 {
		return
	}
	switch l := &w.levels[len(w.levels)-1]; {
	case l.list:
		l.index++
	case l.key == "":
		l.key, _ = token.(string)
	default:
		l.key = ""
	}
}

func (w *pathWalk) path() (out string) {
	for _, l := range w.levels {
		switch {
		case l.list:
			out += fmt.Sprintf("[%d]", l.index)
		case l.key == "":
		case out == "":
			out = l.key
		default:
			out += "." + l.key
		}
	}
	return out
}

// fieldOf gives the field that an error is about, "" if it does not say it.
func fieldOf(err error) string {
	var m misplaced
	if errors.As(err, &m) {
		return m.field
	}
	return ""
}
