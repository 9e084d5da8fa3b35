package model

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Envoy refuses a listener for an expression that it can't read or that calls what it has not. Of the Common Expression
// Language this reads what Envoy takes in filters of access logs; what it does not read is not sent.

const (
	longestExpression = 4096
	deepestExpression = 16 // parentheses, brackets and conditions in one another
)

// calls are the functions, and methods those called on a value, with how many arguments they may have.
var (
	calls   = map[string][]int{"size": {1}, "int": {1}, "uint": {1}, "double": {1}, "bytes": {1}, "type": {1}, "duration": {1}, "timestamp": {1}, "matches": {2}, "has": {1}}
	methods = map[string][]int{
		"contains": {1}, "startsWith": {1}, "endsWith": {1}, "matches": {1}, "size": {0}, "getFullYear": {0, 1}, "getMonth": {0, 1}, "getDate": {0, 1}, "getDayOfMonth": {0, 1},
		"getDayOfWeek": {0, 1}, "getDayOfYear": {0, 1}, "getHours": {0, 1}, "getMinutes": {0, 1}, "getSeconds": {0, 1}, "getMilliseconds": {0, 1}}
	reservedWords = strings.Fields(`as break const continue else for function if import let loop package namespace return var void while in`)
)

var lexeme = regexp.MustCompile(`^(?:[ \t\r\n\f]+|([A-Za-z_][A-Za-z0-9_]*)|(0x[0-9a-fA-F]+u?|[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|[0-9]+u?)|` +
	`("(?:[^"\\\r\n]|\\[abfnrtv"'\\` + "`" + `?])*"|'(?:[^'\\\r\n]|\\[abfnrtv"'\\` + "`" + `?])*')|(&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{}]))`)

type lexemeKind uint8

const (
	lexWord lexemeKind = 1 + iota
	lexNumber
	lexString
	lexMark
)

type expressionToken struct {
	kind lexemeKind
	text string
}

// ValidExpression reports whether Envoy takes an expression in a filter of access logs, or for a tag of a metric.
func ValidExpression(s string) bool {
	if len(s) > longestExpression {
		return false
	}
	p := &expressionReader{}
	for s != "" {
		m := lexeme.FindStringSubmatchIndex(s)
		if m == nil {
			return false
		}
		for k := lexWord; k <= lexMark; k++ {
			if m[2*k] >= 0 {
				p.tokens = append(p.tokens, expressionToken{k, s[m[2*k]:m[2*k+1]]})
			}
		}
		s = s[m[1]:]
	}
	_, ok := p.whole()
	return ok && len(p.tokens) == 0
}

// operand is what was read, as far as it matters to what it stands in.
type operand struct {
	field   bool   // it selects a field
	literal string // a string as it is written, "" for others
}

type expressionReader struct {
	tokens []expressionToken
	depth  int
}

func (p *expressionReader) accept(marks ...string) bool {
	if len(p.tokens) == 0 || p.tokens[0].kind == lexString || p.tokens[0].kind == lexNumber || !slices.Contains(marks, p.tokens[0].text) {
		return false
	}
	p.tokens = p.tokens[1:]
	return true
}

// whole reads a condition, or what one chooses between.
func (p *expressionReader) whole() (operand, bool) {
	if p.depth++; p.depth > deepestExpression {
		return operand{}, false
	}
	defer func() { p.depth-- }()
	x, ok := p.chain()
	if !ok || !p.accept("?") {
		return x, ok
	}
	if _, ok := p.chain(); !ok || !p.accept(":") {
		return operand{}, false
	}
	_, ok = p.whole()
	return operand{}, ok
}

// chain reads operands with operators between them: which binds tighter does not matter to whether it can be read.
func (p *expressionReader) chain() (operand, bool) {
	x, ok := p.signed()
	for ok && p.accept("&&", "||", "==", "!=", "<=", ">=", "<", ">", "in", "+", "-", "*", "/", "%") {
		_, ok = p.signed()
		x = operand{}
	}
	return x, ok
}

