package site

import (
	"html"
	"regexp"
	"strings"
	"sync"
)

// A grammar is the coloured parts of a language: comments, strings and words.
type grammar struct{ comment, text, words string }

const (
	hashComment  = `(?:^|\s)#[^\n]*`
	slashComment = `//[^\n]*|/\*(?s:.*?)\*/`
	lineStrings  = `"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'`
)

var grammars = map[string]grammar{
	"sh": {hashComment, `"(?:\\.|[^"\\])*"|\B'[^']*'`, ""},
	"python": {hashComment, `"""(?s:.*?)"""|` + lineStrings,
		"and as async await class def else except for from if import in is lambda None not or print raise return True False try while with yield"},
	"js": {slashComment, "`[^`]*`|" + lineStrings,
		"async await break case catch class const else export for from function if import in let new null of return throw true false try typeof while"},
	"go": {slashComment, "`[^`]*`|" + lineStrings,
		"break case const defer else for func go if import interface map nil package range return struct switch type var"},
	"yaml": {hashComment, `\B"(?:\\.|[^"\\\n])*"|\B'[^'\n]*'`, "true false null"},
	"json": {`$^`, `"(?:\\.|[^"\\\n])*"`, "true false null"},
}

// same are languages that look alike.
var same = map[string]string{"bash": "sh", "dockerfile": "sh", "ini": "yaml", "toml": "yaml", "py": "python",
	"javascript": "js", "ts": "js", "typescript": "js"}

// patterns are the compiled grammars, with a group for comments, one for strings and one for words.
var patterns = sync.OnceValue(func() map[string]*regexp.Regexp {
	all := map[string]*regexp.Regexp{}
	for language, g := range grammars {
		words := `$^`
		if g.words != "" {
			words = `\b(?:` + strings.ReplaceAll(g.words, " ", "|") + `)\b`
		}
		all[language] = regexp.MustCompile(`(?m)(` + g.comment + `)|(` + g.text + `)|(` + words + `)`)
	}
	return all
})

// highlight returns code as HTML, in which comments, strings and words have a class. Its text stays as it is.
func highlight(language, code string) string {
	if other := same[language]; other != "" {
		language = other
	}
	pattern := patterns()[language]
	if pattern == nil {
		return html.EscapeString(code)
	}
	var b strings.Builder
	end := 0
	for _, m := range pattern.FindAllStringSubmatchIndex(code, -1) {
		b.WriteString(html.EscapeString(code[end:m[0]]))
		end = m[1]
		for i, class := range []string{"com", "str", "key"} {
			if m[2*i+2] >= 0 && m[0] < m[1] {
				b.WriteString(`<span class="` + class + `">` + html.EscapeString(code[m[0]:m[1]]) + `</span>`)
			}
		}
	}
	b.WriteString(html.EscapeString(code[end:]))
	return b.String()
}
