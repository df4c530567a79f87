package container

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	pathpkg "path"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
)

// Walk yields the regular files in a container at and below a path, as they are now. The path
// and those of the files are relative to berth.WorkDir; "" means all of it. Of an absolute path,
// those of the files are relative to its parent. Links are not followed. An error is the last
// element. The container does not expire until the sequence ends.
func (fl *Files) Walk(ctx context.Context, p berth.ProjectID, id berth.ContainerID, path string) iter.Seq2[*guest.File,
	error] {
	return func(yield func(*guest.File, error) bool) {
		asked, below := path, berth.WorkDir
		root := ""
		if strings.HasPrefix(path, "/") {
			root, path = pathpkg.Dir(path), pathpkg.Base(path)
			below = root
			if asked != pathpkg.Clean(asked) || path == "/" || checkName(strings.TrimPrefix(asked, "/")) != nil {
				yield(nil, berth.Invalid("path", "Invalid path %.200q: an absolute one must be below / and clean.",
					asked))
				return
			}
		} else if path != "" && checkName(path) != nil {
			yield(nil, berth.Invalid("path", "Invalid path %.200q: it must be below %s, or absolute.", path,
				berth.WorkDir))
			return
		}
		s, ctx, release, err := fl.leases.use(ctx, p, id)
		if err != nil {
			yield(nil, err)
			return
		}
		defer release()
		dir := root
		if dir == "" {
			if dir, err = s.workingDir(ctx); err != nil {
				yield(nil, fl.leases.explain(ctx, s, err))
				return
			}
		}
		for f, err := range s.client.Folder(ctx, dir, path) {
			switch {
			case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrInvalid):
				err = berth.Errorf(berth.CodeNotFound,
					"No readable file or directory '%s' found in %s of container %s.", path, below, id)
			case err != nil:
				err = fl.leases.explain(ctx, s, err)
			default:
				f.Path = strings.TrimPrefix(f.Path, strings.TrimSuffix(dir, "/")+"/")
			}
			if !yield(f, err) || err != nil {
				return
			}
		}
	}
}
