package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/store"
)

// Files are the files in containers' working directories.
type Files struct {
	opts   *Options
	work   *workers
	leases *leases
	meter  *meter
}

// List returns one page of the regular files in a container's working directory and below, as
// they are now, and whether there are more. It sees the first Bounds.Files files. For an
// unknown page.After it returns store.ErrNotFound.
func (fl *Files) List(ctx context.Context, p berth.ProjectID, id berth.ContainerID,
	page store.Page) ([]*berth.ContainerFile, bool, error) {
	s, ctx, release, err := fl.leases.use(ctx, p, id)
	if err != nil {
		return nil, false, err
	}
	defer release()
	if err := s.files.lock.acquire(ctx); err != nil {
		return nil, false, err
	}
	defer s.files.lock.release()
	files, err := fl.scan(ctx, s)
	if err != nil {
		return nil, false, err
	}
	return cut(files, page)
}

// cut returns one page of files, which are sorted oldest first.
func cut(files []*berth.ContainerFile, page store.Page) ([]*berth.ContainerFile, bool, error) {
	if !page.Ascending {
		slices.Reverse(files)
	}
	if page.After != "" {
		i := slices.IndexFunc(files, func(f *berth.ContainerFile) bool { return string(f.ID) == page.After })
		if i < 0 {
			return nil, false, store.ErrNotFound
		}
		files = files[i+1:]
	}
	return files[:min(len(files), page.Limit)], len(files) > page.Limit, nil
}

// Get returns a file in a container as it is now.
func (fl *Files) Get(ctx context.Context, p berth.ProjectID, id berth.ContainerID,
	cfile berth.CFileID) (*berth.ContainerFile, error) {
	body, f, err := fl.Open(ctx, p, id, cfile)
	if err != nil {
		return nil, err
	}
	return f, body.Close()
}

// Open opens a file in a container. The body has exactly f.Bytes bytes, or ends with an
// error. The caller closes it; until then the container does not expire.
func (fl *Files) Open(ctx context.Context, p berth.ProjectID, id berth.ContainerID,
	cfile berth.CFileID) (body io.ReadCloser, f *berth.ContainerFile, err error) {
	s, ctx, release, err := fl.leases.use(ctx, p, id)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			release()
		}
	}()
	f, err = fl.opts.Store.GetContainerFile(ctx, p, id, cfile)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil, fileNotFound(id, cfile)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read file row: %w", err)
	}
	content, err := s.open(ctx, f)
	if err != nil && isAnswer(err) { // it was removed or replaced
		return nil, nil, fileNotFound(id, cfile)
	}
	if err != nil {
		return nil, nil, fl.leases.explain(ctx, s, err)
	}
	return &openFile{content: content, left: f.Bytes, release: release}, f, nil
}

// An openFile is a file that is being read from a container.
type openFile struct {
	content io.ReadCloser
	left    int64
	release func()
}

