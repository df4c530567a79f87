package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/guest"
)

func newCp() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cp SOURCE DESTINATION",
		Short: "Copy files into or out of a container",
		Long: `Copy a file, or with -r a directory, into or out of a container. One of the two arguments
is CONTAINER:PATH; "-" is standard input or output. A relative PATH is below /mnt/data,
where commands start. An existing local file is replaced only with --force. A local copy
has the file's mode in the container, reduced by the umask and without execute permission.
Missing directories of DESTINATION are created in the container.

A directory is copied into DESTINATION if that exists, and as DESTINATION otherwise. Links
and special files are skipped. Copies out of a container also skip hidden files, because
local programs would execute what a sandbox writes to .git or .envrc; --hidden includes them.

  berth cp sales.csv box:
  berth cp box:chart.png .
  berth cp -r src box:`,
		Args: cobra.ExactArgs(2),
	}
	connect := clientFlags(cmd)
	user := cmd.Flags().StringP("user", "u", "", "user in the container")
	force := cmd.Flags().BoolP("force", "f", false, "replace existing local files")
	tree := cmd.Flags().BoolP("recursive", "r", false, "copy a directory")
	hidden := cmd.Flags().Bool("hidden", false, "with -r, also copy hidden files out of the container")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, c := cmd.Context(), connect()
		from, to := location(args[0]), location(args[1])
		at := &from
		if from.container == "" {
			at = &to
		}
		if (from.container == "") == (to.container == "") {
			return usageError{errors.New("one argument must be CONTAINER:PATH, the other a local file")}
		}
		id, err := containers.resolve(ctx, c, at.container)
		if err != nil {
			return err
		}
		at.container = id
		copied := &treeCopy{guest: c.guest(id, *user), user: *user, force: *force, hidden: *hidden}
		switch {
		case *tree && at == &to:
			return copied.in(ctx, from.path, to.path)
		case *tree:
			return copied.out(ctx, from.path, to.path)
		case at == &to:
			return copyIn(ctx, c, from.path, to, *user)
		}
		return copyOut(ctx, c, from, to.path, *user, *force)
	}
	return cmd
}

// A place is a local path, or a path in a container.
type place struct{ container, path string }

// location parses CONTAINER:PATH or a local path. A local path with a colon needs a slash before it.
func location(s string) place {
	container, p, ok := strings.Cut(s, ":")
	if !ok || container == "" || strings.Contains(container, "/") {
		return place{path: s}
	}
	return place{container, p}
}

func copyIn(ctx context.Context, c *client, from string, to place, user string) error {
	in := os.Stdin
	if from != "-" {
		f, err := os.Open(from)
		if err != nil {
			return err
		}
		defer f.Close()
		if st, err := f.Stat(); err == nil && st.IsDir() {
			return fmt.Errorf("%s is a directory; use -r", from)
		}
		in = f
	}
	if to.path == "" || strings.HasSuffix(to.path, "/") {
		if from == "-" {
			return errors.New("copying standard input needs a file name in the container")
		}
		to.path = path.Join(to.path, filepath.Base(from))
	}
	g := c.guest(to.container, user)
	at, err := inContainer(ctx, g, to.path)
	if err != nil {
		return refusal(err)
	}
	return fileError(at, g.WriteFile(ctx, "", at, user, in))
}

// inContainer returns an absolute path in a container. A relative path is below the directory in
// which commands start; the guest would resolve it below the user's home.
func inContainer(ctx context.Context, g *guest.Client, p string) (string, error) {
	if path.IsAbs(p) || p == "~" || strings.HasPrefix(p, "~/") {
		return p, nil
	}
	dir, err := g.WorkDir(ctx)
	if err != nil {
		return "", err
	}
	return path.Join(dir, p), nil
}

func copyOut(ctx context.Context, c *client, from place, to, user string, force bool) error {
	g := c.guest(from.container, user)
	at, err := inContainer(ctx, g, from.path)
	if err != nil {
		return refusal(err)
	}
	from.path = at
	mode, err := g.Mode(ctx, from.path)
	if err != nil {
		return fileError(from.path, err)
	}
	if mode.IsDir() {
		return fmt.Errorf("%s is a directory; use -r", inLine(from.path))
	}
	body, _, err := g.ReadFile(ctx, "", from.path, user)
	if err != nil {
		return fileError(from.path, err)
	}
	defer body.Close()
	if to == "-" {
		_, err := io.Copy(onTerminal(os.Stdout), body)
		return err
	}
	if st, err := os.Stat(to); err == nil && st.IsDir() {
		to = filepath.Join(to, path.Base(from.path))
	}
	_, err = saveAt(to, body, mode.Perm()&0o666, force)
	return err
}
