package state

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/backup"
	"github.com/berth-run/berth/blob"
	"github.com/berth-run/berth/blob/remote"
	"github.com/berth-run/berth/internal/statefile"
)

// Files of a state directory about its repository of backups. None of them is in a backup.
const (
	backupKeyFile    = "backup.key"
	backupWriterFile = "backup.writer" // the name of this state directory, which a restored one does not have
	backupMadeFile   = "backup.made"   // a madeBackups
	backupLockFile   = "backup.lock"
	backupWorkDir    = "backup.work"
)

// BackupKey returns the key of the backups of a state directory, which the first call creates.
func BackupKey(state string) (backup.Key, error) {
	file := filepath.Join(state, backupKeyFile)
	text, err := statefile.ReadLinked(file)
	if errors.Is(err, fs.ErrNotExist) {
		if err := writeSecret(file, backup.NewKey().String()+"\n"); err != nil && !errors.Is(err, fs.ErrExist) {
			return backup.Key{}, fmt.Errorf("create the key of backups: %w", err)
		}
		text, err = statefile.ReadLinked(file)
	}
	if err != nil {
		return backup.Key{}, fmt.Errorf("read the key of backups: %w", err)
	}
	return backup.ParseKey(string(text))
}

// OpenRepository opens the repository of backups at a directory or the URL of a bucket.
func OpenRepository(ctx context.Context, at string, key backup.Key, create bool) (*backup.Repository, error) {
	p := backup.Place{Name: at}
	parts := map[string]*blob.Storage{"packs": &p.Packs, "backups": &p.Backups, "state": &p.State}
	if strings.Contains(at, "://") {
		l, err := remote.Parse(at)
		if err != nil {
			return nil, err
		}
		bucket, err := remote.Open(remote.Options{At: l, Owner: key.Owner(), Claim: create})
		if err != nil {
			return nil, err
		}
		if err := bucket.Check(ctx); err != nil {
			return nil, fmt.Errorf("%w (a repository needs a bucket or a prefix of its own, and its key)", remote.Cause(err))
		}
		p.Name = l.String()
		for name, part := range parts {
			*part = bucket.Section(name)
		}
		return backup.Open(ctx, p, key, create)
	}
	if !filepath.IsAbs(at) {
		return nil, fmt.Errorf("%q is neither the URL of a bucket nor an absolute path", at)
	}
	if _, err := os.Stat(at); err != nil && !create {
		return nil, fmt.Errorf("%w: %w", backup.ErrMissing, err)
	}
	for name, part := range parts {
		d, err := blob.OpenDirectory(filepath.Join(at, name))
		if err != nil {
			return nil, err
		}
		*part = d
	}
	return backup.Open(ctx, p, key, create)
}

// A Repeated is a backup to a repository.
type Repeated struct {
	To      string // a directory or the URL of a bucket
	Version string
	Keep    backup.Keep // zero removes nothing
	Take    bool        // become the writer in place of another server
}

// madeBackups are the backups that were made to a repository. An empty place is then not taken for a new repository,
// and nothing is removed from one that does not list them all.
type madeBackups struct {
	To    string   `json:"to"`
	Names []string `json:"names"`
}

// readMade returns the backups that were made to a repository. It returns none for another one.
func readMade(state, to string) (made madeBackups, err error) {
	text, err := statefile.ReadFile(filepath.Join(state, backupMadeFile))
	if errors.Is(err, fs.ErrNotExist) {
		return made, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &made)
	}
	if err != nil {
		return made, fmt.Errorf("read %s: %w", backupMadeFile, err)
	}
	if made.To != to {
		made = madeBackups{}
	}
	return made, nil
}

