package guest

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// A File is a regular file in a folder. Content is valid until the iteration continues.
type File struct {
	Path       string // absolute, clean and below the folder
	Size       int64
	Modified   time.Time
	Executable bool
	Content    io.Reader
}

// Folder yields the regular files at and below path, which is relative to root; no link
// leads out of root. It ends after the first error; without one it has yielded all files.
// It yields fs.ErrNotExist if the path does not exist.
func (c *Client) Folder(ctx context.Context, root, path string) iter.Seq2[*File, error] {
	return func(yield func(*File, error) bool) {
		body, err := c.openFolder(ctx, root, path)
		if err != nil {
			yield(nil, err)
			return
		}
		defer body.Close()
		for in := tar.NewReader(body); ; {
			h, err := in.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			// the guest is not trusted
			if err == nil && (h.Typeflag != tar.TypeReg || !Below(root, strings.TrimSuffix(root, "/")+"/"+h.Name)) {
				err = fmt.Errorf("the guest's folder has an entry %.200q of type %q", h.Name, h.Typeflag)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			f := &File{Path: strings.TrimSuffix(root, "/") + "/" + h.Name, Size: h.Size, Modified: h.ModTime,
				Executable: h.Mode&0o111 != 0, Content: in}
			if !yield(f, nil) {
				return
			}
		}
	}
}

func (c *Client) openFolder(ctx context.Context, root, path string) (io.ReadCloser, error) {
	if path == "" {
		path = "."
	} else if !fs.ValidPath(path) {
		return nil, fs.ErrInvalid
	}
	target := c.base + "/folder?" + url.Values{"root": {root}, "path": {path}}.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, answerError(resp)
	}
	return resp.Body, nil
}
