package grammar

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestLark compares with texts that Lark 1.3.1 accepts or refuses, by its Earley parser
// with the lexer dynamic_complete.
func TestLark(t *testing.T) {
	raw, err := os.ReadFile("testdata/lark.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name, Grammar     string
		Accepted, Refused []string
	}
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			g, err := Lark(c.Grammar)
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range c.Accepted {
				if err := g.Match(text); err != nil {
					t.Errorf("%q is refused: %v", text, err)
				}
			}
			for _, text := range c.Refused {
				if err := g.Match(text); !errors.As(err, new(*Mismatch)) {
					t.Errorf("%q: %v", text, err)
				}
			}
		})
	}
}

func TestMismatch(t *testing.T) {
	sql := `
		%import common.CNAME
		%import common.INT
		%import common.WS
		%ignore WS
		start: "SELECT" CNAME ("," CNAME)* "FROM" CNAME ["LIMIT" INT] ";"`
	pattern := `\d{3}-[a-z]+`
	for _, c := range []struct {
		name, lark, regex, text, want string
	}{
		{"a keyword is missing", sql, "", "SELECT a\n  b", `line 2, column 3: found "b", expected "," or "FROM"`},
		{"within a keyword", sql, "", "SELECT a FRON", `line 1, column 13: found "N", expected the rest of "FROM"`},
		{"at the end", sql, "", "SELECT a FROM ", `line 1, column 15: the input ends, expected CNAME`},
		{"after the end", sql, "", "SELECT a FROM b; x", `line 1, column 18: found "x", expected the end of the input`},
		{"columns are characters", `start: "é→" "b"`, "", "é→c", `line 1, column 3: found "c", expected "b"`},
		{"regex", "", pattern, "12-a", `line 1, column 3: found "-", expected the rest of a match of the pattern`},
		{"regex at the end", "", pattern, "", `line 1, column 1: the input ends, expected a match of the pattern`},
		{"regex is anchored", "", pattern, "x123-a", `line 1, column 1: found "x", expected a match of the pattern`},
		{"many alternatives", `start: "a"|"b"|"c"|"d"|"e"|"f"|"g"|"h"|"i"|"j"|"k"|"l"|"m"|"n"`, "", "x",
			`line 1, column 1: found "x", expected "a" or "b" or "c" or "d" or "e" or "f" or "g" or "h" or "i" or "j" or "k" or "l" or one of 2 others`},
	} {
		t.Run(c.name, func(t *testing.T) {
			compile, text := Lark, c.lark
			if c.regex != "" {
				compile, text = Regex, c.regex
			}
			g, err := compile(text)
			if err != nil {
				t.Fatal(err)
			}
			if err := g.Match(c.text); err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestSyntaxError(t *testing.T) {
	for _, c := range []struct{ name, grammar, want string }{
		{"no start", `a: "b"`, `the grammar needs a rule named "start"`},
		{"undefined", "start: a\n  | B", `line 1, column 8: "a" is not defined`},
		{"twice", "start: \"a\"\nstart: \"b\"", `line 2, column 1: "start" is defined twice`},
		{"string without end", `start: "a`, `line 1, column 8: a string does not end`},
		{"string over lines", "start: \"a\n\"", `line 1, column 8: this string does not end on its line`},
		{"regex without end", `start: /a`, `line 1, column 8: a regular expression does not end`},
		{"not a token", `start: ;`, `line 1, column 8: unexpected ";"`},
		{"two on a line", `start: "a" b: "c"`, `line 1, column 13: found ":", expected the end of the line`},
		{"lookahead", `start: /(?=a)b/`,
			`line 1, column 8: invalid regular expression /(?=a)b/: invalid or unsupported Perl syntax: ` + "`(?=`" +
				`. RE2 syntax is supported; it has no lookaround and no atomic groups`},
		{"flags", `start: /a/x`, `line 1, column 8: the flags x and l of a regular expression are not supported`},
		{"recursive terminal", "start: A\nA: \"a\" B\nB: A?",
			`line 2, column 1: the terminal "A" refers to itself; only rules, in lower case, can do that`},
		{"a rule in a terminal", "start: A\nA: start",
			`line 2, column 4: the terminal refers to the rule "start"; terminals consist of terminals, strings and regular expressions`},
		{"template", "start: list{a}\nlist{x}: x",
			`line 1, column 8: templates are not supported; write the rule out for each use`},
		{"declare", `%declare A`, `line 1, column 1: "%declare" is not supported; %import common and %ignore are`},
		{"import", `%import python.NAME`, `line 1, column 9: only "%import common" is supported`},
		{"unknown import", "start: X\n%import common.X", `line 2, column 16: common has no terminal "X"`},
		{"range", `start: "b".."a"`, `line 1, column 8: a range goes from one character to a later one`},
		{"repetitions", `start: "a"~3..2`, `line 1, column 12: the range 3..2 is empty`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := Lark(c.grammar); err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
	if _, err := Regex(`a(`); err == nil || !strings.Contains(err.Error(), "missing closing )") {
		t.Errorf("got %v", err)
	}
}

// TestHostile checks that grammars and texts of unbounded cost are refused within the
// limits.
func TestHostile(t *testing.T) {
	nested := "start: T0\n"
	for i := range 40 {
		nested += strings.ReplaceAll("T#: T@ T@\n", "#", letters(i))
		nested = strings.ReplaceAll(nested, "@", letters(i+1))
	}
	nested = strings.Replace(nested, "T0", "T"+letters(0), 1) + "T" + letters(40) + `: "a"`
	classes := "start: "
	for i := range 300 {
		classes += fmt.Sprintf(`/\pL%d/ `, i)
	}
	for _, c := range []struct{ name, grammar, want string }{
		{"terminals that double", nested, "too large"},
		{"nested repetitions", `start: ((("a"~1000)~1000)~1000)~1000`, "too large"},
		{"nested ranges", `start: ((("a"~0..1000)~0..1000)~0..1000)~0..1000`, "too large"},
		{"empty repetitions", `start: ((("")~99999)~99999)~99999`, "too large"},
		{"a large regex", `start: /(((a{100}){100}){100}){100}/`, "repeat"},
		{"large classes", classes, "Unicode classes"},
		{"brackets", `start: ` + strings.Repeat("(", 5000), "brackets are open"},
		{"regex brackets", `start: /` + strings.Repeat("(", 5000) + strings.Repeat(")", 5000) + `/`, "nest"},
		{"a large number", `start: "a"~99999999999999999999`, "not a number of repetitions"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := Lark(c.grammar); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	for _, c := range []struct{ name, grammar, text string }{
		{"ambiguous", "start: s\ns: s s s | s s | \"a\" | ", strings.Repeat("a", 20_000)},
		{"ambiguous terminals", `start: (/a+/ /a*/ /a+/)+`, strings.Repeat("a", 50_000)},
		{"right recursion", "start: \"a\" start | \"a\"", strings.Repeat("a", 50_000)},
		{"cycles", "start: a\na: b c | \nb: c a | \nc: a b | \"x\"", strings.Repeat("x", 20_000)},
		{"many states", `start: /(a|aa|aaa){300}/+`, strings.Repeat("a", 50_000)},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := Lark(c.grammar)
			if err != nil {
				t.Fatal(err)
			}
			if err := g.Match(c.text); err != nil && !errors.Is(err, ErrLimit) {
				t.Error(err)
			}
		})
	}
}

// letters returns a number in the letters A to J.
func letters(n int) string {
	return string(rune('A'+n/10)) + string(rune('A'+n%10))
}

// TestLong checks that an ordinary grammar matches a long text within the limits.
func TestLong(t *testing.T) {
	g, err := Lark(jsonGrammar)
	if err != nil {
		t.Fatal(err)
	}
	text := "[" + strings.Repeat(`{"name": "Ada \"L.\"", "tags": [1, -2.5e3, true, null]}, `, 2000) + "0]"
	if err := g.Match(text); err != nil {
		t.Error(err)
	}
}

const jsonGrammar = `
%import common (SIGNED_NUMBER, ESCAPED_STRING, WS)
%ignore WS
start: value
?value: object | array | ESCAPED_STRING | SIGNED_NUMBER | "true" | "false" | "null"
array: "[" [value ("," value)*] "]"
object: "{" [pair ("," pair)*] "}"
pair: ESCAPED_STRING ":" value
`

func BenchmarkMatch(b *testing.B) {
	g, err := Lark(jsonGrammar)
	if err != nil {
		b.Fatal(err)
	}
	text := "[" + strings.Repeat(`{"name": "Ada \"L.\"", "tags": [1, -2.5e3, true, null]}, `, 20) + "0]"
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if err := g.Match(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		if _, err := Lark(jsonGrammar); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzLark compiles any grammar and matches any text: neither may panic or exceed the
// limits.
func FuzzLark(f *testing.F) {
	f.Add(jsonGrammar, `{"a": [1]}`)
	f.Add("start: s\ns: s s | \"a\" | ", "aaaa")
	f.Add("start: /a+?b$/i \"x\"..\"z\"~2..3 [A]\nA.2: (B|C)+ -> x\nB: \"\\u00e9\"\nC: /./s", "AbXyé")
	f.Fuzz(func(t *testing.T, definition, text string) {
		g, err := Lark(definition)
		if err != nil {
			if !errors.As(err, new(*SyntaxError)) || err.Error() == "" {
				t.Fatalf("error of type %T: %v", err, err)
			}
			return
		}
		if err := g.Match(text); err != nil && err.Error() == "" {
			t.Fatal("an error without a text")
		}
	})
}
