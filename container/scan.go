package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
)

// Bounds of a scan.
const (
	maxDepth = 32
	maxDirs  = 2_000 // listed one by one, if one answer of the guest cannot hold all
)

// saveWidth is how many rows are written at a time; the store commits them together.
const saveWidth = 32

// tempPrefix starts the names of files that are being uploaded.
const tempPrefix = ".berth-"

// scan makes the rows of a container's files match the files that exist, and returns these with
// their sizes, oldest first. The caller has acquired s.files.lock.
func (fl *Files) scan(ctx context.Context, s *instance) ([]*berth.ContainerFile, error) {
	files, _, err := fl.scanTimes(ctx, s)
	return files, err
}

// scanTimes is scan that also returns the modification times by path.
func (fl *Files) scanTimes(ctx context.Context, s *instance) ([]*berth.ContainerFile, map[string]time.Time, error) {
	known, err := fl.opts.Store.ContainerFiles(ctx, s.project, s.id)
	if err != nil {
		return nil, nil, fmt.Errorf("list file rows: %w", err)
	}
	w, err := s.walk(ctx, fl.opts.Bounds.Files)
	if err != nil {
		return nil, nil, fl.leases.explain(ctx, s, err)
	}
	s.files.crowded.Store(w.large || w.seen > fl.opts.Bounds.Scan)
	found, whole := w.found, w.whole
	times := make(map[string]time.Time, len(found))
	for path, e := range found {
		times[path] = e.Modified
	}
	var files, gone []*berth.ContainerFile
	for _, f := range known {
		e, ok := found[f.Path]
		delete(found, f.Path)
		switch {
		case ok:
			f.Bytes = e.Size
		case !whole && f.Source == "user":
			if err := s.stat(ctx, f); err != nil && !isAnswer(err) {
				return nil, nil, fl.leases.explain(ctx, s, err)
			} else if err != nil {
				gone = append(gone, f)
				continue
			}
		default:
			gone = append(gone, f)
			continue
		}
		files = append(files, f)
	}
	made := fl.newFiles(s, found)
	if err := fl.save(ctx, s, made, gone); err != nil {
		return nil, nil, err
	}
	files = append(files, made...)
	s.files.rows.Store(int64(len(files) + 1))
	slices.SortFunc(files, func(a, b *berth.ContainerFile) int {
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return files, times, nil
}

// newFiles returns rows for files that commands created. It limits the guest's times to the
// container's lifetime.
func (fl *Files) newFiles(s *instance, found map[string]guest.Entry) []*berth.ContainerFile {
	now := fl.opts.clock.Now().Unix()
	var made []*berth.ContainerFile
	for _, p := range slices.Sorted(maps.Keys(found)) {
		e := found[p]
		made = append(made, s.newFile(p, max(s.body.CreatedAt, min(e.Modified.Unix(), now)), e.Size, "assistant"))
	}
	return made
}

func (fl *Files) save(ctx context.Context, s *instance, made, gone []*berth.ContainerFile) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(saveWidth)
	for _, f := range gone {
		g.Go(func() error { return ignoreNotFound(fl.opts.Store.DeleteContainerFile(ctx, s.project, s.id, f.ID)) })
	}
	for _, f := range made {
		g.Go(func() error { return fl.opts.Store.PutContainerFile(ctx, s.project, f) })
	}
	return g.Wait()
}

// walk gathers up to limit regular files below the working directory.
func (s *instance) walk(ctx context.Context, limit int) (*walker, error) {
	ctx, cancel := s.clock.WithTimeout(ctx, answerTimeout)
	defer cancel()
	dir, err := s.workingDir(ctx)
	if err != nil {
		return nil, err
	}
	w := &walker{root: dir, limit: limit, found: map[string]guest.Entry{}, whole: true}
	entries, err := s.client.List(ctx, dir, maxDepth)
	switch {
	case errors.Is(err, guest.ErrNoSpace): // one answer cannot hold all
		w.large = true
		err = w.each(ctx, s.client)
	case errors.Is(err, fs.ErrNotExist):
		err = nil // commands removed the working directory
	case err == nil:
		w.add(entries)
	}
	return w, err
}

// A walker gathers files below root.
type walker struct {
	root  string
	limit int
	found map[string]guest.Entry // by the path on the wire
	dirs  []string               // directories to list, when they are listed one by one
	whole bool                   // no file was omitted
	large bool                   // one answer of the guest could not hold all entries
	seen  int                    // entries that the guest has listed
}

// add adds files to found and directories to dirs. The client has checked that their
// paths are clean and below the requested directory.
func (w *walker) add(entries []guest.Entry) {
	w.seen += len(entries)
	for _, e := range entries {
		name := strings.TrimPrefix(e.Path, w.root+"/")
		if strings.Count(name, "/") >= maxDepth {
			w.whole = false
			continue
		}
		if e.Dir && len(w.dirs) <= maxDirs { // one more than maxDirs, so that each notices the excess
			w.dirs = append(w.dirs, e.Path)
		}
		if !e.Regular || strings.HasPrefix(path.Base(name), tempPrefix) {
			continue
		}
		if len(w.found) >= w.limit {
			w.whole = false
			return
		}
		w.found[path.Join(berth.WorkDir, name)] = e
	}
}

// each lists one directory at a time, those nearest to the root first. It omits directories
// that cannot be listed.
func (w *walker) each(ctx context.Context, c *guest.Client) error {
	w.dirs = []string{w.root}
	for n := 0; n < len(w.dirs); n++ {
		if n == maxDirs || len(w.found) >= w.limit {
			w.whole = false
			return nil
		}
		entries, err := c.List(ctx, w.dirs[n], 1)
		switch {
		case err == nil:
			w.add(entries)
		case errors.Is(err, guest.ErrNoSpace), errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission),
			errors.Is(err, fs.ErrInvalid):
			w.whole = false
		default:
			return err
		}
	}
	return nil
}
