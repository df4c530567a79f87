package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

// checkpointEvery is how often a server of a cluster saves the last checkpoint of its audit record.
const checkpointEvery = 10 * time.Second

// saveCheckpoints saves the last checkpoint of the audit record in the database now and then, and
// once the record is closed. The other servers can thus miss a record, and a later part of it.
func (s *Server) saveCheckpoints(b *base) error {
	db, ok := b.disk.(store.Checkpoints)
	if !ok {
		return errors.New("cluster: the database cannot store checkpoints of audit records")
	}
	public, err := audit.PublicKey(filepath.Join(b.State, AuditDir))
	if err != nil {
		return fmt.Errorf("read public key of the audit record: %w", err)
	}
	key, err := note.NewVerifier(public)
	if err != nil {
		return fmt.Errorf("public key of the audit record: %w", err)
	}
	var saved string
	save := func(ctx context.Context) {
		signed := b.audit.Checkpoint()
		if signed == "" || signed == saved {
			return
		}
		c, err := audit.OpenCheckpoint([]byte(signed), key)
		if err == nil {
			err = db.SaveCheckpoint(ctx, store.Checkpoint{Origin: c.Origin, Server: b.node, PublicKey: public,
				Size: c.Size, Signed: signed})
		}
		switch {
		case err == nil:
			saved = signed
		case errors.Is(err, store.ErrConflict):
			b.Log.Error(
				"the audit record has fewer entries than this server has signed; run berth audit verify --cluster",
				"entries", c.Size)
			saved = signed // reported once
		case ctx.Err() == nil:
			b.Log.Error("failed to save the checkpoint of the audit record; will retry", "err", err)
		}
	}
	s.later(func(ctx context.Context) error { save(ctx); return nil }) // after the record is closed
	s.later(startWorker(0, checkpointEvery, save))
	return nil
}

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
	opened, err := openDatabase(ctx, state, databaseUse{Options: sqlite.Options{Log: slog.New(slog.DiscardHandler)}})
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
