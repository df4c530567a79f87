// Package editor is a text editor for models: it reads one command as JSON, in the form of Anthropic's
// text editor tool, and views or changes a file of the container. It runs as the user whose files it
// edits and grants no rights of its own.
package editor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/guest/plainfile"
)

// Name is the name under which commands of a shell call the editor.
const Name = "str_replace_based_edit_tool"

// Limits, in bytes unless stated.
const (
	maxInput   = 4 << 20
	maxFile    = 16 << 20
	maxEntries = 1000 // of a directory's view
)

// A command is what the model writes. Fields that a command does not have are ignored.
type command struct {
	Command    string  `json:"command"`
	Path       string  `json:"path"`
	ViewRange  []int   `json:"view_range"` // first and last line, counted from 1; -1 is the end
	FileText   *string `json:"file_text"`
	OldStr     *string `json:"old_str"`
	NewStr     *string `json:"new_str"`
	InsertLine *int    `json:"insert_line"` // the line after which text is inserted; 0 is the start
	InsertText *string `json:"insert_text"`
}

// Run reads a command from in, carries it out and writes its result for the model to out. Paths may be
// relative to the working directory. An error is a message for the model; then nothing was changed.
func Run(in io.Reader, out io.Writer) error {
	raw, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	if err != nil {
		return fmt.Errorf("read the command: %w", err)
	}
	if len(raw) > maxInput {
		return fmt.Errorf("the command has more than %d bytes", maxInput)
	}
	var c command
	if err := json.Unmarshal(raw, &c); err != nil {
		return fmt.Errorf("the command is not valid: %w", err)
	}
	if c.Path == "" {
		return errors.New(`the command needs a "path"`)
	}
	if strings.ContainsRune(c.Path, 0) {
		return errors.New("a path cannot contain a NUL character")
	}
	switch c.Command {
	case "view":
		return c.view(out)
	case "create":
		return c.create(out)
	case "str_replace":
		return c.replace(out)
	case "insert":
		return c.insert(out)
	}
	return fmt.Errorf("there is no command %q; use view, create, str_replace or insert", c.Command)
}

// read returns the text of the command's file.
func (c *command) read() (string, error) {
	info, err := os.Stat(c.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("there is no file %s", c.Path)
	case err != nil:
		return "", fmt.Errorf("cannot read %s: %w", c.Path, cause(err))
	case info.IsDir():
		return "", fmt.Errorf("%s is a directory", c.Path)
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s is not a regular file", c.Path)
	case info.Size() > maxFile:
		return "", fmt.Errorf("%s has %d bytes; the editor takes files of up to %d bytes. Use the shell", c.Path,
			info.Size(), maxFile)
	}
	text, err := plainfile.Read(c.Path, unix.O_NONBLOCK, maxFile+1)
	switch {
	case err != nil:
		return "", fmt.Errorf("cannot read %s: %w", c.Path, cause(err))
	case len(text) > maxFile:
		return "", fmt.Errorf("%s has more than %d bytes. Use the shell", c.Path, maxFile)
	case bytes.IndexByte(text, 0) >= 0:
		return "", fmt.Errorf("%s is a binary file, which the editor cannot show or change. Use the shell", c.Path)
	}
	return string(text), nil
}

// cause returns an error without the path and the system call.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

func (c *command) create(out io.Writer) error {
	if c.FileText == nil {
		return errors.New(`create needs "file_text"`)
	}
	text := *c.FileText
	if len(text) > maxFile {
		return fmt.Errorf("the text has %d bytes; the editor takes %d", len(text), maxFile)
	}
	info, err := os.Stat(c.Path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return fmt.Errorf("%s exists and is not a regular file", c.Path)
	case err == nil:
		before, err := plainfile.Read(c.Path, unix.O_NONBLOCK, maxFile+1)
		if err != nil || len(before) > maxFile {
			return fmt.Errorf("%s exists and is not a file that the editor can replace. Use the shell", c.Path)
		}
		if err := overwrite(c.Path, before, []byte(text)); err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "Replaced the whole file %s, which existed: it now has %s.\n", c.Path,
			countLines(text))
		return err
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("cannot create %s: %w", c.Path, cause(err))
	}
	if err := os.MkdirAll(filepath.Dir(c.Path), 0o777); err != nil {
		return fmt.Errorf("cannot create the directory of %s: %w", c.Path, cause(err))
	}
	f, err := os.OpenFile(c.Path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return fmt.Errorf("cannot create %s: %w", c.Path, cause(err))
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(c.Path) // it holds a part only
		return fmt.Errorf("cannot write %s: %w", c.Path, cause(err))
	}
	_, err = fmt.Fprintf(out, "Created %s with %s.\n", c.Path, countLines(text))
	return err
}

// overwrite replaces the content of a file, which keeps its owner, mode and links. If the new content
// cannot be written, the file has its former content again.
func overwrite(path string, before, after []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, cause(err))
	}
	defer f.Close()
	write := func(text []byte) error {
		if _, err := f.WriteAt(text, 0); err != nil {
			return err
		}
		return f.Truncate(int64(len(text)))
	}
	if err := write(after); err != nil {
		if undone := write(before); undone != nil {
			return fmt.Errorf("cannot write %s: %w; its content may be incomplete", path, cause(err))
		}
		return fmt.Errorf("cannot write %s: %w; it is unchanged", path, cause(err))
	}
	return nil
}
