package server

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/server/state"
	"github.com/berth-run/berth/store"
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
	public, err := audit.PublicKey(filepath.Join(b.State, state.AuditDir))
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
