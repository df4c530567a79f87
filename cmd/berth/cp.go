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
)

func newCp() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cp SOURCE DESTINATION",
		Short: "Copy a file into or out of a container",
		Long: `Copy a file into or out of a container. One of the two is CONTAINER:PATH; "-" is
this command's input or output.

  berth cp sales.csv cntr_…:/mnt/data/
  berth cp cntr_…:/mnt/data/chart.png .`,
		Args: cobra.ExactArgs(2),
	}
	connect := clientFlags(cmd)
	user := cmd.Flags().StringP("user", "u", "", "user in the container")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		from, to := location(args[0]), location(args[1])
		switch {
		case from.container == "" && to.container != "":
			return copyIn(cmd.Context(), connect(), from.path, to, *user)
		case from.container != "" && to.container == "":
			return copyOut(cmd.Context(), connect(), from, to.path, *user)
		}
		return errors.New("one of the two must be CONTAINER:PATH, and the other a file here")
	}
	return cmd
}

// A place is a path here or in a container.
type place struct{ container, path string }

func location(s string) place {
	container, p, ok := strings.Cut(s, ":")
	if !ok || !strings.HasPrefix(container, "cntr_") {
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
		in = f
	}
	if to.path == "" || strings.HasSuffix(to.path, "/") {
		if from == "-" {
			return errors.New("input needs a file name in the container")
		}
		to.path = path.Join("/", envPath(to.path), filepath.Base(from))
	}
	return refusal(c.guest(to.container, user).WriteFile(ctx, "", to.path, user, in))
}

// envPath is where files go when a container is named without a path.
func envPath(p string) string {
	if p == "" {
		return "/mnt/data"
	}
	return p
}

func copyOut(ctx context.Context, c *client, from place, to, user string) error {
	body, _, err := c.guest(from.container, user).ReadFile(ctx, "", from.path, user)
	if err != nil {
		return refusal(err)
	}
	defer body.Close()
	if to == "-" {
		_, err := io.Copy(os.Stdout, body)
		return err
	}
	if st, err := os.Stat(to); err == nil && st.IsDir() {
		to = filepath.Join(to, path.Base(from.path))
	}
	return saveAs(to, body)
}

// saveAs writes a file that appears whole or not at all.
func saveAs(to string, body io.Reader) error {
	f, err := os.CreateTemp(filepath.Dir(to), ".berth-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err = io.Copy(f, body); err == nil {
		err = f.Chmod(0o644)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("%s: %w", to, err)
	}
	return os.Rename(f.Name(), to)
}
