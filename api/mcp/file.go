package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/internal/rule"
)

// Limits of files.
const (
	maxText    = 256 << 10 // bytes that read returns
	maxPicture = 4 << 20   // bytes of an image that read returns
	maxSkipped = 256 << 20 // bytes that read passes over
	maxEdited  = 8 << 20   // bytes of a file that edit changes
	maxEntries = 1000      // that list returns
)

const readText = `Reads a file of the container. Text is returned with its lines; long files in parts, by offset and limit. PNG, JPEG, GIF and WebP files are returned as images.`

const writeText = `Writes a file in the container, and creates the directories above it. An existing file is replaced.`

const editText = `Replaces a text in a file of the container. The old text must occur exactly once, unless all is true.`

const listText = `Lists the files and directories in a directory of the container.`

// addFileTools adds the tools for files.
func (d *Door) addFileTools() {
	add(d, readOnly("read", "Read a file", readText), read)
	write := changes("write", "Write a file", writeText, false)
	write.Annotations.IdempotentHint = true
	add(d, write, writeFile)
	add(d, changes("edit", "Edit a file", editText, false), edit)
	add(d, readOnly("list", "List files", listText), list)
}

// pathOf returns the absolute path of an argument. Paths are those of the container: no path leads out of it.
func pathOf(name string) (string, error) {
	if name == "" {
		return berth.WorkDir, nil
	}
	if len(name) > 4096 || !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }) {
		return "", berth.Invalid("path", "Invalid 'path': expected at most 4096 bytes of UTF-8 without control characters.")
	}
	if !path.IsAbs(name) {
		name = path.Join(berth.WorkDir, name)
	}
	return path.Clean(name), nil
}

// A place is a path in a container.
type place struct {
	path      string // as clients see it
	dir       string // the guest's path of berth.WorkDir: without isolation, a directory of the machine
	container berth.ContainerID
	client    *guest.Client
}

// at returns the place of a call. The caller calls release.
func (c *call) at(ctx context.Context, container, name string) (at place, release func(), err error) {
	if at.path, err = pathOf(name); err != nil {
		return at, nil, err
	}
	if at.container, err = c.container(ctx, container); err != nil {
		return at, nil, err
	}
	release, err = at.connect(ctx, c.visit)
	return at, release, err
}

// connect connects to the guest of the container. The caller calls release.
func (p *place) connect(ctx context.Context, v *visit) (release func(), err error) {
	p.client, release, err = v.door.Containers.Access().Guest(ctx, v.caller, p.container)
	if err != nil {
		return nil, err
	}
	if p.dir, err = p.client.WorkDir(ctx); err != nil {
		release()
		return nil, p.explain(err)
	}
	return release, nil
}

// real returns the guest's path of the place.
func (p place) real() string {
	if rest, below := strings.CutPrefix(p.path, berth.WorkDir); below && (rest == "" || rest[0] == '/') {
		return p.dir + rest
	}
	return p.path
}

// seen returns a path of the guest as clients see it.
func (p place) seen(real string) string {
	if rest, below := strings.CutPrefix(real, p.dir); below && (rest == "" || rest[0] == '/') {
		return berth.WorkDir + rest
	}
	return real
}

// explain returns the client's error for a failed use of a file.
func (p place) explain(err error) error {
	switch e, ok := errors.AsType[*berth.Error](err); {
	case err == nil:
		return nil
	case ok:
		return e
	case errors.Is(err, fs.ErrNotExist):
		return berth.Errorf(berth.CodeNotFound, "There is no file '%s'.", rule.Clip(p.path))
	case errors.Is(err, guest.ErrNoSpace):
		return berth.Errorf(berth.CodeInsufficientStorage, "The disk of the container is full.")
	}
	return &berth.Error{Code: berth.CodeUnavailable, Err: err,
		Message: fmt.Sprintf("'%s' could not be used: it is not a regular file, or the container does not answer.",
			rule.Clip(p.path))}
}

type readInput struct {
	Path   string `json:"path" jsonschema:"Absolute, or relative to /mnt/data."`
	Offset int    `json:"offset,omitempty" jsonschema:"Number of the first line, from 1."`
	Limit  int    `json:"limit,omitempty" jsonschema:"Number of lines. Default: as many as fit in 256 KiB."`
	inContainer
}

type readOutput struct {
	Path      string `json:"path"`
	Size      int64  `json:"size" jsonschema:"In bytes."`
	MediaType string `json:"media_type"`
	Text      string `json:"text,omitempty"`
	FirstLine int    `json:"first_line,omitempty"`
	NextLine  int    `json:"next_line,omitempty" jsonschema:"Offset of the rest; absent if the text ends with the file."`
}

