package container

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
)

// Walk yields the regular files in a container at and below a path, as they are now. The path
// and those of the files are relative to berth.WorkDir; "" means all. An error is the last
// element. The container does not expire until the sequence ends.
func (fl *Files) Walk(ctx context.Context, p berth.ProjectID, id berth.ContainerID, path string) iter.Seq2[*guest.File, error] {
	return func(yield func(*guest.File, error) bool) {
		if path != "" {
			if err := checkName(path); err != nil {
				yield(nil, berth.Invalid("path", "Invalid path %.200q: it must be below %s.", path, berth.WorkDir))
				return
			}
		}
		s, ctx, release, err := fl.leases.use(ctx, p, id)
		if err != nil {
			yield(nil, err)
			return
		}
		defer release()
		dir, err := s.workingDir(ctx)
		if err != nil {
			yield(nil, fl.leases.explain(ctx, s, err))
			return
		}
		for f, err := range s.client.Folder(ctx, dir, path) {
			switch {
			case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrInvalid):
				err = berth.Errorf(berth.CodeNotFound, "No readable file or directory '%s' found in %s of container %s.", path, berth.WorkDir, id)
			case err != nil:
				err = fl.leases.explain(ctx, s, err)
			default:
				f.Path = strings.TrimPrefix(f.Path, dir+"/")
			}
			if !yield(f, err) || err != nil {
				return
			}
		}
	}
}
