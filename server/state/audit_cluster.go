package state

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

// A VerifiedRecord is the audit record of one server of a cluster.
type VerifiedRecord struct {
	Server string // its id
	Dir    string // empty if none of the directories has the record
	Size   int64  // entries that the server has signed, by its last saved checkpoint
	Report *audit.Report
	Err    error // the record is missing, or is invalid
}

// VerifyRecords verifies the audit records of all servers of a cluster against the checkpoints in
// its database, which the state directory names. dirs are the directories of the records, or of
// copies. It returns the record of each server, and those of other directories.
func VerifyRecords(ctx context.Context, state string, dirs []string) ([]VerifiedRecord, error) {
	at, err := recordedStore(state)
	if err != nil {
		return nil, err
	}
	if at == "" {
		return nil, fmt.Errorf("the state directory %s is not that of a server with PostgreSQL", state)
	}
	opened, err := OpenDatabase(ctx, state, Use{Options: sqlite.Options{Log: slog.New(slog.DiscardHandler)}})
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	db, ok := opened.(store.Checkpoints)
	if !ok {
		return nil, errors.New("the database cannot store checkpoints")
	}
	saved, err := db.ListCheckpoints(ctx)
	if err != nil {
		return nil, fmt.Errorf("list checkpoints: %w", err)
	}
	dirOf := map[string]string{} // by public key
	var records []VerifiedRecord
	for _, dir := range dirs {
		public, err := audit.PublicKey(dir)
		known := slices.ContainsFunc(saved, func(c store.Checkpoint) bool { return c.PublicKey == public })
		switch {
		case err != nil:
			records = append(records, VerifiedRecord{Dir: dir, Err: fmt.Errorf("read public key: %w", err)})
		case !known:
			records = append(records, VerifiedRecord{Dir: dir,
				Err: errors.New("no server of the cluster has signed this record")})
		default:
			dirOf[public] = dir
		}
	}
	for _, c := range saved {
		r := VerifiedRecord{Server: c.Server, Dir: dirOf[c.PublicKey], Size: c.Size}
		if r.Dir == "" {
			r.Err = fmt.Errorf("the record %s, of %d entries, is missing", c.Origin, c.Size)
		} else {
			r.Report, r.Err = audit.Verify(r.Dir, c.PublicKey, c.Signed)
		}
		records = append(records, r)
	}
	return records, nil
}
