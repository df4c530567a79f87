package texteditor

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
)

// Limits of files.
const (
	maxView    = 256 << 10 // bytes of text that view shows
	maxPicture = 2 << 20   // bytes of an image that view shows
	maxFile    = 8 << 20   // bytes of a file that the commands read
	maxEntries = 1000      // of a directory that view shows
	maxDiff    = 64 << 10  // bytes of a change that the result shows
)

// modeTimeout bounds the time to give a file its permissions.
const modeTimeout = 10 * time.Second

// The codes of failed calls.
const (
	codeInvalid     = "invalid_tool_input"
	codeNotFound    = "file_not_found"
	codeUnavailable = "unavailable"
)

func invalid(format string, args ...any) *berth.TextEditorResult {
	return &berth.TextEditorResult{Error: codeInvalid, Message: fmt.Sprintf(format, args...)}
}

// A place is a file of a container.
type place struct {
	client *guest.Client
	exec   guest.Execer
	path   string // of the guest: without isolation, WorkDir is a directory of the machine
}

// exec carries out the command.
func (c *call) exec(ctx context.Context) *berth.TextEditorResult {
	if c.invalid != "" {
		return invalid("%s", c.invalid)
	}
	client, release, err := c.tool.containers.Connect(ctx, c.tool.project, c.tool.container)
	if err != nil {
		return failure(err)
	}
	defer release()
	dir, err := client.WorkDir(ctx)
	if err != nil {
		return failure(err)
	}
	at := place{client, c.tool.exec, c.in.Path}
	if rest, below := strings.CutPrefix(at.path, berth.WorkDir); below && (rest == "" || rest[0] == '/') {
		at.path = dir + rest
	}
	switch c.in.Command {
	case commandView:
		return at.view(ctx, c.in.ViewRange)
	case commandCreate:
		return at.create(ctx, *c.in.FileText)
	}
	return at.replace(ctx, *c.in.OldStr, c.in.NewStr)
}

// failure returns the result of a command that failed.
func failure(err error) *berth.TextEditorResult {
	switch e, ok := errors.AsType[*berth.Error](err); {
	case errors.Is(err, fs.ErrNotExist):
		return &berth.TextEditorResult{Error: codeNotFound, Message: "There is no such file."}
	case errors.Is(err, guest.ErrNoSpace):
		return &berth.TextEditorResult{Error: codeUnavailable, Message: "The disk of the container is full."}
	case ok:
		return &berth.TextEditorResult{Error: codeUnavailable, Message: e.Message}
	}
	return &berth.TextEditorResult{Error: codeUnavailable,
		Message: "The file could not be used: it is no regular file, or the container does not answer."}
}

// view shows lines of a file, an image, or a directory.
func (p place) view(ctx context.Context, lines []int) *berth.TextEditorResult {
	about, err := p.client.Stat(ctx, p.path)
	if err != nil {
		return failure(err)
	}
	if about.Dir {
		return p.list(ctx)
	}
	data, problem := p.read(ctx)
	if problem != nil {
		return problem
	}
	media := http.DetectContentType(data)
	if slices.Contains([]string{"image/png", "image/jpeg", "image/gif", "image/webp"}, media) {
		if len(data) > maxPicture {
			return invalid("The image is larger than %d bytes. Make it smaller first.", maxPicture)
		}
		return &berth.TextEditorResult{FileType: "image", MediaType: media,
			Content: base64.StdEncoding.EncodeToString(data)}
	}
	if bytes.IndexByte(data, 0) >= 0 || !utf8.Valid(data) {
		return invalid("The file is not text (%s). Use the shell to look into it.", media)
	}
	all := split(string(data))
	first, last := 1, len(all)
	if len(lines) == 2 {
		first = lines[0]
		if lines[1] != -1 {
			last = min(lines[1], last)
		}
	}
	if first > max(1, len(all)) {
		return invalid("The file has %d lines only.", len(all))
	}
	shown := all[min(first-1, len(all)):last]
	text := strings.Join(shown, "")
	if len(text) > maxView {
		return invalid("These lines have %d bytes; %d are shown. Give a smaller view_range.", len(text), maxView)
	}
	return &berth.TextEditorResult{FileType: "text", Content: text, StartLine: first, NumLines: len(shown),
		TotalLines: len(all)}
}

