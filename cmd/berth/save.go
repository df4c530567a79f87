package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

// errExists is the error for a file that would be replaced without --force.
var errExists = errors.New("the file already exists; use --force to replace it")

// saveAt saves a file at a local path; see saveIn.
func saveAt(to string, body io.Reader, mode fs.FileMode, force bool) (int64, error) {
	root, err := os.OpenRoot(filepath.Dir(to))
	if err != nil {
		return 0, err
	}
	defer root.Close()
	n, err := saveIn(root, filepath.Base(to), body, mode, force)
	if err != nil {
		err = fmt.Errorf("%s: %w", to, err)
	}
	return n, err
}

// saveIn atomically saves a file below root under a name, with a mode reduced by the umask. It
// follows no link out of root. It replaces an existing file only with force, and only a
// regular file: never a link, a device or a pipe.
func saveIn(root *os.Root, name string, body io.Reader, mode fs.FileMode, force bool) (int64, error) {
	if err := replaceable(root, name, force); err != nil {
		return 0, err
	}
	next := path.Join(path.Dir(name), ".berth-"+rand.Text())
	f, err := root.OpenFile(next, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return 0, err
	}
	defer root.Remove(next)
	n, err := io.Copy(f, body)
	if err = errors.Join(err, f.Close()); err != nil {
		return n, err
	}
	if !force {
		// A link, unlike a rename, does not replace a file that was created since it looked.
		err := root.Link(next, name)
		if err == nil || errors.Is(err, fs.ErrExist) {
			return n, asExists(err)
		}
	}
	// With force, or on a file system without links.
	if err := replaceable(root, name, force); err != nil {
		return n, err
	}
	return n, root.Rename(next, name)
}

// replaceable returns an error if a file must not be saved under a name.
func replaceable(root *os.Root, name string, force bool) error {
	st, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !st.Mode().IsRegular():
		return fmt.Errorf("a %s of this name already exists", kindOf(st.Mode()))
	case !force:
		return errExists
	}
	return nil
}

func asExists(err error) error {
	if err != nil {
		return errExists
	}
	return nil
}

// kindOf names a file that is not a regular one.
func kindOf(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "directory"
	case mode&fs.ModeSymlink != 0:
		return "symbolic link"
	case mode&fs.ModeNamedPipe != 0:
		return "pipe"
	case mode&fs.ModeDevice != 0:
		return "device"
	}
	return "special file"
}

// isHidden reports whether local programs may read or execute a file just because of its name,
// which comes from a sandbox: a name that starts with a dot (.git/config, .envrc,
// .vscode/tasks.json), HEAD, which turns any directory into a git repository with its own
// configuration, and names that look like others or that some file systems treat alike.
func isHidden(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(part, ".") || strings.EqualFold(part, "HEAD") || strings.HasPrefix(strings.ToLower(part),
			"git~") {
			return true
		}
		if !utf8.ValidString(part) || strings.ContainsFunc(part, invisible) {
			return true
		}
	}
	return false
}

// invisible reports whether a character is invisible or changes how others are shown.
func invisible(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
}
