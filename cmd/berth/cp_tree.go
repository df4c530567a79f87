package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/berth-run/berth/guest"
)

// A treeCopy copies a directory into or out of a container. It copies regular files only, and
// reports others.
type treeCopy struct {
	guest         *guest.Client
	user          string
	force, hidden bool
	skipped       int
}

// in copies the local directory from into the directory to. As with cp -r, an existing directory to
// gets a directory named like from.
func (t *treeCopy) in(ctx context.Context, from, to string) error {
	to, err := inContainer(ctx, t.guest, to)
	if err != nil {
		return refusal(err)
	}
	if _, err := t.guest.Mode(ctx, to); err == nil {
		full, err := filepath.Abs(from)
		if err != nil {
			return err
		}
		to = path.Join(to, filepath.Base(full))
	}
	root, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	defer root.Close()
	var executable []string
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if !d.Type().IsRegular() {
			t.skip(name, "a "+kindOf(d.Type()))
			return nil
		}
		f, err := root.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		at := path.Join(to, name)
		if err := t.guest.WriteFile(ctx, "", at, t.user, f); err != nil {
			return fmt.Errorf("%s: %w", name, refusal(err))
		}
		if st, err := f.Stat(); err == nil && st.Mode()&0o100 != 0 {
			executable = append(executable, at)
		}
		return nil
	})
	if err == nil {
		err = t.makeExecutable(ctx, executable)
	}
	return t.end(err)
}

// makeExecutable gives files in the container execute permission.
func (t *treeCopy) makeExecutable(ctx context.Context, files []string) error {
	const most = 100 // files a command
	for len(files) > 0 {
		n := min(len(files), most)
		p, err := t.guest.Start(ctx, guest.ProcessRequest{Cmd: "chmod", Args: append([]string{"+x", "--"},
			files[:n]...)})
		if err != nil {
			return refusal(err)
		}
		if err := output(ctx, p, io.Discard, onTerminal(os.Stderr), true); err != nil {
			return err
		}
		files = files[n:]
	}
	return nil
}

// treeDepth is the depth to which out copies directories.
const treeDepth = 64

// out copies a directory of the container to the local directory to. The names come from a sandbox:
// none leads out of to, and hidden files are skipped unless hidden is set.
func (t *treeCopy) out(ctx context.Context, from, to string) error {
	given := from
	from, err := inContainer(ctx, t.guest, from)
	if err != nil {
		return refusal(err)
	}
	entries, err := t.guest.List(ctx, from, treeDepth)
	if err != nil {
		return fileError(from, err)
	}
	if st, err := os.Stat(to); err == nil && st.IsDir() {
		name, err := t.directoryName(given, from)
		if err != nil {
			return err
		}
		to = filepath.Join(to, name)
	}
	if err := os.MkdirAll(to, 0o777); err != nil {
		return err
	}
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, e := range entries {
		name, below := strings.CutPrefix(e.Path, strings.TrimSuffix(from, "/")+"/")
		switch {
		case !below || !fs.ValidPath(name):
			t.skip(e.Path, "an invalid name")
		case !t.hidden && isHidden(name):
			t.skip(name, "hidden; use --hidden")
		case e.Dir:
		case !e.Regular:
			t.skip(name, "a link or a special file")
		default:
			if err := t.save(ctx, root, name, e); err != nil {
				return t.end(fmt.Errorf("%s: %w", inLine(name), err))
			}
		}
	}
	return t.end(nil)
}

// directoryName returns the local name of a directory of the container: the last element of given, what the user
// wrote, or, where that has none, of from, which the container has chosen.
func (t *treeCopy) directoryName(given, from string) (string, error) {
	name := path.Base(from)
	switch {
	case name == "." || name == ".." || strings.ContainsAny(name, `\`):
		return "", fmt.Errorf("the container's directory %q has no name; name a local directory that does not exist",
			from)
	case name != path.Base(given) && !t.hidden && isHidden(name):
		return "", fmt.Errorf(
			"the container calls its directory %q; use --hidden, or name a local directory that does not exist", from)
	}
	return name, nil
}

// save saves one file.
func (t *treeCopy) save(ctx context.Context, root *os.Root, name string, e guest.Entry) error {
	body, _, err := t.guest.ReadFile(ctx, "", e.Path, t.user)
	if err != nil {
		return refusal(err)
	}
	defer body.Close()
	if err := root.MkdirAll(path.Dir(name), 0o777); err != nil {
		return err
	}
	_, err = saveIn(root, name, body, e.Perm&0o666, t.force)
	return err
}

// skip reports a file that is not copied.
func (t *treeCopy) skip(name, why string) {
	t.skipped++
	fmt.Fprintf(os.Stderr, "  %s  not copied: %s\n", inLine(name), why)
}

// end returns err, or an error if files were skipped.
func (t *treeCopy) end(err error) error {
	if err == nil && t.skipped > 0 {
		return errors.New("some files were not copied")
	}
	return err
}
