package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container/snapshot"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/layer"
)

// errNoSnapshots is what those are told who ask for one where there are none.
var errNoSnapshots = berth.Errorf(berth.CodeInvalid, "This server keeps no snapshots.")

// maxSnapshotFiles is of how many files a snapshot knows that users put them in.
const maxSnapshotFiles = 1000

// After a snapshot that expiry was to leave has failed, it is tried again.
const (
	leaveAttempts = 3
	leaveAgain    = time.Minute
)

// A SnapshotRequest describes a snapshot or a fork.
type SnapshotRequest struct {
	Name   string `json:"name,omitempty"`   // need not be unique
	Memory bool   `json:"memory,omitempty"` // with what runs; no call may be under way
}

// snapshots makes snapshots of sandboxes and starts sandboxes from them.
type snapshots struct {
	opts   *Options
	work   *workers
	leases *leases
	deaths *deaths
	slots  slots         // snapshots made at once
	quiet  time.Duration // how long a guest may make no progress with a layer
}

// Snapshot keeps what is in a container's file system now, or all that the container
// is. Commands stand still meanwhile. When it returns, the snapshot has been read
// back.
func (k *Service) Snapshot(ctx context.Context, p berth.ProjectID, id berth.ContainerID, req SnapshotRequest) (*berth.Snapshot, error) {
	s, ctx, release, err := k.leases.use(ctx, p, id)
	if err != nil {
		return nil, err
	}
	defer release()
	return k.snapshots.take(ctx, s, &berth.Snapshot{Name: req.Name, Memory: req.Memory, Cause: berth.SnapshotRequested})
}

// freeze keeps a sandbox as the snapshot.
func (sn *snapshots) take(ctx context.Context, s *instance, to *berth.Snapshot) (*berth.Snapshot, error) {
	if sn.opts.Snapshots == nil {
		return nil, errNoSnapshots
	}
	if err := sn.opts.Room(); err != nil {
		return nil, err
	}
	if err := sn.slots.acquire(ctx); err != nil {
		return nil, err
	}
	defer sn.slots.release()
	to.ContainerID, to.Template = s.id, s.body.Berth.Template
	t, err := sn.opts.Template(to.Template)
	if err != nil {
		return nil, asUnavailable(err, "The template that the container started from is gone.")
	}
	r := &snapshot.Record{Snapshot: to}
	if to.Memory {
		to.MemoryLimit, r.Isolation = s.body.MemoryLimit, s.body.Berth.Isolation
	}
	if r.Files, err = sn.userFiles(ctx, s); err != nil {
		return nil, err
	}
	err = sn.opts.Snapshots.Create(ctx, s.project, r, func(w io.Writer) (layer.Made, error) {
		if to.Memory {
			return sn.checkpoint(ctx, s, w)
		}
		in, err := s.client.Archive(ctx)
		if err != nil {
			return layer.Made{}, err
		}
		defer in.Close()
		made, err := layer.Make(w, in, t.Path, layer.Limits{Bytes: sn.opts.Limits.WithDefaults().Disk})
		if len(made.Dropped) > 0 {
			sn.opts.Log.Warn("a snapshot is without files whose names it cannot have", "container", s.id, "names", made.Dropped)
		}
		return made, err
	})
	if err != nil {
		return nil, sn.explain(ctx, s, err)
	}
	sn.opts.Log.Info("snapshot", "snapshot", to.ID, "container", s.id, "project", s.project, "cause", to.Cause, "bytes", to.Bytes, "stored_bytes", to.StoredBytes)
	return to, nil
}

// notFrozen turns an error of making a snapshot into what the client is told.
func (sn *snapshots) explain(ctx context.Context, s *instance, err error) error {
	switch {
	case errors.Is(err, layer.ErrTooLarge):
		return &berth.Error{Code: berth.CodeTooLarge, Err: err, Message: fmt.Sprintf("Container with id '%s' has changed more than a snapshot can hold: %v.", s.id, err)}
	case errors.Is(err, guest.ErrMoves):
		return &berth.Error{Code: berth.CodeInvalid, Err: err, Message: fmt.Sprintf("Container with id '%s' cannot be kept: %v.", s.id, err)}
	case errors.Is(err, guest.ErrBusy):
		return berth.Errorf(berth.CodeConflict, "A snapshot of container with id '%s' is being made.", s.id)
	}
	if e, ok := errors.AsType[checkpointError](err); ok {
		if sn.deaths.check(s); s.life.Err() != nil {
			return context.Cause(s.life)
		}
		return &berth.Error{Code: berth.CodeUnavailable, Err: e, Message: fmt.Sprintf("The memory of container with id '%s' could not be kept.", s.id)}
	}
	return sn.leases.explain(ctx, s, err)
}

// userFiles returns the files that users have put into a container.
func (sn *snapshots) userFiles(ctx context.Context, s *instance) ([]*berth.ContainerFile, error) {
	all, err := sn.opts.Store.ContainerFiles(ctx, s.project, s.id)
	if err != nil {
		return nil, err
	}
	var theirs []*berth.ContainerFile
	for _, f := range all {
		if f.Source == "user" && len(theirs) < maxSnapshotFiles {
			theirs = append(theirs, f)
		}
	}
	return theirs, nil
}

