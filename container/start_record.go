package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/skills"
	"github.com/berth-run/berth/store"
)

// kindStart is the kind of the object that holds a sealed startRecord.
//
// It is saved in the write that creates the container. A server that finds a container with
// Starting repeats the start from this record, because no command was sent to its guest yet. A
// container that is restored from memory runs before its start is complete. It has the record
// until then; with the record but without Starting, only its network is missing.
const kindStart = store.KindContainerStart

// A startRecord is what the start of a container needs beside the container and its secrets.
type startRecord struct {
	Env       []string          `json:"env,omitempty"`   // of the request; the template's own is read again
	Files     []berth.FileID    `json:"files,omitempty"` // uploads to copy in
	Skills    []*skills.Install `json:"skills,omitempty"`
	Snapshot  berth.SnapshotID  `json:"snapshot,omitempty"`
	Memory    bool              `json:"memory,omitempty"` // the sandbox is restored from memory
	Fork      bool              `json:"fork,omitempty"`   // the content is another container's and is not stored
	RequestID string            `json:"request_id,omitempty"`
}

// startRecords saves and loads start records.
type startRecords struct{ opts *Options }

// errStartRecord is the error for a start record that is damaged or sealed with another
// server's key.
var errStartRecord = stepError{"its start record cannot be read",
	errors.New("start record is damaged or sealed with another key")}

func startKey(id berth.ContainerID) store.ObjectKey {
	return store.ObjectKey{Kind: kindStart, Parent: string(id), ID: "start"}
}

// startLabel is the associated data that binds a sealed startRecord to one container.
func startLabel(s *instance) []byte {
	return []byte("container.start\x00" + string(s.project) + "\x00" + string(s.id))
}

// object returns the start record of a plan as an object. The environment may hold
// secrets, so it is sealed.
func (sr *startRecords) object(s *instance, pl *plan) (*store.Object, error) {
	rec := startRecord{Env: pl.requestEnv, Files: pl.files, Skills: pl.skills, Memory: pl.withMemory(),
		Fork: pl.copies != nil, RequestID: s.requestID}
	if pl.from != nil {
		rec.Snapshot = pl.from.Snapshot.ID
	}
	plain, err := json.Marshal(rec)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(sr.opts.Seal.Seal(nil, nil, plain, startLabel(s)))
	if err != nil {
		return nil, err
	}
	return &store.Object{ObjectKey: startKey(s.id), CreatedAt: sr.opts.clock.Now().Unix(), Body: body}, nil
}

// load returns the start record of a container, or nil if there is none.
func (sr *startRecords) load(ctx context.Context, s *instance) (*startRecord, error) {
	o, err := sr.opts.Store.GetObject(ctx, s.project, startKey(s.id))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read start record: %w", err)
	}
	var box []byte
	if err := json.Unmarshal(o.Body, &box); err != nil {
		return nil, errors.Join(errStartRecord, err)
	}
	plain, err := sr.opts.Seal.Open(nil, nil, box, startLabel(s))
	if err != nil {
		return nil, errors.Join(errStartRecord, err)
	}
	rec := &startRecord{}
	if err := json.Unmarshal(plain, rec); err != nil {
		return nil, errors.Join(errStartRecord, err)
	}
	return rec, nil
}

// delete removes a start record.
func (sr *startRecords) delete(ctx context.Context, s *instance) error {
	return ignoreNotFound(sr.opts.Store.DeleteObject(ctx, s.project, startKey(s.id)))
}
