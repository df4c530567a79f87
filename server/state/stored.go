package state

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container/snapshot"
	"github.com/berth-run/berth/container/volume"
	"github.com/berth-run/berth/files/uploads"
	"github.com/berth-run/berth/image"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/skills"
	"github.com/berth-run/berth/store"
)

// StoredSizes returns the sizes that count as a project's storage: rows of the database, uploaded
// files, parts of uploads, skills, snapshots, volumes, and images that it pulled to this server.
func StoredSizes(db store.Store, state string) []project.Size {
	sum := func(stored func(context.Context, store.Objects, berth.ProjectID) (int64, error)) project.Size {
		return func(ctx context.Context, p berth.ProjectID) (int64, error) { return stored(ctx, db, p) }
	}
	return []project.Size{db.StoredBytes, db.FileBytes, sum(uploads.StoredBytes), sum(skills.StoredBytes),
		sum(snapshot.StoredBytes), sum(volume.StoredBytes),
		func(_ context.Context, p berth.ProjectID) (int64, error) {
			return image.NamedBytes(ImagesDir(state), PulledPrefix(p))
		}}
}

// StoredBytes returns the storage of a project, as its limit counts it.
func (s *Dir) StoredBytes(ctx context.Context, p berth.ProjectID) (total int64, err error) {
	for _, size := range StoredSizes(s.Store, s.dir) {
		n, err := size(ctx, p)
		if err != nil {
			return 0, fmt.Errorf("sum stored bytes of %s: %w", p, err)
		}
		total += n
	}
	return total, nil
}

// Contents are the numbers of a project's objects, each at most maxCounted.
type Contents struct {
	Containers, Responses, Files int
	Objects                      int // other objects: snapshots, volumes, conversations …
	Bytes                        int64
}

const maxCounted = 10_000

// String formats the contents for people.
func (c Contents) String() string {
	count := func(n int, one, many string) string {
		switch {
		case n == 1:
			return "1 " + one
		case n >= maxCounted:
			return fmt.Sprintf("%d or more %s", n, many)
		}
		return fmt.Sprintf("%d %s", n, many)
	}
	return fmt.Sprintf("%s, %s, %s and %s (snapshots, volumes, conversations …), %d bytes",
		count(c.Containers, "container", "containers"),
		count(c.Responses, "response", "responses"), count(c.Files, "file", "files"), count(c.Objects, "other object",
			"other objects"), c.Bytes)
}

// Contents counts the objects of a project.
func (s *Dir) Contents(ctx context.Context, p berth.ProjectID) (c Contents, err error) {
	page := store.Page{Limit: maxCounted}
	containers, _, err := s.Store.ListContainers(ctx, p, "", page)
	files, _, ferr := s.Store.ListFiles(ctx, p, "", page)
	responses, rerr := s.Store.ProjectResponses(ctx, p, maxCounted)
	objects, oerr := s.Store.ProjectObjects(ctx, p, maxCounted)
	bytes, berr := s.StoredBytes(ctx, p)
	if err := errors.Join(err, ferr, rerr, oerr, berr); err != nil {
		return c, fmt.Errorf("list contents of %s: %w", p, err)
	}
	return Contents{Containers: len(containers), Responses: len(responses), Files: len(files), Objects: len(objects),
		Bytes: bytes}, nil
}

// Spending returns what a project and its keys have spent in the present month, and all if p
// is empty, with the limits that the store and the configuration have. A nil configuration has none.
func (s *Dir) Spending(ctx context.Context, p berth.ProjectID, c *config.Config) ([]project.Spend, error) {
	opts := project.QuotaOptions{Objects: s.Store, Usages: s.Store, Keys: s.Store}
	if c != nil {
		opts.Limits = c.ProjectLimits()
	}
	spent, _, _, err := project.NewQuota(opts).Spending(ctx, p)
	return spent, err
}

// Archive archives a project and returns the contents that an Eraser will delete. It returns
// ErrNoProject if the project has no record, key or objects.
func (s *Dir) Archive(ctx context.Context, p berth.ProjectID) (Contents, error) {
	c, err := s.Contents(ctx, p)
	if err != nil {
		return c, err
	}
	if c == (Contents{}) {
		known, err := s.Projects.Known(ctx, p)
		if err != nil {
			return c, err
		}
		if !known {
			return c, ErrNoProject
		}
	}
	_, err = s.Projects.Archive(ctx, p)
	return c, err
}

// ErrNoProject is returned for a project without record, keys and objects.
var ErrNoProject = errors.New("it has no record, key or objects")

// PulledPrefix returns the prefix of the names of images that a project pulled.
func PulledPrefix(p berth.ProjectID) string {
	sum := sha256.Sum256([]byte(p))
	return "e2b-" + hex.EncodeToString(sum[:8]) + "-"
}

// ImagesDir returns the directory of templates in a state directory.
func ImagesDir(state string) string { return filepath.Join(state, "images") }