func (p *expressionReader) signed() (operand, bool) {
	switch {
	case p.accept("!"):
		for p.accept("!") {
		}
	case p.accept("-"):
		for p.accept("-") {
		}
	default:
		return p.selected()
	}
	_, ok := p.selected()
	return operand{}, ok
}

// selected reads a value, and fields, items and methods of it.
func (p *expressionReader) selected() (operand, bool) {
	x, ok := p.value()
	for ok {
		switch {
		case p.accept("."):
			var name string
			if name, ok = p.name(); ok && p.accept("(") {
				x, ok = operand{}, p.call(methods[name], name == "matches")
			} else {
				x = operand{field: true}
			}
		case p.accept("["):
			if _, ok = p.whole(); ok {
				ok = p.accept("]")
			}
			x = operand{}
		default:
			return x, true
		}
	}
	return operand{}, false
}

// name reads a word that may be one of a field or function.
func (p *expressionReader) name() (string, bool) {
	if len(p.tokens) == 0 || p.tokens[0].kind != lexWord {
		return "", false
	}
	word := p.tokens[0].text
	p.tokens = p.tokens[1:]
	reserved := slices.Contains(reservedWords, word)
	return word, !reserved && word != "true" && word != "false" && word != "null"
}

func (p *expressionReader) value() (operand, bool) {
	switch {
	case p.accept("("):
		x, ok := p.whole()
		return x, ok && p.accept(")")
	case p.accept("["):
		return operand{}, p.list("]", func() bool { _, ok := p.whole(); return ok })
	case p.accept("{"):
		return operand{}, p.list("}", func() bool {
			if _, ok := p.whole(); !ok || !p.accept(":") {
				return false
			}
			_, ok := p.whole()
			return ok
		})
	case p.accept("true", "false", "null"):
		return operand{}, true
	case len(p.tokens) == 0:
		return operand{}, false
	}
	switch t := p.tokens[0]; t.kind {
	case lexString:
		p.tokens = p.tokens[1:]
		return operand{literal: t.text}, true
	case lexNumber:
		p.tokens = p.tokens[1:]
		return operand{}, validNumber(t.text)
	case lexWord:
		name, ok := p.name()
		if ok && p.accept("(") {
			if name == "has" {
				x, ok := p.whole()
				return operand{}, ok && x.field && p.accept(")")
			}
			return operand{}, p.call(calls[name], name == "matches")
		}
		return operand{}, ok
	}
	return operand{}, false
}

// call reads arguments. The last of a regular expression's must be one that is written out.
func (p *expressionReader) call(counts []int, regex bool) bool {
	n, last := 0, operand{}
	ok := p.list(")", func() (ok bool) {
		n++
		last, ok = p.whole()
		return ok
	})
	if regex && ok {
		text, err := strconv.Unquote(`"` + strings.ReplaceAll(strings.Trim(last.literal, `"'`), `"`, `\"`) + `"`)
		if err != nil || last.literal == "" {
			return false
		}
		if _, err := regexp.Compile(text); err != nil {
			return false
		}
	}
	return ok && slices.Contains(counts, n)
}

// list reads items up to the mark that ends them.
func (p *expressionReader) list(end string, item func() bool) bool {
	if p.accept(end) {
		return true
	}
	for item() {
		if p.accept(end) {
			return true
		}
		if !p.accept(",") {
			return false
		}
	}
	return false
}

func validNumber(s string) bool {
	if strings.ContainsAny(s, ".") || !strings.HasPrefix(s, "0x") && strings.ContainsAny(s, "eE") {
		_, err := strconv.ParseFloat(s, 64)
		return err == nil
	}
	var err error
	if digits, unsigned := strings.CutSuffix(s, "u"); unsigned {
		_, err = strconv.ParseUint(digits, 0, 64)
	} else {
		_, err = strconv.ParseInt(s, 0, 64)
	}
	return err == nil || strings.HasPrefix(s, "0") && !strings.HasPrefix(s, "0x") && strings.Trim(s, "0u") == ""
}