func (o *openFile) Read(p []byte) (int, error) {
	if o.left == 0 {
		return 0, io.EOF
	}
	n, err := o.content.Read(p[:min(int64(len(p)), o.left)])
	o.left -= int64(n)
	if err == io.EOF && o.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (o *openFile) Close() error {
	defer o.release()
	return o.content.Close()
}

// Put writes a file below a container's working directory. It creates the directories in
// name, and replaces a file of that name atomically. The content is streamed.
func (fl *Files) Put(ctx context.Context, p berth.ProjectID, id berth.ContainerID, name string,
	r io.Reader) (*berth.ContainerFile, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	s, ctx, release, err := fl.leases.use(ctx, p, id)
	if err != nil {
		return nil, err
	}
	defer release()
	size, err := fl.write(ctx, s, name, r)
	if err != nil {
		return nil, err
	}
	if err := s.files.lock.acquire(ctx); err != nil {
		return nil, err
	}
	defer s.files.lock.release()
	f := s.newFile(path.Join(berth.WorkDir, name), fl.opts.clock.Now().Unix(), size, "user")
	if err := fl.opts.Store.PutContainerFile(ctx, p, f); err != nil {
		return nil, fmt.Errorf("save file row: %w", err)
	}
	return f, nil
}

// checkName returns an error unless name is a clean relative path that stays
// below the working directory and can be shown.
func checkName(name string) error {
	wrong := func(why string) error {
		return berth.Invalid("file", "Invalid file name %.200q: %s.", name, why)
	}
	switch {
	case !guest.Below(berth.WorkDir, berth.WorkDir+"/"+name):
		return wrong("it must be a path below " + berth.WorkDir + " without '.', '..' or control characters, in UTF-8")
	case strings.ContainsFunc(name, unicode.IsControl):
		return wrong("it contains control characters")
	case strings.Count(name, "/") >= maxDepth:
		return wrong(fmt.Sprintf("it is more than %d directories deep", maxDepth))
	case strings.HasPrefix(path.Base(name), tempPrefix):
		return wrong("names that start with " + tempPrefix + " are reserved")
	case slices.ContainsFunc(strings.Split(name, "/"), func(elem string) bool { return len(elem) > 255 }):
		return wrong("a part of it is longer than 255 bytes")
	}
	return nil
}

// write copies r into a file and returns its size.
func (fl *Files) write(ctx context.Context, s *instance, name string, r io.Reader) (int64, error) {
	dir, err := s.workingDir(ctx)
	if err != nil {
		return 0, fl.leases.explain(ctx, s, err)
	}
	src := &source{r: r}
	err = s.client.WriteFile(ctx, dir, name, "", src)
	size, readErr := src.finish()
	switch {
	case readErr != nil: // an error of the sender
		return 0, readErr
	case err == nil:
		return size, nil
	case errors.Is(err, guest.ErrNoSpace):
		if err := fl.hostFull(ctx, s); err != nil {
			return 0, err
		}
		return 0, &berth.Error{Code: berth.CodeTooLarge, Param: "file", Err: err,
			Message: fmt.Sprintf("File '%s' does not fit: the disk of container '%s' is full.", name, s.id)}
	case isAnswer(err):
		return 0, &berth.Error{Code: berth.CodeInvalid, Param: "file", Err: err,
			Message: fmt.Sprintf(
				"File '%s' cannot be written: a directory, a link or another file in container '%s' is in the way.",
				name, s.id)}
	}
	return 0, fl.leases.explain(ctx, s, err)
}

// Delete removes a file from a container.
func (fl *Files) Delete(ctx context.Context, p berth.ProjectID, id berth.ContainerID, cfile berth.CFileID) error {
	s, ctx, release, err := fl.leases.use(ctx, p, id)
	if err != nil {
		return err
	}
	defer release()
	if err := s.files.lock.acquire(ctx); err != nil {
		return err
	}
	defer s.files.lock.release()
	// The scan follows no links, so the path of a listed file is below the directory.
	files, err := fl.scan(ctx, s)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(files, func(f *berth.ContainerFile) bool { return f.ID == cfile })
	if i < 0 {
		return fileNotFound(id, cfile)
	}
	dir, err := s.workingDir(ctx)
	if err == nil {
		ctx, cancel := fl.opts.clock.WithTimeout(ctx, answerTimeout)
		defer cancel()
		err = s.client.Remove(ctx, dir, strings.TrimPrefix(files[i].Path, berth.WorkDir+"/"))
	}
	if err != nil {
		return fl.leases.explain(ctx, s, err)
	}
	return ignoreNotFound(fl.opts.Store.DeleteContainerFile(ctx, p, id, cfile))
}

func fileNotFound(c berth.ContainerID, id berth.CFileID) *berth.Error {
	return berth.Errorf(berth.CodeNotFound, "File %s not found on container %s.", id, c)
}

// hostFull returns an error for the client if a sandbox's disk is full because the host's
// volume is full, and nil if the sandbox reached its own limit.
func (fl *Files) hostFull(ctx context.Context, s *instance) error {
	err := fl.opts.Disk.Room()
	if err == nil {
		return nil
	}
	limit := fl.opts.limitsOf(s.body.MemoryLimit).Disk
	if read, rerr := fl.meter.read(ctx, s); rerr == nil && read.Disk > limit-limit/20 {
		return nil
	}
	return err
}
