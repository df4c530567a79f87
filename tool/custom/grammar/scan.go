package grammar

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// A tokenKind is a kind of token of Lark's grammar language.
type tokenKind string

const (
	tokRule     tokenKind = "the name of a rule"
	tokTerminal tokenKind = "the name of a terminal"
	tokString   tokenKind = "a string"
	tokRegexp   tokenKind = "a regular expression"
	tokNumber   tokenKind = "a number"
	tokKeyword  tokenKind = "a directive" // %import
	tokNewline  tokenKind = "the end of the line"
	tokEnd      tokenKind = "the end of the grammar"
	tokSymbol   tokenKind = "a symbol" // : | ( ) [ ] { } ? * + ~ .. -> . ,
)

// A token is a piece of a grammar.
type token struct {
	kind  tokenKind
	text  string // of a string or a regular expression: its content, decoded
	flags string // of a string or a regular expression
	line  int
	col   int
}

// String returns the token as errors show it.
func (t token) String() string {
	switch t.kind {
	case tokNewline, tokEnd:
		return string(t.kind)
	}
	return fmt.Sprintf("%q", clip(t.text))
}

func (t token) fail(format string, args ...any) *SyntaxError {
	return &SyntaxError{Line: t.line, Column: t.col, Reason: fmt.Sprintf(format, args...)}
}

// A scanner splits a grammar into tokens.
type scanner struct {
	rest  string
	line  int
	col   int
	depth int // of open brackets, in which the end of a line means nothing
	out   []token
}

// scan returns the tokens of a grammar. The last one is tokEnd.
func scan(definition string) ([]token, error) {
	s := &scanner{rest: definition, line: 1, col: 1}
	for s.rest != "" {
		if err := s.next(); err != nil {
			return nil, err
		}
	}
	s.newline()
	return append(s.out, token{kind: tokEnd, line: s.line, col: s.col}), nil
}

// skip removes n bytes of the rest.
func (s *scanner) skip(n int) {
	for _, r := range s.rest[:n] {
		if s.col++; r == '\n' {
			s.line, s.col = s.line+1, 1
		}
	}
	s.rest = s.rest[n:]
}

// emit adds a token of n bytes.
func (s *scanner) emit(kind tokenKind, n int) {
	s.out = append(s.out, token{kind: kind, text: s.rest[:n], line: s.line, col: s.col})
	s.skip(n)
}

// newline ends a definition, unless the next line continues it with an alternative.
func (s *scanner) newline() {
	if len(s.out) > 0 && s.out[len(s.out)-1].kind != tokNewline && s.depth == 0 {
		s.out = append(s.out, token{kind: tokNewline, line: s.line, col: s.col})
	}
}

// next adds the next token, or skips what has no meaning.
func (s *scanner) next() error {
	r := s.rest
	switch c := r[0]; {
	case c == '\n':
		s.newline()
		s.skip(1)
	case c == ' ' || c == '\t' || c == '\r' || c == '\f':
		s.skip(1)
	case c == '\\' && strings.HasPrefix(strings.TrimLeft(r[1:], " \r"), "\n"):
		s.skip(strings.IndexByte(r, '\n') + 1)
	case c == '#' || strings.HasPrefix(r, "//"):
		s.skip(until(r, "\n"))
	case c == '"':
		return s.quoted(tokString, '"', "i")
	case c == '/':
		return s.quoted(tokRegexp, '/', "imslux")
	case c == '%':
		s.emit(tokKeyword, 1+span(r[1:], isLower))
	case c == '_' || isLower(c) || isUpper(c):
		s.name()
	case isDigit(c) || c == '-' && len(r) > 1 && isDigit(r[1]):
		s.emit(tokNumber, 1+span(r[1:], isDigit))
	case strings.HasPrefix(r, "->") || strings.HasPrefix(r, ".."):
		s.emit(tokSymbol, 2)
	case strings.IndexByte(":|()[]{}?*+~.,!", c) >= 0:
		s.bracket(c)
		s.emit(tokSymbol, 1)
	default:
		_, n := utf8.DecodeRuneInString(r)
		return token{line: s.line, col: s.col}.fail("unexpected %q", r[:n])
	}
	return nil
}