// split returns the lines of a text with their ends.
func split(text string) []string {
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// list shows the entries of a directory, two levels deep.
func (p place) list(ctx context.Context) *berth.TextEditorResult {
	entries, err := p.client.List(ctx, p.path, 2)
	if err != nil {
		return failure(err)
	}
	slices.SortFunc(entries, func(a, b guest.Entry) int { return strings.Compare(a.Path, b.Path) })
	var text strings.Builder
	for _, e := range entries[:min(len(entries), maxEntries)] {
		text.WriteString(strings.TrimPrefix(e.Path, strings.TrimSuffix(p.path, "/")+"/"))
		if e.Dir {
			text.WriteByte('/')
		}
		text.WriteByte('\n')
	}
	if n := len(entries) - maxEntries; n > 0 {
		fmt.Fprintf(&text, "[%d more]\n", n)
	}
	return &berth.TextEditorResult{FileType: "text", Content: text.String()}
}

// read returns the content of a file, or the result of a failed read.
func (p place) read(ctx context.Context) ([]byte, *berth.TextEditorResult) {
	body, _, err := p.client.ReadFile(ctx, "", p.path, "")
	if err != nil {
		return nil, failure(err)
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, maxFile+1))
	switch {
	case err != nil:
		return nil, failure(err)
	case len(data) > maxFile:
		return nil, invalid("The file is larger than %d bytes. Use the shell.", maxFile)
	}
	return data, nil
}

// create writes a file.
func (p place) create(ctx context.Context, text string) *berth.TextEditorResult {
	_, err := p.client.Stat(ctx, p.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return failure(err)
	}
	exists, write := err == nil, p.overwrite
	if !exists {
		write = func(ctx context.Context, text string) error {
			return p.client.WriteFile(ctx, "", p.path, "", strings.NewReader(text))
		}
	}
	if err := write(ctx, text); err != nil {
		return failure(err)
	}
	return &berth.TextEditorResult{Updated: exists}
}

// replace replaces the one occurrence of a text in a file.
func (p place) replace(ctx context.Context, before, after string) *berth.TextEditorResult {
	data, problem := p.read(ctx)
	if problem != nil {
		return problem
	}
	text := string(data)
	at := strings.Index(text, before)
	switch n := strings.Count(text, before); {
	case n == 0:
		return invalid("The old_str does not occur in the file.")
	case n > 1:
		return invalid("The old_str occurs %d times. Give more of the text around it.", n)
	}
	if err := p.overwrite(ctx, text[:at]+after+text[at+len(before):]); err != nil {
		return failure(err)
	}
	return newChange(text, at, before, after)
}

// overwrite replaces the content of a file, which keeps its permissions.
func (p place) overwrite(ctx context.Context, text string) error {
	before, err := p.client.Mode(ctx, p.path)
	if err != nil {
		return err
	}
	if err := p.client.WriteFile(ctx, "", p.path, "", strings.NewReader(text)); err != nil {
		return err
	}
	after, err := p.client.Mode(ctx, p.path)
	if err != nil || after == before {
		return err
	}
	quoted := "'" + strings.ReplaceAll(p.path, "'", `'\''`) + "'"
	restore := guest.ShellCall{CallID: berth.NewID("mode_"), Timeout: modeTimeout,
		Commands: []string{fmt.Sprintf("chmod %o -- %s", before.Perm(), quoted)}}
	for _, err := range p.exec.Shell(ctx, restore) {
		if err != nil {
			return err
		}
	}
	return nil
}

// newChange returns the changed lines of a text in which before, at an offset, became after.
func newChange(text string, at int, before, after string) *berth.TextEditorResult {
	start := strings.LastIndexByte(text[:at], '\n') + 1
	end := len(text)
	if i := strings.IndexByte(text[at+len(before):], '\n'); i >= 0 {
		end = at + len(before) + i + 1
	}
	old, now := split(text[start:end]), split(text[start:at]+after+text[at+len(before):end])
	line := strings.Count(text[:start], "\n") + 1
	r := &berth.TextEditorResult{OldStart: line, OldLines: len(old), NewStart: line, NewLines: len(now)}
	for _, side := range []struct {
		mark  string
		lines []string
	}{{"-", old}, {"+", now}} {
		for _, l := range side.lines {
			r.Lines = append(r.Lines, side.mark+strings.TrimSuffix(l, "\n"))
		}
	}
	if size := len(strings.Join(r.Lines, "")); size > maxDiff {
		r.Lines = nil
	}
	return r
}
