package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// kindStart is the kind of object that holds what a container is started from, sealed.
//
// It is saved in the write that creates the container. A server that finds a container
// whose Starting is true starts it again from this: no command was sent to its guest yet.
// One that is restored from memory runs by itself before its start has ended: its record
// is there until then, and without Starting it means that only the network is missing.
const kindStart = store.KindContainerStart

// A startRecord is what the start of a container needs beside the container itself and
// its secrets.
type startRecord struct {
	Env       []string         `json:"env,omitempty"`   // of the request; the template's is read again
	Files     []berth.FileID   `json:"files,omitempty"` // uploads to put in
	Snapshot  berth.SnapshotID `json:"snapshot,omitempty"`
	Memory    bool             `json:"memory,omitempty"`  // the snapshot is of memory
	Dispose   bool             `json:"dispose,omitempty"` // the snapshot is removed when the start has ended
	RequestID string           `json:"request_id,omitempty"`
}

// startRecords saves and loads start records.
type startRecords struct{ opts *Options }

// errStartRecord says that a start record is damaged, or sealed with another server's key.
var errStartRecord = stepError{"what it is started from cannot be read", errors.New("start record is damaged or sealed with another key")}

func startKey(id berth.ContainerID) store.ObjectKey {
	return store.ObjectKey{Kind: kindStart, Parent: string(id), ID: "start"}
}

// startSeal ties a sealed startRecord to one container.
func startSeal(s *instance) []byte {
	return []byte("container.start\x00" + string(s.project) + "\x00" + string(s.id))
}

// startObject returns the object from which a crashed start is made again. The
// environment may hold secrets, so it is sealed.
func (sr *startRecords) object(s *instance, pl *plan) (*store.Object, error) {
	rec := startRecord{Env: pl.requestEnv, Files: pl.files, Dispose: pl.dispose != "", RequestID: s.requestID}
	if pl.from != nil {
		rec.Snapshot, rec.Memory = pl.from.Snapshot.ID, pl.from.Snapshot.Memory
	}
	plain, err := json.Marshal(rec)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(sr.opts.Seal.Seal(nil, nil, plain, startSeal(s)))
	if err != nil {
		return nil, err
	}
	return &store.Object{ObjectKey: startKey(s.id), CreatedAt: sr.opts.now().Unix(), Body: body}, nil
}

// loadStart returns what a container is started from; nil if there is no record of it.
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
	plain, err := sr.opts.Seal.Open(nil, nil, box, startSeal(s))
	if err != nil {
		return nil, errors.Join(errStartRecord, err)
	}
	rec := &startRecord{}
	if err := json.Unmarshal(plain, rec); err != nil {
		return nil, errors.Join(errStartRecord, err)
	}
	return rec, nil
}

// deleteStart removes a start record.
func (sr *startRecords) delete(ctx context.Context, s *instance) error {
	return ignoreNotFound(sr.opts.Store.DeleteObject(ctx, s.project, startKey(s.id)))
}

// replan returns the plan of a container whose start a crash interrupted.
func (st *starter) replan(ctx context.Context, s *instance, rec *startRecord) (*plan, error) {
	pl := &plan{asked: time.Now(), body: &s.body, requestEnv: rec.Env, files: rec.Files, again: true}
	if rec.Dispose {
		pl.dispose = rec.Snapshot
	}
	if rec.Memory && !s.body.Berth.Starting {
		pl.adopted = true
		return pl, nil
	}
	t, err := st.opts.Template(s.body.Berth.Template)
	if err != nil {
		return pl, stepError{"its template is gone", err}
	}
	pl.template, pl.env = t.Template, slices.Concat(t.Env, rec.Env)
	if rec.Snapshot == "" {
		return pl, nil
	}
	if st.opts.Snapshots == nil {
		return pl, stepError{"its snapshot could not be read", errNoSnapshots}
	}
	// It may have expired while no server ran.
	if err := st.opts.Snapshots.Extend(ctx, s.project, rec.Snapshot, st.opts.now().Add(forkLife)); err != nil {
		return pl, stepError{"its snapshot could not be read", err}
	}
	if pl.from, err = st.snapshots.get(ctx, s.project, rec.Snapshot); err != nil {
		return pl, stepError{"its snapshot could not be read", err}
	}
	return pl, nil
}

// startAgain starts a container whose start a crash interrupted, in the background.
// failed is why that is not possible, if it is not.
func (st *starter) startAgain(ctx context.Context, s *instance, rec *startRecord, failed error) error {
	s.requestID = rec.RequestID
	pl, err := st.replan(ctx, s, rec)
	if err = errors.Join(failed, err); err != nil {
		st.fail(s, pl, err)
		return nil
	}
	st.opts.Log.Info("start container again", "container", s.id, "project", s.project, "adopted", pl.adopted)
	if !st.work.spawn(func() { st.launch(s, pl) }) {
		return errStopping
	}
	return nil
}

// endStart ends a container that cannot be started.
func (st *starter) fail(s *instance, pl *plan, err error) {
	st.deaths.end(s, reasonHost, startError(s.id, err), err, nil)
	st.finish(s, pl)
}

// finishStart removes what was there for the start only, and lets users go on.
func (st *starter) finish(s *instance, pl *plan) {
	if pl.dispose != "" {
		st.snapshots.discard(s.project, pl.dispose)
	}
	close(s.started)
}