// snapshot returns the snapshot that a request for a container names.
func (sn *snapshots) get(ctx context.Context, p berth.ProjectID, id berth.SnapshotID) (*snapshot.Record, error) {
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

// restore puts a snapshot into a new sandbox.
func (sn *snapshots) restore(ctx context.Context, s *instance, pl *plan) error {
	if pl.from == nil {
		return nil
	}
	if pl.memory() != nil { // it has its files
		return sn.restoreFiles(ctx, s, pl)
	}
	content, err := sn.opts.Snapshots.Open(ctx, s.project, pl.from)
	if err != nil {
		return err
	}
	defer content.Close()
	if err := sn.apply(ctx, s, content); err != nil {
		return err
	}
	return sn.restoreFiles(ctx, s, pl)
}

// quietTime is how long a guest may take nothing of a layer that it applies, or not answer
// after the last of it.
const quietTime = time.Minute

var errQuiet = errors.New("the guest does not go on with it")

// applyLayer has a guest apply a layer, and checks that it answers afterwards: a layer can
// take away what the guest needs.
func (sn *snapshots) apply(ctx context.Context, s *instance, content io.Reader) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(sn.quiet, func() { cancel(errQuiet) })
	defer quiet.Stop()
	source := &source{r: progress{content, func() { quiet.Reset(sn.quiet) }}}
	err := s.client.ApplyArchive(ctx, source)
	if _, readErr := source.finish(); readErr != nil {
		return readErr // the snapshot's fault
	}
	if err == nil {
		quiet.Reset(sn.quiet)
		err = s.client.Ping(ctx)
	}
	if errors.Is(context.Cause(ctx), errQuiet) {
		return errQuiet
	}
	return err
}

// progress is a reader that calls moved for each piece that is read.
type progress struct {
	io.Reader
	moved func()
}

func (p progress) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	p.moved()
	return n, err
}

// restoreFiles tells the store what users had put into the container of a snapshot.
func (sn *snapshots) restoreFiles(ctx context.Context, s *instance, pl *plan) error {
	// What users had put in keeps its source and, if it is asked for again, is known.
	again := map[berth.CFileID]berth.CFileID{}
	for _, id := range pl.files {
		again[addedID(pl.from.Snapshot.ContainerID, id)] = addedID(s.id, id)
	}
	for _, f := range pl.from.Files {
		own := s.newFile(f.Path, sn.opts.now().Unix(), f.Bytes, "user")
		if id, ok := again[f.ID]; ok {
			own.ID = id
		}
		if err := sn.opts.Store.PutContainerFile(ctx, s.project, own); err != nil {
			return err
		}
	}
	return nil
}

// leaveSnapshot keeps an idle container as a snapshot, in the background, and ends
// it if it has not been used meanwhile. If it cannot be kept, that is tried again a
// few times.
func (sw *sweeper) expireToSnapshot(s *instance) {
	if !s.expiry.running.CompareAndSwap(false, true) {
		return
	}
	spawned := sw.work.spawn(func() {
		defer s.expiry.running.Store(false)
		s.mu.Lock()
		since := s.usage.active
		if !since.Equal(s.expiry.tried) {
			s.expiry.tried, s.expiry.attempts = since, 0
		}
		s.mu.Unlock()
		expires := sw.opts.now().Add(sw.opts.Expiry.SnapshotLife).Unix()
		if err := sw.leases.resume(s.life, s); err != nil {
			sw.snapshotFailed(s, err)
			return
		}
		kept, err := sw.snapshots.take(s.life, s, &berth.Snapshot{Name: s.body.Name, Cause: berth.SnapshotExpired, ExpiresAt: &expires})
		if err != nil {
			sw.snapshotFailed(s, err)
			return
		}
		body := s.body
		body.Berth.LastSnapshot = kept.ID
		ended := sw.deaths.end(s, reasonExpired, goneError(&body, reasonExpired), nil, func() bool {
			if !s.idleLocked(sw.opts.now()) || !s.usage.active.Equal(since) {
				return false
			}
			s.expiry.snapshot = kept.ID
			return true
		})
		if ended {
			return
		}
		sw.snapshots.discard(s.project, kept.ID)
	})
	if !spawned {
		s.expiry.running.Store(false)
	}
}

// notLeft counts an attempt that failed. After the last one the container expires.
func (sw *sweeper) snapshotFailed(s *instance, err error) {
	if s.life.Err() != nil {
		return // it has ended for another reason
	}
	s.mu.Lock()
	if berth.ErrorCode(err) != berth.CodeInsufficientStorage { // its files live until there is space for them
		s.expiry.attempts++
	}
	last := s.expiry.attempts >= leaveAttempts
	if !last {
		s.usage.graceUntil = sw.opts.now().Add(leaveAgain)
	}
	s.mu.Unlock()
	sw.opts.Log.Error("a container that expires was not kept as a snapshot", "container", s.id, "project", s.project, "again", !last, "err", err)
	if last {
		sw.deaths.end(s, reasonExpired, goneError(&s.body, reasonExpired), err, func() bool { return s.idleLocked(sw.opts.now()) })
	}
}

// forget removes a snapshot, if there is one.
func (sn *snapshots) delete(ctx context.Context, p berth.ProjectID, id berth.SnapshotID) error {
	if id == "" || sn.opts.Snapshots == nil {
		return nil
	}
	if err := sn.opts.Snapshots.Delete(ctx, p, id); berth.ErrorCode(err) != berth.CodeNotFound {
		return err
	}
	return nil
}

// expireSnapshots removes those whose time is up.
func (sn *snapshots) expire() {
	if sn.opts.Snapshots == nil {
		return
	}
	if err := sn.opts.Snapshots.Expire(sn.work.life, sn.opts.now()); err != nil && sn.work.life.Err() == nil {
		sn.opts.Log.Error("expired snapshots were not removed; they will be, later", "err", err)
	}
}
