package config

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

var (
	yamlLine     = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)
	tabIndent    = regexp.MustCompile(`^ *\t`)
	reservedChar = regexp.MustCompile("(?:^|[\\s:\\[{,-])([@`%])")
)

// maxSearchedLines bounds the lines of a file in which the line of a syntax error is searched.
const maxSearchedLines = 5000

// invalidYAML returns the error of the parser for a file, in plain words and with its line.
func invalidYAML(err error, text []byte) error {
	problem := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if m := yamlLine.FindStringSubmatch(problem); m != nil {
		line, _ = strconv.Atoi(m[1])
		problem = problem[len(m[0]):]
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	if len(lines) <= maxSearchedLines {
		line = firstBroken(text, lines)
	}
	at := ""
	if line <= len(lines) {
		at = string(lines[line-1])
	}
	return &keyError{line, "invalid YAML: " + plainSyntax(problem, at)}
}

// firstBroken returns the line after the longest part of the text, in whole lines, that is valid.
// The parser's own line is often that of the block in which the error is.
func firstBroken(text []byte, lines [][]byte) int {
	end := len(text)
	for i := len(lines) - 1; i > 0; i-- {
		end -= len(lines[i])
		if readsAsYAML(text[:end]) {
			return i + 1
		}
	}
	return 1
}

func readsAsYAML(text []byte) bool {
	d := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var n yaml.Node
		if err := d.Decode(&n); errors.Is(err, io.EOF) {
			return true
		} else if err != nil {
			return false
		}
	}
}

// syntaxWords are plain words for the parser's problems.
var syntaxWords = []struct{ problem, words string }{
	{"a tab character", "indent with spaces, not with tabs"},
	{"mapping values are not allowed",
		`the value contains ": " or the line is indented too far; quote the value, or indent the key like those beside it`},
	{"expected ',' or", "a [ or { is not closed, or a comma is missing between elements"},
	{"expected node content", "a value is missing, or a bracket is not opened or not closed"},
	{"unexpected end of stream", "a quote is opened but not closed"},
	{"could not find expected ':'", "expected KEY: VALUE"},
	{"did not find expected key", "the line does not continue the keys above it; check its indentation and its quotes"},
	{"expected '-' indicator",
		"the line does not continue the list above it; indent it like the other elements, or begin it with -"},
	{"unknown anchor", `a value that begins with * must be quoted, such as "*"`},
	{"expected alphabetic or numeric character", `a value that begins with * or & must be quoted, such as "*"`},
	{"block sequence entries", "a list begins on a line of its own below its key"},
	{"unknown escape character", `a backslash between double quotes begins an escape; write \\, or use single quotes`},
	{"comment or line break", "after | or > the text begins on the next line"},
	{"control characters", "the file contains control characters; it must be text in UTF-8"},
	{"UTF-8", "the file must be text in UTF-8"},
}

// plainSyntax describes a problem of the parser on a line.
func plainSyntax(problem, line string) string {
	if strings.Contains(problem, "cannot start any token") {
		if tabIndent.MatchString(line) {
			return syntaxWords[0].words
		}
		if m := reservedChar.FindStringSubmatch(line); m != nil {
			return "a value that begins with " + m[1] + " must be quoted"
		}
	}
	for _, w := range syntaxWords {
		if strings.Contains(problem, w.problem) {
			return w.words
		}
	}
	return problem
}