// bracket counts open brackets, and joins a line that starts with an alternative to the
// line before.
func (s *scanner) bracket(c byte) {
	switch c {
	case '(', '[', '{':
		s.depth++
	case ')', ']', '}':
		s.depth = max(0, s.depth-1)
	case '|':
		if n := len(s.out); n > 0 && s.out[n-1].kind == tokNewline {
			s.out = s.out[:n-1]
		}
	}
}

// name adds a name. Rules are in lower case, terminals in upper case; both may start with
// an underscore.
func (s *scanner) name() {
	lead := span(s.rest, func(c byte) bool { return c == '_' })
	upper := lead < len(s.rest) && isUpper(s.rest[lead])
	n := span(s.rest, func(c byte) bool {
		return c == '_' || isDigit(c) || upper && isUpper(c) || !upper && isLower(c)
	})
	kind := tokRule
	if upper {
		kind = tokTerminal
	}
	s.emit(kind, n)
}

// quoted adds a string or a regular expression with the flags after it.
func (s *scanner) quoted(kind tokenKind, quote byte, flags string) error {
	at := token{line: s.line, col: s.col, kind: kind}
	for i := 1; i < len(s.rest); i++ {
		switch c := s.rest[i]; {
		case c == '\\':
			i++
		case c == '\n' && kind == tokString:
			return at.fail("this string does not end on its line")
		case c == quote:
			inside := s.rest[1:i]
			n := span(s.rest[i+1:], func(c byte) bool { return strings.IndexByte(flags, c) >= 0 })
			at.flags = s.rest[i+1 : i+1+n]
			if kind == tokString {
				at.text = unescape(inside)
			} else {
				at.text = toRE2(inside)
			}
			if strings.ContainsAny(at.flags, "xl") {
				return at.fail("the flags x and l of a regular expression are not supported")
			}
			s.skip(i + 1 + n)
			s.out = append(s.out, at)
			return nil
		}
	}
	return at.fail("%s does not end", kind)
}

// unescape decodes the escapes of a string. An unknown one stays as it is.
func unescape(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			out.WriteByte(s[i])
			continue
		}
		i++
		switch c := s[i]; c {
		case 'n':
			out.WriteByte('\n')
		case 't':
			out.WriteByte('\t')
		case 'r':
			out.WriteByte('\r')
		case 'f':
			out.WriteByte('\f')
		case '"', '\\':
			out.WriteByte(c)
		case 'x', 'u', 'U':
			if r, n := escapedRune(s[i:]); n > 0 {
				out.WriteRune(r)
				i += n - 1
				continue
			}
			out.WriteString(s[i-1 : i+1])
		default:
			out.WriteString(s[i-1 : i+1])
		}
	}
	return out.String()
}

// escapedRune decodes xHH, uHHHH or UHHHHHHHH at the start of s. n is its length, or 0.
func escapedRune(s string) (r rune, n int) {
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[s[0]]
	if len(s) <= digits {
		return 0, 0
	}
	for _, c := range []byte(s[1 : 1+digits]) {
		v := strings.IndexByte("0123456789abcdef", c|0x20)
		if isDigit(c) {
			v = int(c - '0')
		}
		if v < 0 || r > utf8.MaxRune {
			return 0, 0
		}
		r = r<<4 | rune(v)
	}
	if !utf8.ValidRune(r) {
		return 0, 0
	}
	return r, 1 + digits
}

// toRE2 rewrites the escapes of Python's regular expressions that RE2 does not have.
func toRE2(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			out.WriteByte(s[i])
			continue
		}
		i++
		switch c := s[i]; c {
		case 'Z':
			out.WriteString(`\z`)
		case 'u', 'U':
			if r, n := escapedRune(s[i:]); n > 0 {
				fmt.Fprintf(&out, `\x{%x}`, r)
				i += n - 1
				continue
			}
			out.WriteString(s[i-1 : i+1])
		default:
			out.WriteByte('\\')
			out.WriteByte(c)
		}
	}
	return out.String()
}

func until(s, end string) int {
	if n := strings.Index(s, end); n >= 0 {
		return n
	}
	return len(s)
}

// span returns the length of the start of s whose bytes are ok.
func span(s string, ok func(byte) bool) int {
	n := 0
	for n < len(s) && ok(s[n]) {
		n++
	}
	return n
}

func isLower(c byte) bool { return 'a' <= c && c <= 'z' }
func isUpper(c byte) bool { return 'A' <= c && c <= 'Z' }
func isDigit(c byte) bool { return '0' <= c && c <= '9' }
