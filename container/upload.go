package container

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/berth-run/berth"
)

// Add copies uploaded files into a container's working directory. Each has its own name or, if
// that is taken, a similar one. Add does not change a file that was added before and still
// exists.
func (fl *Files) Add(ctx context.Context, p berth.ProjectID, id berth.ContainerID, files []berth.FileID) error {
	if len(files) == 0 {
		return nil
	}
	s, ctx, release, err := fl.leases.use(ctx, p, id)
	if err != nil {
		return err
	}
	defer release()
	return fl.add(ctx, s, files)
}

func (fl *Files) add(ctx context.Context, s *instance, ids []berth.FileID) error {
	if len(ids) == 0 {
		return nil
	}
	if err := s.files.lock.acquire(ctx); err != nil {
		return err
	}
	defer s.files.lock.release()
	files, err := fl.scan(ctx, s)
	if err != nil {
		return err
	}
	added, taken := map[berth.CFileID]bool{}, map[string]bool{}
	for _, f := range files {
		added[f.ID], taken[f.Path] = true, true
	}
	for i, id := range ids {
		if added[addedID(s.id, id)] {
			continue
		}
		f, err := fl.addOne(ctx, s, id, taken)
		if err != nil {
			return atFile(err, i)
		}
		added[f.ID], taken[f.Path] = true, true
	}
	return nil
}

func (fl *Files) addOne(ctx context.Context, s *instance, id berth.FileID, taken map[string]bool) (*berth.ContainerFile,
	error) {
	body, upload, err := fl.opts.OpenFile(ctx, s.project, id)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	name := freeName(plainName(upload.Filename, string(id)), taken)
	size, err := fl.write(ctx, s, name, body)
	if err != nil {
		return nil, err
	}
	f := s.newFile(path.Join(berth.WorkDir, name), fl.opts.clock.Now().Unix(), size, "user")
	f.ID = addedID(s.id, id)
	return f, fl.opts.Store.PutContainerFile(ctx, s.project, f)
}

// addedID returns the id of an uploaded file in a container. It is deterministic, so that a
// file is not added twice.
func addedID(c berth.ContainerID, id berth.FileID) berth.CFileID {
	sum := sha256.Sum256([]byte(string(c) + " " + string(id)))
	return berth.CFileID(berth.PrefixContainerFile + hex.EncodeToString(sum[:24]))
}

// plainName returns the file name of an upload, without directories and at most 200 bytes long.
// If no valid name remains, it returns otherwise.
func plainName(name, otherwise string) string {
	name = name[strings.LastIndexAny(name, `/\`)+1:]
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return -1
		}
		return r
	}, name)
	if ext := path.Ext(name); len(name) > 200 && len(ext) < 20 {
		name = strings.ToValidUTF8(name[:200-len(ext)], "") + ext
	} else if len(name) > 200 {
		name = strings.ToValidUTF8(name[:200], "")
	}
	if checkName(name) != nil {
		return otherwise
	}
	return name
}

// freeName returns name. If it is taken, a number is put before the extension.
func freeName(name string, taken map[string]bool) string {
	ext := path.Ext(name)
	free := name
	for n := 2; taken[path.Join(berth.WorkDir, free)]; n++ {
		free = fmt.Sprintf("%s-%d%s", strings.TrimSuffix(name, ext), n, ext)
	}
	return free
}

// checkUploads returns an error unless all files exist.
func (fl *Files) checkUploads(ctx context.Context, p berth.ProjectID, ids []berth.FileID) error {
	for i, id := range ids {
		body, _, err := fl.opts.OpenFile(ctx, p, id)
		if err != nil {
			return atFile(err, i)
		}
		body.Close()
	}
	return nil
}

// atFile sets the parameter of an error about the i-th of a request's files.
func atFile(err error, i int) error {
	e, ok := errors.AsType[*berth.Error](err)
	if !ok {
		return err
	}
	at := *e
	at.Param = fmt.Sprintf("file_ids[%d]", i)
	return &at
}
