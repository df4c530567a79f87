package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/berth-run/berth"
)

// An outDir is the directory in which berth run saves the files of a task. Their names and
// contents come from a sandbox and are not trusted.
type outDir struct {
	dir    string // "" saves no files
	force  bool   // replace existing files
	hidden bool   // also save hidden files

	saved map[string]bool // names of the files that fetch has saved
}

// check returns an error if the directory cannot take new files. It is called before the task
// starts.
func (o *outDir) check() error {
	if o.dir == "" {
		if o.force || o.hidden {
			return badUsage("--force and --hidden require --out")
		}
		return nil
	}
	dir, err := os.Open(o.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	switch _, err := dir.ReadDir(1); {
	case errors.Is(err, io.EOF) || err == nil && o.force:
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("--out %s: the directory is not empty; name a new one, or use --force to replace files in it",
		o.dir)
}

// save saves the files that a response has created in a container, which may be "", and the images in its items.
func (o *outDir) save(ctx context.Context, c *client, container berth.ContainerID, r *berth.Response) error {
	if err := os.MkdirAll(o.dir, 0o777); err != nil {
		return err
	}
	root, err := os.OpenRoot(o.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if container != "" {
		err = o.fetch(ctx, c, container, root, r.CreatedAt)
	}
	if ctx.Err() != nil {
		return err
	}
	return errors.Join(err, o.images(root, r))
}

// fetch saves the files that commands have created since a time. A file that cannot be saved
// does not stop the others; fetch then returns an error.
func (o *outDir) fetch(ctx context.Context, c *client, container berth.ContainerID, root *os.Root,
	since int64) error {
	files := "/v1/containers/" + url.PathEscape(string(container)) + "/files"
	o.saved = map[string]bool{}
	failed, hidden := 0, 0
	for after := ""; ; {
		var page struct {
			Data    []berth.ContainerFile `json:"data"`
			LastID  string                `json:"last_id"`
			HasMore bool                  `json:"has_more"`
		}
		query := files + "?limit=100&order=asc"
		if after != "" {
			query += "&after=" + url.QueryEscape(after)
		}
		if err := c.call(ctx, "GET", query, nil, &page); err != nil {
			return err
		}
		for _, f := range page.Data {
			if f.Source != "assistant" || f.CreatedAt < since {
				continue
			}
			name := strings.TrimPrefix(f.Path, berth.WorkDir+"/")
			if fs.ValidPath(name) && !o.hidden && isHidden(name) {
				hidden++
				fmt.Fprintf(os.Stderr, "  %s  hidden, not saved\n", inLine(name))
				continue
			}
			n, err := o.saveFile(ctx, c, files+"/"+url.PathEscape(string(f.ID))+"/content", root, name)
			if ctx.Err() != nil {
				return err
			}
			if err != nil {
				failed++
				fmt.Fprintf(os.Stderr, "  %s  not saved: %s\n", inLine(f.Path), inLine(err.Error()))
				continue
			}
			o.saved[name] = true
			fmt.Fprintf(os.Stderr, "  %s  %d bytes\n", inLine(filepath.Join(o.dir, name)), n)
		}
		if after = page.LastID; !page.HasMore || after == "" {
			break
		}
	}
	if hidden > 0 {
		fmt.Fprintf(os.Stderr,
			"%d hidden files stay in the container; use --hidden to save them all, or berth cp to copy one\n", hidden)
	}
	if failed > 0 {
		return fmt.Errorf("%d files were not saved", failed)
	}
	return nil
}

// saveFile saves one file.
func (o *outDir) saveFile(ctx context.Context, c *client, content string, root *os.Root, name string) (int64, error) {
	if !fs.ValidPath(name) || name == "." {
		return 0, errors.New("invalid file name")
	}
	resp, err := c.do(ctx, http.MethodGet, content, "", nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if err := root.MkdirAll(path.Dir(name), 0o777); err != nil {
		return 0, err
	}
	return saveIn(root, name, resp.Body, 0o666, o.force)
}
