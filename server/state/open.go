package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/container/snapshot"
	"github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/people"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/retention"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/postgres"
	"github.com/berth-run/berth/store/sqlite"
)

// A Dir is an open state directory, for commands that work on it directly. A server may use it
// at the same time; only the server sweeps it.
type Dir struct {
	Store     store.Store
	Projects  *project.Service
	People    *people.Service
	Snapshots *snapshot.Service
	dir       string
	close     func() error
}

// Open opens a state directory. It creates the directory if there is none.
func Open(ctx context.Context, dir string) (*Dir, error) {
	db, err := OpenDatabase(ctx, dir, Use{URL: os.Getenv(StoreVariable)})
	if err != nil {
		return nil, err
	}
	keys, err := ReadSealKeys(dir)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	contents, err := OpenBlobs(ctx, db, dir)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	snapshots, err := contents.Open("snapshots")
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	persons := people.New(people.Options{Objects: db, Audit: auditor(dir)})
	return &Dir{Store: db, Projects: project.New(project.Options{Objects: db, Keys: db, Audit: auditor(dir),
		Owners: persons.Owner, Held: (&retention.Holds{Objects: db, Audit: auditor(dir), Clock: clock.System}).Any}),
		People:    persons,
		Snapshots: snapshot.New(snapshot.Options{Objects: db, Contents: snapshots, Seal: keys.Keychain()}),
		dir:       dir, close: db.Close}, nil
}

// OpenExisting opens a state directory. It returns fs.ErrNotExist if there is none.
func OpenExisting(ctx context.Context, dir string) (*Dir, error) {
	if !HasDatabase(dir) {
		return nil, &fs.PathError{Op: "open database", Path: dir, Err: fs.ErrNotExist}
	}
	return Open(ctx, dir)
}

// Close closes the state directory.
func (s *Dir) Close() error { return s.close() }

// References returns the digests of the templates that containers and snapshots of a state
// directory refer to, whether or not a server runs. It returns nil if there is no state
// directory.
func References(ctx context.Context, dir string) (map[string]bool, error) {
	s, err := OpenExisting(ctx, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return TemplateReferences(ctx, s.Store, s.Snapshots)
}

// Compact rewrites the database of a state directory without the space of deleted rows. It
// returns the sizes before and after. It returns an error if a server runs.
func Compact(ctx context.Context, dir string) (before, after int64, err error) {
	at, err := recordedStore(dir)
	if err != nil {
		return 0, 0, err
	}
	unlock, err := Lock(dir)
	if err != nil {
		return 0, 0, err
	}
	if at != "" {
		before, after, err = postgres.Compact(ctx, at)
	} else {
		before, after, err = sqlite.Compact(ctx, filepath.Join(dir, "berth.db"))
	}
	return before, after, errors.Join(err, unlock())
}

// auditor writes entries to the audit record of a state directory. It opens the record for each
// call, because most commands write nothing.
type auditor string

// Commit writes entries. A server may write to the record at the same time.
func (a auditor) Commit(ctx context.Context, entries ...audit.Entry) error {
	record, err := audit.Open(filepath.Join(string(a), AuditDir), slog.Default())
	if err != nil {
		return err
	}
	return errors.Join(record.Commit(ctx, entries...), record.Close())
}

// TemplateReferences returns the digests that running containers and snapshots of all projects refer to.
func TemplateReferences(ctx context.Context, containers store.Containers, snapshots *snapshot.Service) (map[string]bool,
	error) {
	digests, err := snapshots.Templates(ctx)
	if err != nil {
		return nil, fmt.Errorf("list templates of snapshots: %w", err)
	}
	running, err := containers.RunningContainers(ctx)
	for _, c := range running {
		digests[c.Body.Berth.Template] = true
	}
	return digests, err
}
