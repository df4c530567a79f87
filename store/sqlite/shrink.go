package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Deleted rows leave free pages in the file, which new rows use. Pages beyond a
// reserve are returned to the file system in steps. Steps are short, so that writers
// do not wait long, and rare, so that writers have most of the time.
const (
	shrinkEvery = 10 * time.Second
	shrinkSlack = 4096  // free pages that remain for new rows: 16 MiB
	shrinkShare = 20    // 1/shrinkShare of the file remains as well,
	shrinkMost  = 16384 // but no more pages than this: 64 MiB
	shrinkStep  = 128   // pages of one step, during which writers wait
	shrinkRest  = 4     // the pause after a step, as a multiple of its duration
)

// A shrinker returns free pages of the database to the file system.
type shrinker struct {
	d     *core
	slack int64
	end   context.CancelFunc
	done  chan struct{}
}

func newShrinker(d *core) *shrinker {
	ctx, cancel := context.WithCancel(context.Background())
	s := &shrinker{d: d, slack: shrinkSlack, end: cancel, done: make(chan struct{})}
	go s.run(ctx)
	return s
}

func (s *shrinker) close() error {
	s.end()
	<-s.done
	return nil
}

func (s *shrinker) run(ctx context.Context) {
	defer close(s.done)
	wait := shrinkEvery
	for {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		started := time.Now()
		more, err := s.d.shrink(ctx, s.slack, shrinkStep)
		wait = shrinkEvery
		if err != nil && ctx.Err() == nil {
			s.d.log.Warn("failed to return free pages of the database", "path", s.d.path, "err", err)
		} else if more {
			wait = shrinkRest * time.Since(started)
		}
	}
}

// shrink returns up to step free pages to the file system if there are more than slack
// and more than 1/shrinkShare of the file or shrinkMost. It reports whether more can be returned. It
// does nothing for a file created without incremental vacuum: see Compact.
func (d *core) shrink(ctx context.Context, slack, step int64) (more bool, err error) {
	var mode, pages, free int64
	for pragma, n := range map[string]*int64{"auto_vacuum": &mode, "page_count": &pages, "freelist_count": &free} {
		if err := d.read.QueryRowContext(ctx, "PRAGMA "+pragma).Scan(n); err != nil {
			return false, d.Convert(err)
		}
	}
	const incremental = 2
	n := spare(pages, free, slack)
	if mode != incremental || n <= 0 {
		return false, nil
	}
	err = d.writer.alone(func(c *sql.Conn) error {
		return incrementalVacuum(ctx, c, min(step, n))
	})
	return n > step, d.Convert(err)
}

// spare returns how many of the free pages need not remain.
func spare(pages, free, slack int64) int64 {
	return free - max(slack, min(pages/shrinkShare, shrinkMost))
}

// incrementalVacuum returns pages to the file system. Each of its rows is one page.
func incrementalVacuum(ctx context.Context, c *sql.Conn, pages int64) error {
	rows, err := c.QueryContext(ctx, fmt.Sprintf("PRAGMA incremental_vacuum(%d)", pages))
	if err != nil {
		return fmt.Errorf("incremental vacuum: %w", err)
	}
	for rows.Next() {
	}
	return errors.Join(rows.Err(), rows.Close())
}

// Compact rewrites the database in a file, without free pages and with incremental
// vacuum enabled. No other process may use it. Compact returns the sizes before and
// after. It needs as much disk space as the content.
func Compact(ctx context.Context, path string) (before, after int64, err error) {
	unlock, err := lockDir(filepath.Dir(path))
	if err != nil {
		return 0, 0, fmt.Errorf("sqlite: compact: %w", err)
	}
	defer unlock()
	if _, err := os.Stat(path); err != nil {
		return 0, 0, fmt.Errorf("sqlite: compact: %w", err)
	}
	next := path + ".compact"
	defer func() { _ = os.Remove(next) }()
	if before, after, err = compact(ctx, path, next); err != nil {
		return 0, 0, fmt.Errorf("sqlite: compact %s: %w", path, explain(err))
	}
	return before, after, nil
}

func compact(ctx context.Context, path, next string) (before, after int64, err error) {
	dsn, err := dataSource(path, "full")
	if err != nil {
		return 0, 0, err
	}
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return 0, 0, fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	// Without the write-ahead log there is one file. SQLite refuses this change if
	// another process has it open.
	for _, text := range []string{"PRAGMA locking_mode=EXCLUSIVE", "PRAGMA journal_mode=DELETE",
		"PRAGMA auto_vacuum=INCREMENTAL"} {
		if _, err := db.ExecContext(ctx, text); err != nil {
			return 0, 0, fmt.Errorf("disable the write-ahead log: %w", err)
		}
	}
	if before, err = size(path); err != nil {
		return 0, 0, err
	}
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, 0, err
	}
	if err := create(next); err != nil {
		return 0, 0, err
	}
	if _, err := db.ExecContext(ctx, "VACUUM INTO ?", next); err != nil {
		return 0, 0, fmt.Errorf("vacuum: %w", err)
	}
	var verdict string
	if verdict, err = integrity(ctx, next); err != nil || verdict != "ok" {
		return 0, 0, errors.Join(err, fmt.Errorf("the new file is damaged: %s", verdict))
	}
	if after, err = size(next); err != nil {
		return 0, 0, err
	}
	return before, after, errors.Join(syncFile(next), os.Rename(next, path), syncFile(filepath.Dir(path)))
}

// integrity returns the first fault that SQLite finds in a file, or "ok".
func integrity(ctx context.Context, path string) (verdict string, err error) {
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	if err != nil {
		return "", fmt.Errorf("open: %w", err)
	}
	err = db.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&verdict)
	return verdict, errors.Join(err, db.Close())
}

func size(path string) (int64, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