func read(ctx context.Context, c *call, in readInput) ([]sdk.Content, readOutput, error) {
	at, release, err := c.at(ctx, in.Container, in.Path)
	if err != nil {
		return nil, readOutput{}, err
	}
	defer release()
	body, size, err := at.client.ReadFile(ctx, "", at.real(), "")
	if err != nil {
		return nil, readOutput{}, at.explain(err)
	}
	defer body.Close()
	buffered := bufio.NewReaderSize(body, 64<<10)
	start, _ := buffered.Peek(512)
	out := readOutput{Path: at.path, Size: size, MediaType: http.DetectContentType(start)}
	if slices.Contains([]string{"image/png", "image/jpeg", "image/gif", "image/webp"}, out.MediaType) {
		data, err := io.ReadAll(io.LimitReader(buffered, maxPicture+1))
		if err != nil {
			return nil, out, at.explain(err)
		}
		if len(data) > maxPicture {
			return nil, out, berth.Errorf(berth.CodeTooLarge, "The image is larger than %d bytes. Make it smaller first.",
				maxPicture)
		}
		return []sdk.Content{&sdk.ImageContent{MIMEType: out.MediaType, Data: data}}, out, nil
	}
	if bytes.IndexByte(start, 0) >= 0 {
		return nil, out, berth.Errorf(berth.CodeInvalid,
			"'%s' is a binary file of %d bytes (%s). Use run to look into it.", rule.Clip(at.path), size, out.MediaType)
	}
	out.FirstLine = max(in.Offset, 1)
	if out.Text, out.NextLine, err = lines(buffered, out.FirstLine, in.Limit); err != nil {
		return nil, out, at.explain(err)
	}
	shown := out.Text
	if out.NextLine > 0 {
		shown += fmt.Sprintf("\n[The file continues. Read it with offset %d.]", out.NextLine)
	}
	return text(shown), out, nil
}

// lines returns lines of a text from the first one on, and the number of the next line if there are more. Without a
// limit, it returns as many as fit.
func lines(in *bufio.Reader, first, limit int) (_ string, next int, err error) {
	var out strings.Builder
	passed := 0
	for n := 1; ; {
		piece, err := in.ReadSlice('\n')
		last := err == io.EOF
		if err != nil && !last && !errors.Is(err, bufio.ErrBufferFull) {
			return "", 0, fmt.Errorf("read file: %w", err)
		}
		if len(piece) > 0 && n >= first {
			if limit > 0 && n >= first+limit {
				return strings.ToValidUTF8(out.String(), "\ufffd"), n, nil
			}
			if out.Len()+len(piece) > maxText {
				if out.Len() == 0 || n == first { // a line that does not fit
					out.Write(piece[:min(len(piece), maxText-out.Len())])
					n++
				}
				return strings.ToValidUTF8(out.String(), "\ufffd"), n, nil
			}
			out.Write(piece)
		} else if passed += len(piece); passed > maxSkipped {
			return "", 0, berth.Errorf(berth.CodeTooLarge, "The line is too far in the file. Use run with sed or tail.")
		}
		if last {
			return strings.ToValidUTF8(out.String(), "\ufffd"), 0, nil
		}
		if len(piece) > 0 && piece[len(piece)-1] == '\n' {
			n++
		}
	}
}

type writeInput struct {
	Path     string `json:"path" jsonschema:"Absolute, or relative to /mnt/data."`
	Content  string `json:"content"`
	Encoding string `json:"encoding,omitempty" jsonschema:"text, or base64 for a binary file. Default text."`
	inContainer
}

type writeOutput struct {
	Path string `json:"path"`
	Size int64  `json:"size" jsonschema:"In bytes."`
}

func writeFile(ctx context.Context, c *call, in writeInput) ([]sdk.Content, writeOutput, error) {
	data := []byte(in.Content)
	switch in.Encoding {
	case "", "text":
	case "base64":
		var err error
		if data, err = base64.StdEncoding.DecodeString(in.Content); err != nil {
			return nil, writeOutput{}, berth.Invalid("content", "The content is not base64.")
		}
	default:
		return nil, writeOutput{}, berth.Invalid("encoding",
			"Invalid 'encoding'. Supported values are: 'text' and 'base64'.")
	}
	at, release, err := c.at(ctx, in.Container, in.Path)
	if err != nil {
		return nil, writeOutput{}, err
	}
	defer release()
	if err := at.client.WriteFile(ctx, "", at.real(), "", bytes.NewReader(data)); err != nil {
		return nil, writeOutput{}, at.explain(err)
	}
	out := writeOutput{at.path, int64(len(data))}
	return text(fmt.Sprintf("Wrote %d bytes to %s.", out.Size, out.Path)), out, nil
}

type editInput struct {
	Path string `json:"path" jsonschema:"Absolute, or relative to /mnt/data."`
	Old  string `json:"old_text" jsonschema:"Text to replace, exactly as it is in the file."`
	New  string `json:"new_text"`
	All  bool   `json:"all,omitempty" jsonschema:"Replace every occurrence."`
	inContainer
}

