package container

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container/snapshot"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/layer"
)

// errNoSnapshots is the error for requests that need snapshots.
var errNoSnapshots = berth.Errorf(berth.CodeInvalid, "This server does not store snapshots.")

// maxSnapshotFiles bounds the uploaded files that a snapshot records.
const maxSnapshotFiles = 1000

// Snapshots makes snapshots of sandboxes and starts sandboxes from them.
type Snapshots struct {
	opts   *Options
	work   *workers
	leases *leases
	deaths *deaths
	slots  slots         // bounds the snapshots made concurrently
	stall  time.Duration // longest time without progress of a guest that transfers a layer
}

// Take saves the file system of a container, or with req.Memory its whole state. Commands are stopped while it is read.
// The snapshot has been read back and verified when Take returns.
func (sn *Snapshots) Take(ctx context.Context, p berth.ProjectID, id berth.ContainerID,
	req SnapshotRequest) (*berth.Snapshot, error) {
	s, ctx, release, err := sn.leases.use(ctx, p, id)
	if err != nil {
		return nil, err
	}
	defer release()
	return sn.make(ctx, s, &berth.Snapshot{Name: req.Name, Memory: req.Memory, Cause: berth.SnapshotRequested})
}

// make makes the snapshot to of a sandbox.
func (sn *Snapshots) make(ctx context.Context, s *instance, to *berth.Snapshot) (*berth.Snapshot, error) {
	if sn.opts.Snapshots == nil {
		return nil, errNoSnapshots
	}
	if err := sn.opts.Disk.Room(); err != nil {
		return nil, err
	}
	if err := sn.slots.acquire(ctx); err != nil {
		return nil, err
	}
	defer sn.slots.release()
	to.ContainerID, to.Template, to.EndUser = s.id, s.body.Berth.Template, s.body.Berth.EndUser
	t, err := sn.opts.Template(to.Template)
	if err != nil {
		return nil, asUnavailable(err, "The template that the container started from is gone.")
	}
	r := &snapshot.Record{Snapshot: to, Skills: s.listSkills()}
	if to.Memory {
		to.MemoryLimit, r.Isolation = s.body.MemoryLimit, s.body.Berth.Isolation
	}
	if r.Files, err = sn.userFiles(ctx, s); err != nil {
		return nil, err
	}
	err = sn.opts.Snapshots.Create(ctx, s.project, r, func(w io.Writer) (layer.Made, error) {
		if to.Memory {
			sum := sha256.New()
			counted := &counter{w: io.MultiWriter(w, sum)}
			err := sn.checkpoint(ctx, s, counted)
			return layer.Made{Digest: "sha256:" + hex.EncodeToString(sum.Sum(nil)), Bytes: counted.n}, err
		}
		in, err := s.client.Archive(ctx)
		if err != nil {
			return layer.Made{}, err
		}
		defer in.Close()
		made, err := layer.Make(w, in, t.Path, layer.Limits{Bytes: sn.opts.Limits.WithDefaults().Disk})
		if len(made.Dropped) > 0 {
			sn.opts.Log.Warn("snapshot omits files with invalid names", "container", s.id, "names", made.Dropped)
		}
		return made, err
	})
	if err != nil {
		return nil, sn.explain(ctx, s, err)
	}
	sn.opts.Log.Info("snapshot made", "snapshot", to.ID, "container", s.id, "project", s.project, "cause", to.Cause,
		"bytes", to.Bytes, "stored_bytes", to.StoredBytes)
	return to, nil
}

// explain turns an error of making a snapshot into an error for the client.
func (sn *Snapshots) explain(ctx context.Context, s *instance, err error) error {
	switch {
	case errors.Is(err, layer.ErrTooLarge):
		return &berth.Error{Code: berth.CodeTooLarge, Err: err,
			Message: fmt.Sprintf("Container with id '%s' has changed more than a snapshot can hold: %v.", s.id, err)}
	case errors.Is(err, guest.ErrMoves):
		return &berth.Error{Code: berth.CodeInvalid, Err: err,
			Message: fmt.Sprintf("A snapshot of container with id '%s' cannot be made: %v.", s.id, err)}
	case errors.Is(err, guest.ErrBusy):
		return berth.Errorf(berth.CodeConflict, "A snapshot of container with id '%s' is being made.", s.id)
	}
	if e, ok := errors.AsType[checkpointError](err); ok {
		if sn.deaths.check(s); s.life.Err() != nil {
			return context.Cause(s.life)
		}
		return &berth.Error{Code: berth.CodeUnavailable, Err: e,
			Message: fmt.Sprintf("The memory of container with id '%s' could not be saved.", s.id)}
	}
	return sn.leases.explain(ctx, s, err)
}

// userFiles returns the files in a container that users uploaded.
func (sn *Snapshots) userFiles(ctx context.Context, s *instance) ([]*berth.ContainerFile, error) {
	all, err := sn.opts.Store.ContainerFiles(ctx, s.project, s.id)
	if err != nil {
		return nil, fmt.Errorf("list file rows: %w", err)
	}
	var theirs []*berth.ContainerFile
	for _, f := range all {
		if f.Source == "user" && len(theirs) < maxSnapshotFiles {
			theirs = append(theirs, f)
		}
	}
	return theirs, nil
}

// get returns the snapshot that a create request names.
func (sn *Snapshots) get(ctx context.Context, p berth.ProjectID, id berth.SnapshotID) (*snapshot.Record, error) {
	if sn.opts.Snapshots == nil {
		return nil, errNoSnapshots
	}
	r, err := sn.opts.Snapshots.Record(ctx, p, id)
	if e, ok := errors.AsType[*berth.Error](err); ok {
		at := *e
		at.Param = "berth.snapshot_id"
		return nil, &at
	}
	return r, err
}

