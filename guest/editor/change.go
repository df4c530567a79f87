package editor

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxMatches bounds the places that an ambiguous replacement names.
const maxMatches = 20

func (c *command) replace(out io.Writer) error {
	if c.OldStr == nil || *c.OldStr == "" {
		return errors.New(`str_replace needs "old_str"`)
	}
	text, err := c.read()
	if err != nil {
		return err
	}
	old, replacement := *c.OldStr, ""
	if c.NewStr != nil {
		replacement = *c.NewStr
	}
	at := strings.Index(text, old)
	if at < 0 {
		hint := ""
		if strings.Contains(text, "\r\n") && strings.Contains(strings.ReplaceAll(text, "\r\n", "\n"), old) {
			hint = ` Its lines end with \r\n, which "old_str" must have too.`
		}
		return fmt.Errorf("old_str does not occur in %s. It must match exactly, white space included.%s", c.Path, hint)
	}
	if more := places(text, old, at); len(more) > 1 {
		return fmt.Errorf(
			"old_str occurs more than once in %s, in lines %s. Add lines around it, so that it occurs once", c.Path,
			strings.Join(more, ", "))
	}
	after := text[:at] + replacement + text[at+len(old):]
	return c.change(out, text, after, lineAt(text, at), len(splitLines(replacement)))
}

// places returns the lines in which old occurs, the first at an offset. Occurrences may overlap.
func places(text, old string, at int) (lines []string) {
	line, from := 1, 0
	for len(lines) < maxMatches {
		line += strings.Count(text[from:at], "\n")
		lines = append(lines, fmt.Sprint(line))
		from = at
		next := strings.Index(text[at+1:], old)
		if next < 0 {
			return lines
		}
		at += 1 + next
	}
	return append(lines, "…")
}

// lineAt returns the line of an offset, counted from 1.
func lineAt(text string, at int) int { return 1 + strings.Count(text[:at], "\n") }

func (c *command) insert(out io.Writer) error {
	added := c.InsertText
	if added == nil {
		added = c.NewStr // its name in earlier versions of the tool
	}
	if c.InsertLine == nil || added == nil {
		return errors.New(`insert needs "insert_line" and "insert_text"`)
	}
	text, err := c.read()
	if err != nil {
		return err
	}
	at, lines := *c.InsertLine, strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	if at < 0 || at > len(lines) {
		return fmt.Errorf("insert_line is %d; the file has %d lines, and 0 is its start", at, len(lines))
	}
	head, tail := strings.Join(lines[:at], ""), strings.Join(lines[at:], "")
	if head != "" && !strings.HasSuffix(head, "\n") {
		head += "\n"
	}
	piece := *added
	if piece != "" && !strings.HasSuffix(piece, "\n") && (tail != "" || strings.HasSuffix(text, "\n")) {
		piece += "\n"
	}
	return c.change(out, text, head+piece+tail, at+1, len(splitLines(piece)))
}

// change writes the new text and shows it around the n changed lines from first on.
func (c *command) change(out io.Writer, before, after string, first, n int) error {
	if len(after) > maxFile {
		return fmt.Errorf("%s would have %d bytes; the editor takes files of up to %d bytes", c.Path, len(after),
			maxFile)
	}
	if err := overwrite(c.Path, []byte(before), []byte(after)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "Changed %s. It now reads:\n", c.Path); err != nil {
		return err
	}
	return show(out, splitLines(after), first-context, first+max(n, 1)-1+context)
}