type editOutput struct {
	Path     string `json:"path"`
	Replaced int    `json:"replaced" jsonschema:"Number of occurrences."`
}

func edit(ctx context.Context, c *call, in editInput) ([]sdk.Content, editOutput, error) {
	if in.Old == "" {
		return nil, editOutput{}, berth.Invalid("old_text", "The old text is empty. Use write for a new file.")
	}
	at, release, err := c.at(ctx, in.Container, in.Path)
	if err != nil {
		return nil, editOutput{}, err
	}
	defer release()
	body, _, err := at.client.ReadFile(ctx, "", at.real(), "")
	if err != nil {
		return nil, editOutput{}, at.explain(err)
	}
	data, err := io.ReadAll(io.LimitReader(body, maxEdited+1))
	body.Close()
	if err != nil {
		return nil, editOutput{}, at.explain(err)
	}
	n := strings.Count(string(data), in.Old)
	switch {
	case len(data) > maxEdited:
		return nil, editOutput{}, berth.Errorf(berth.CodeTooLarge, "The file is larger than %d bytes. Use run with sed.",
			maxEdited)
	case n == 0:
		return nil, editOutput{}, berth.Errorf(berth.CodeConflict, "The old text does not occur in the file.")
	case n > 1 && !in.All:
		return nil, editOutput{}, berth.Errorf(berth.CodeConflict,
			"The old text occurs %d times. Give more of the text around it, or set all.", n)
	case n*(len(in.New)-len(in.Old)) > maxEdited:
		return nil, editOutput{}, berth.Errorf(berth.CodeTooLarge, "The file would be too large.")
	}
	mode, err := at.client.Mode(ctx, at.real())
	if err == nil {
		edited := strings.ReplaceAll(string(data), in.Old, in.New)
		err = at.client.WriteFile(ctx, "", at.real(), "", strings.NewReader(edited))
	}
	if err == nil {
		err = c.restoreMode(ctx, at, mode)
	}
	if err != nil {
		return nil, editOutput{}, at.explain(err)
	}
	return text(fmt.Sprintf("Replaced %d in %s.", n, at.path)), editOutput{at.path, n}, nil
}

// restoreMode gives a file that was replaced the permissions that it had.
func (c *call) restoreMode(ctx context.Context, at place, mode fs.FileMode) error {
	now, err := at.client.Mode(ctx, at.real())
	if err != nil || now.Perm() == mode.Perm() {
		return err
	}
	_, err = c.process(ctx, at.container, guest.ProcessRequest{Cmd: "chmod",
		Args: []string{fmt.Sprintf("%o", mode.Perm()), "--", at.real()}}, 0)
	return err
}

type listInput struct {
	Path  string `json:"path,omitempty" jsonschema:"Absolute, or relative to /mnt/data. Default /mnt/data."`
	Depth int    `json:"depth,omitempty" jsonschema:"How many levels, 1 to 10. Default 1."`
	inContainer
}

type listOutput struct {
	Path    string      `json:"path"`
	Entries []fileEntry `json:"entries"`
	More    bool        `json:"more,omitempty" jsonschema:"There are more entries."`
}

type fileEntry struct {
	Path     string `json:"path"`
	Type     string `json:"type" jsonschema:"file, directory, link or other."`
	Size     int64  `json:"size,omitempty"`
	Modified string `json:"modified,omitempty"`
}

func list(ctx context.Context, c *call, in listInput) ([]sdk.Content, listOutput, error) {
	at, release, err := c.at(ctx, in.Container, in.Path)
	if err != nil {
		return nil, listOutput{}, err
	}
	defer release()
	entries, err := at.client.List(ctx, at.real(), max(1, min(in.Depth, 10)))
	if err != nil {
		return nil, listOutput{}, at.explain(err)
	}
	slices.SortFunc(entries, func(a, b guest.Entry) int { return strings.Compare(a.Path, b.Path) })
	out := listOutput{Path: at.path, Entries: []fileEntry{}, More: len(entries) > maxEntries}
	var b strings.Builder
	for _, e := range entries[:min(len(entries), maxEntries)] {
		f := fileEntry{Path: at.seen(e.Path), Type: "other", Size: e.Size,
			Modified: e.Modified.UTC().Format(time.RFC3339)}
		mark := ""
		switch {
		case e.Link != "":
			f.Type, mark = "link", " -> "+e.Link
		case e.Dir:
			f.Type, mark, f.Size = "directory", "/", 0
		case e.Regular:
			f.Type = "file"
		}
		out.Entries = append(out.Entries, f)
		fmt.Fprintf(&b, "%s%s\n", f.Path, mark)
	}
	if len(entries) == 0 {
		b.WriteString("[empty]")
	}
	if out.More {
		fmt.Fprintf(&b, "[%d more]", len(entries)-maxEntries)
	}
	return text(b.String()), out, nil
}