// restore applies the snapshot of a plan to a new sandbox.
func (sn *Snapshots) restore(ctx context.Context, s *instance, pl *plan) error {
	if c := pl.copies; c != nil {
		if !c.memory {
			if err := sn.copyFiles(ctx, s, c, pl.template.Path); err != nil {
				return err
			}
		}
		return sn.restoreFiles(ctx, s, pl, c.files, c.from.id)
	}
	if pl.from == nil {
		return nil
	}
	files, of := pl.from.Files, pl.from.Snapshot.ContainerID
	if pl.memory() != nil { // its files are part of it
		return sn.restoreFiles(ctx, s, pl, files, of)
	}
	content, err := sn.opts.Snapshots.Open(ctx, s.project, pl.from)
	if err != nil {
		return err
	}
	defer content.Close()
	if err := sn.apply(ctx, s, content); err != nil {
		return err
	}
	return sn.restoreFiles(ctx, s, pl, files, of)
}

// stallTimeout bounds the time between two reads of a guest that applies a layer, and the time
// until its answer afterwards.
const stallTimeout = time.Minute

var errStalled = errors.New("guest does not make progress with the layer")

// apply makes a guest apply a layer, and checks that it answers afterwards: a layer can
// remove files that the guest needs.
func (sn *Snapshots) apply(ctx context.Context, s *instance, content io.Reader) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := sn.opts.clock.AfterFunc(sn.stall, func() { cancel(errStalled) })
	defer quiet.Stop()
	source := &source{r: progress{content, func() { quiet.Reset(sn.stall) }}}
	err := s.client.ApplyArchive(ctx, source)
	if _, readErr := source.finish(); readErr != nil {
		return readErr // an error of the snapshot
	}
	if err == nil {
		quiet.Reset(sn.stall)
		err = s.client.Ping(ctx)
	}
	if errors.Is(context.Cause(ctx), errStalled) {
		return errStalled
	}
	return err
}

// progress is a reader that calls moved after each read.
type progress struct {
	io.Reader
	moved func()
}

func (p progress) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	p.moved()
	return n, err
}

// restoreFiles saves rows of the files that users uploaded into another container, whose
// content the sandbox has.
func (sn *Snapshots) restoreFiles(ctx context.Context, s *instance, pl *plan, files []*berth.ContainerFile,
	of berth.ContainerID) error {
	// If the request names an upload again, the file gets the upload's id, so that it is not
	// added twice.
	again := map[berth.CFileID]berth.CFileID{}
	for _, id := range pl.files {
		again[addedID(of, id)] = addedID(s.id, id)
	}
	for _, f := range files {
		own := s.newFile(f.Path, sn.opts.clock.Now().Unix(), f.Bytes, "user")
		if id, ok := again[f.ID]; ok {
			own.ID = id
		}
		if err := sn.opts.Store.PutContainerFile(ctx, s.project, own); err != nil {
			return fmt.Errorf("save file row: %w", err)
		}
	}
	return nil
}

// delete deletes a snapshot. It does nothing if id is empty.
func (sn *Snapshots) delete(ctx context.Context, p berth.ProjectID, id berth.SnapshotID) error {
	if id == "" || sn.opts.Snapshots == nil {
		return nil
	}
	if err := sn.opts.Snapshots.Delete(ctx, p, id); berth.ErrorCode(err) != berth.CodeNotFound {
		return err
	}
	return nil
}

// discard removes a snapshot that is not needed any more. If that fails, the snapshot
// expires.
func (sn *Snapshots) discard(p berth.ProjectID, id berth.SnapshotID) {
	ctx, cancel := sn.opts.clock.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	if err := sn.delete(ctx, p, id); err != nil {
		sn.opts.Log.Error("failed to remove a temporary snapshot; it will expire", "snapshot", id, "err", err)
	}
}

// expire removes expired snapshots.
func (sn *Snapshots) expire() {
	if sn.opts.Snapshots == nil {
		return
	}
	if err := sn.opts.Snapshots.Expire(sn.work.life, sn.opts.clock.Now()); err != nil && sn.work.life.Err() == nil {
		sn.opts.Log.Error("failed to remove expired snapshots; will retry", "err", err)
	}
}

// copyFiles copies the changes of the source's file system into a new sandbox. Commands of the
// source are frozen until it is made.
func (sn *Snapshots) copyFiles(ctx context.Context, s *instance, c *contentCopy, base string) error {
	ctx, done := c.bind(ctx)
	defer done()
	if err := sn.slots.acquire(ctx); err != nil {
		return err
	}
	defer sn.slots.release()
	content := c.open(func(w io.Writer) error {
		if c.shared != nil {
			return writeSpool(w, c.shared)
		}
		return sn.writeFiles(ctx, c.from, base, w)
	})
	err := sn.apply(ctx, s, content)
	_ = content.Close() // waits for the source
	return err
}

// writeFiles writes the changes of the source's file system.
func (sn *Snapshots) writeFiles(ctx context.Context, from *instance, base string, w io.Writer) error {
	in, err := from.client.Archive(ctx)
	if err != nil {
		return err
	}
	defer in.Close()
	made, err := layer.Write(w, in, base, layer.Limits{Bytes: sn.opts.Limits.WithDefaults().Disk})
	if len(made.Dropped) > 0 {
		sn.opts.Log.Warn("fork omits files with invalid names", "container", from.id, "names", made.Dropped)
	}
	return err
}
