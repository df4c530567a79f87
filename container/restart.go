package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

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

// restartSnapshotLife is the least time until the snapshot of a repeated start expires.
const restartSnapshotLife = time.Hour

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

// replan returns the plan that repeats an interrupted start.
func (st *starter) replan(ctx context.Context, s *instance, rec *startRecord) (*plan, error) {
	pl := &plan{requestedAt: st.opts.clock.Now(), body: &s.body, requestEnv: rec.Env, files: rec.Files,
		skills: rec.Skills, restarted: true}
	if rec.Memory && !s.body.Berth.Starting {
		pl.networkOnly = true
		return pl, nil
	}
	if rec.Fork {
		return pl, stepError{"the server was interrupted while it was forked", errStopping}
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
	// The snapshot may have expired while no server ran.
	if err := st.opts.Snapshots.Extend(ctx, s.project, rec.Snapshot,
		st.opts.clock.Now().Add(restartSnapshotLife)); err != nil {
		return pl, stepError{"its snapshot could not be read", err}
	}
	if pl.from, err = st.snapshots.get(ctx, s.project, rec.Snapshot); err != nil {
		return pl, stepError{"its snapshot could not be read", err}
	}
	return pl, nil
}

// startAgain repeats an interrupted start in the background. If failed is not nil, it ends the
// container with that error instead.
func (st *starter) startAgain(ctx context.Context, s *instance, rec *startRecord, failed error) error {
	s.requestID = rec.RequestID
	pl, err := st.replan(ctx, s, rec)
	if err = errors.Join(failed, err); err != nil {
		st.fail(s, err)
		return nil
	}
	st.opts.Log.Info("repeat container start", "container", s.id, "project", s.project, "adopted", pl.networkOnly)
	if !st.work.spawn(func() { st.launch(s, pl) }) {
		return errStopping
	}
	return nil
}

// fail ends a container that cannot be started.
func (st *starter) fail(s *instance, err error) {
	st.deaths.end(s, reasonHost, startError(s.id, err), err, nil)
	close(s.started)
}