// write replaces the file as a whole.
func (made madeBackups) write(state string) error {
	text, err := json.Marshal(made)
	if err != nil {
		return err
	}
	file := filepath.Join(state, backupMadeFile)
	f, err := os.OpenFile(file+".tmp", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(file+".tmp", file)
}

// writerID returns the name of a state directory as the writer of a repository.
func writerID(state string) (string, error) {
	file := filepath.Join(state, backupWriterFile)
	text, err := statefile.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		err = writeSecret(file, "writer_"+strings.ToLower(rand.Text())+"\n")
		if err == nil || errors.Is(err, fs.ErrExist) {
			text, err = statefile.ReadFile(file)
		}
	}
	if err != nil {
		return "", fmt.Errorf("read the name of the writer: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// BackupTo makes a backup in a repository, with what changed since the last one, and then removes those that are not
// retained. A server may use the state.
func BackupTo(ctx context.Context, state string, how Repeated) (m *backup.Manifest, pruned backup.Pruned, err error) {
	if !HasDatabase(state) {
		return nil, pruned, &fs.PathError{Op: "open database", Path: state, Err: fs.ErrNotExist}
	}
	lock, err := os.OpenFile(filepath.Join(state, backupLockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, pruned, err
	}
	defer lock.Close() // also releases the lock
	if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil, pruned, fmt.Errorf("another backup of %s is being made", state)
	}
	if inside, err := isBelow(how.To, state); err != nil {
		return nil, pruned, err
	} else if inside && !strings.Contains(how.To, "://") {
		return nil, pruned, fmt.Errorf("%s is in the state directory %s; choose a directory outside of it", how.To, state)
	}
	key, err := BackupKey(state)
	if err != nil {
		return nil, pruned, err
	}
	w := backup.Writer{Since: time.Now().UTC().Truncate(time.Second)}
	w.Host, _ = os.Hostname()
	if w.ID, err = writerID(state); err != nil {
		return nil, pruned, err
	}
	made, err := readMade(state, how.To)
	if err != nil {
		return nil, pruned, err
	}
	isNew := made.To == ""
	r, err := OpenRepository(ctx, how.To, key, isNew)
	if errors.Is(err, backup.ErrMissing) {
		err = fmt.Errorf("%w any more: is a volume not mounted? To begin anew, remove %s", err,
			filepath.Join(state, backupMadeFile))
	}
	if err == nil {
		err = r.Claim(ctx, w, how.Take)
	}
	if err == nil && isNew {
		made.To = how.To
		err = made.write(state)
	}
	if err != nil {
		return nil, pruned, err
	}
	if m, err = draft(ctx, state, r, w, how.Version); err != nil {
		return nil, pruned, err
	}
	noteBackup(state, &Manifest{CreatedAt: m.CreatedAt, Files: m.Files, Bytes: m.Bytes})
	made.Names = append(made.Names, m.Name)
	if err := made.write(state); err != nil {
		return m, pruned, err
	}
	if how.Keep != (backup.Keep{}) {
		if how.Take { // the former writer may have removed some
			made.Names = made.Names[len(made.Names)-1:]
		}
		forget := func(names []string) error {
			isGone := func(name string) bool { return slices.Contains(names, name) }
			made.Names = slices.DeleteFunc(made.Names, isGone)
			return made.write(state)
		}
		if pruned, err = r.Prune(ctx, w, how.Keep, slices.Clone(made.Names), forget, time.Now()); err != nil {
			err = fmt.Errorf("the backup is complete, but older ones could not be removed: %w", err)
		}
	}
	return m, pruned, err
}

// draft makes a backup, in the order that Backup explains.
func draft(ctx context.Context, state string, r *backup.Repository, w backup.Writer, version string) (
	_ *backup.Manifest, err error) {
	db, err := OpenDatabase(ctx, state, Use{URL: os.Getenv(StoreVariable)})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	d, err := r.Begin(ctx, w, version, time.Now())
	if err != nil {
		return nil, err
	}
	work := filepath.Join(state, backupWorkDir)
	if err := os.RemoveAll(work); err != nil { // of a backup that was killed
		return nil, err
	}
	if err := os.Mkdir(work, 0o700); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	b := &drafting{Draft: d, copying: &copying{state: state, to: work, db: db}}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{{"the database", b.database}, {"files and snapshots", b.contents}, {"volumes", b.volumes},
		{"templates", b.templates}, {"the audit record", b.audit}, {"keys", b.keys}} {
		if err := step.do(ctx); err != nil {
			return nil, fmt.Errorf("back up %s: %w", step.what, err)
		}
	}
	return d.Commit(ctx)
}
