package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/postgres"
	"github.com/berth-run/berth/store/sqlite"
	"github.com/berth-run/berth/store/transfer"
)

// StoreFile names the database in the state directory, as an argument of CopyStore.
const StoreFile = "sqlite"

// A StoreCopy is the result of CopyStore.
type StoreCopy struct {
	Tables []transfer.Result
	Uses   string // the database that the state directory now uses, without a password
	// the former one: the path of its file, which is useless because its keys have moved; or without a password
	Former string
}

// CopyStore copies the database of a state directory to another one, which must be empty, and makes
// the state directory use that. Each of from and to is StoreFile or the URL of a PostgreSQL database.
// It returns an error if a server uses one of them. If it fails, the state directory uses the former
// database.
func CopyStore(ctx context.Context, state, from, to string) (*StoreCopy, error) {
	if err := checkStoreCopy(state, from, to); err != nil {
		return nil, err
	}
	unlock, err := Lock(state)
	if err != nil {
		return nil, err
	}
	c := &StoreCopy{Uses: config.Masked("store.url", to)}
	if from == StoreFile {
		err = c.fromFile(ctx, state, to)
	} else {
		err = c.fromPostgres(ctx, state, from, to)
	}
	if err := errors.Join(err, unlock()); err != nil {
		return nil, err
	}
	return c, nil
}

func checkStoreCopy(state, from, to string) error {
	for _, at := range []string{from, to} {
		if at != StoreFile && !postgres.ValidURL(at) {
			return fmt.Errorf(
				"a database is %q, which means berth.db in the state directory, or the URL of a PostgreSQL database, such as postgres://user@host:5432/berth?sslmode=verify-full",
				StoreFile)
		}
	}
	if from == to {
		return errors.New("both are the same database")
	}
	recorded, err := recordedStore(state)
	if err != nil {
		return err
	}
	file := filepath.Join(state, "berth.db")
	_, err = os.Stat(file)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case recorded == "" && err != nil:
		return fmt.Errorf("the state directory %s has no database", state)
	case from == StoreFile && recorded != "":
		return fmt.Errorf("the database of %s is %s, not a file", state, config.Masked("store.url", recorded))
	case from != StoreFile && recorded == "":
		return fmt.Errorf("the database of %s is its file berth.db, not %s", state, config.Masked("store.url", from))
	case to == StoreFile && err == nil:
		return fmt.Errorf("%s exists; a copy needs an empty target, so move that file away or remove it", file)
	}
	return nil
}

// fromFile copies the file of the state directory to a PostgreSQL database. The keys of rows remain
// in their file, from which the first Open of that database moves them.
func (c *StoreCopy) fromFile(ctx context.Context, state, to string) error {
	db, err := OpenStore(ctx, state, sqlite.Options{})
	if err != nil {
		return err
	}
	err = db.Export(ctx, func(r transfer.Reader) error {
		if c.Tables, err = postgres.Import(ctx, to, r); err != nil {
			return err
		}
		return recordStore(state, to) // from here on the state directory uses the copy
	})
	if err := errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("copy to %s: %w", c.Uses, err)
	}
	file := filepath.Join(state, "berth.db")
	c.Former = file + ".copied-" + time.Now().UTC().Format("20060102T150405Z")
	for _, part := range []string{"", "-wal", "-shm"} {
		if err := os.Rename(file+part, c.Former+part); err != nil && (part == "" || !errors.Is(err, fs.ErrNotExist)) {
			return fmt.Errorf("put the former database aside: %w", err)
		}
	}
	if err := syncAll(state); err != nil { // before the keys move
		return err
	}
	return c.open(ctx, state)
}

// fromPostgres copies a PostgreSQL database to a file of the state directory, or to another
// PostgreSQL database.
func (c *StoreCopy) fromPostgres(ctx context.Context, state, from, to string) error {
	c.Former = config.Masked("store.url", from)
	opened, err := OpenDatabase(ctx, state, Use{URL: from, Serve: true})
	if err != nil {
		return err
	}
	db := opened.(*postgres.DB)
	err = errInUse(ctx, db, c.Former)
	if err == nil {
		err = c.export(ctx, db, state, to)
	}
	if err := errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("copy from %s: %w", c.Former, err)
	}
	return c.open(ctx, state)
}

// export copies a database and its keys, and makes the state directory use the copy.
func (c *StoreCopy) export(ctx context.Context, db *postgres.DB, state, to string) (err error) {
	file := filepath.Join(state, "berth.db")
	return db.Export(ctx, true, func(r transfer.Reader) error {
		if to == StoreFile {
			c.Tables, err = sqlite.Import(ctx, file, r)
		} else {
			c.Tables, err = postgres.Import(ctx, to, r)
		}
		if err != nil {
			return err
		}
		if err := db.ExportKeys(ctx, sqlite.KeysPath(file)); err != nil {
			return err
		}
		if to != StoreFile {
			return recordStore(state, to)
		}
		c.Uses = file
		return os.Remove(filepath.Join(state, storeFile))
	})
}

// open opens the database of a state directory, which verifies its keys, and moves them into a
// PostgreSQL database.
func (c *StoreCopy) open(ctx context.Context, state string) error {
	db, err := OpenDatabase(ctx, state, Use{restoring: true})
	if err != nil {
		return err
	}
	return db.Close()
}

// errInUse returns an error if a server uses a database.
func errInUse(ctx context.Context, db store.Members, name string) error {
	members, err := db.ListMembers(ctx)
	if err != nil {
		return fmt.Errorf("list servers: %w", err)
	}
	for _, m := range members {
		if m.Alive() {
			return fmt.Errorf(
				"the server %s at %s uses %s; stop it first (a server that was killed counts for up to a minute)", m.ID,
				m.Address, name)
		}
	}
	return nil
}
