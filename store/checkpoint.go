package store

import "context"

// A Checkpoint states what a server has last signed of an audit record.
type Checkpoint struct {
	Origin    string // the name of the record's key
	Server    string // the id of the Member
	PublicKey string
	Size      int64  // number of entries
	Signed    string // the checkpoint itself, a signed note
}

// Checkpoints stores the last checkpoint of each audit record of the servers that share a store. A
// store that several servers can use concurrently implements it beside Members. A checkpoint remains
// when its server is removed.
type Checkpoints interface {
	// SaveCheckpoint saves the checkpoint of a record in place of an earlier one. It returns
	// ErrConflict if the stored checkpoint covers more entries.
	SaveCheckpoint(ctx context.Context, c Checkpoint) error

	// ListCheckpoints returns the last checkpoints of all records, by origin.
	ListCheckpoints(ctx context.Context) ([]Checkpoint, error)
}
