package retention

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/store"
)

// A Source finds and deletes the objects of one kind.
type Source struct {
	// Due returns the ids of up to limit objects of a project that were created before a moment and may end, the
	// oldest first. It begins after the object of the id after, which exists, or with the oldest one. next is the id
	// from which to continue; it is empty if there are no more.
	Due func(ctx context.Context, p berth.ProjectID, before time.Time, after string, limit int) (ids []string,
		next string, err error)
	// Remove deletes an object with all that belongs to it. A missing one is berth.CodeNotFound or
	// store.ErrNotFound, one that is held IsHeld, and one in use berth.CodeConflict.
	Remove func(ctx context.Context, c berth.Caller, id string) error
}

// batchSize is how many objects end with one record.
const batchSize = 100

// A record is the stored state of a batch. Until it is recorded, it expires, so that Sweep finds it again.
type record struct {
	berth.RetentionRecord
	Server string `json:"server,omitempty"` // that deletes
	Stage  stage  `json:"stage"`
}

// A stage is how far a batch is.
type stage string

const (
	deleting stage = "deleting" // some of the objects may exist
	deleted  stage = "deleted"  // none exists; the audit record may have the entry
	recorded stage = "recorded"
)

func recordKey(id string) store.ObjectKey {
	return store.ObjectKey{Kind: store.KindRetentionRecord, ID: id}
}

func isGone(err error) bool {
	return errors.Is(err, store.ErrNotFound) || berth.ErrorCode(err) == berth.CodeNotFound
}

// Sweep ends the objects of all projects that are too old. It first completes the batches that a crash or an error
// interrupted. A project that fails does not stop the others. One server of a cluster sweeps at a time.
//
// A batch is written down before its first deletion, and is done when the audit record has its entry. So after a crash
// at any moment the next Sweep deletes the rest, and makes the entry unless the audit record has it.
func (s *Service) Sweep(ctx context.Context) error {
	failed := s.resume(ctx)
	projects, err := s.Projects(ctx)
	if err != nil {
		return errors.Join(failed, fmt.Errorf("list projects: %w", err))
	}
	for _, p := range projects {
		if err := s.sweepProject(ctx, p); err != nil {
			failed = errors.Join(failed, fmt.Errorf("project %s: %w", p, err))
		}
		if ctx.Err() != nil {
			return errors.Join(failed, ctx.Err())
		}
	}
	return failed
}

// resume completes the batches that were interrupted, and deletes records that have reached their own age.
func (s *Service) resume(ctx context.Context) error {
	refs, err := s.Objects.ExpiredObjects(ctx, store.KindRetentionRecord, s.Clock.Now(), 1000)
	if err != nil {
		return fmt.Errorf("list interrupted batches: %w", err)
	}
	var failed error
	for _, ref := range refs {
		o, err := s.Objects.GetObject(ctx, ref.Project, ref.ObjectKey)
		if err == nil {
			err = s.resumeOne(ctx, ref.Project, o)
		}
		if err != nil && !isGone(err) {
			failed = errors.Join(failed, fmt.Errorf("batch %s of project %s: %w", ref.ID, ref.Project, err))
		}
	}
	return failed
}

func (s *Service) resumeOne(ctx context.Context, p berth.ProjectID, o *store.Object) error {
	r := &record{}
	if err := json.Unmarshal(o.Body, r); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	if r.Stage == recorded {
		return s.Objects.DeleteObject(ctx, p, o.ObjectKey)
	}
	return s.finish(ctx, r, true)
}

// sweepProject ends the objects of a project that are too old.
func (s *Service) sweepProject(ctx context.Context, p berth.ProjectID) error {
	policy, err := s.Get(ctx, p)
	if err != nil {
		return err
	}
	var failed error
	for _, kind := range berth.RetainedKinds {
		life, limited := policy.ExpireAfter[kind]
		if _, known := s.Sources[kind]; !limited || !known {
			continue
		}
		r := berth.RetentionRecord{Object: "retention.record", ProjectID: p, Kind: kind, ExpireAfter: life,
			Source: "server"}
		if own, set := policy.Own.ExpireAfter[kind]; set && own == life {
			r.Source = "project"
		}
		if err := s.sweepKind(ctx, r); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", kind, err))
		}
	}
	return failed
}

// sweepKind ends the objects of one kind, in batches.
func (s *Service) sweepKind(ctx context.Context, r berth.RetentionRecord) error {
	source := s.Sources[r.Kind]
	before := s.Clock.Now().Add(-time.Duration(r.ExpireAfter) * time.Second)
	for after := ""; ; {
		ids, next, err := source.Due(ctx, r.ProjectID, before, after, batchSize)
		if after != "" && isGone(err) {
			return nil // a client deleted that object: the next sweep continues
		}
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
		ended, err := s.end(ctx, r, before, ids)
		if err != nil {
			return err
		}
		if next == "" || ctx.Err() != nil {
			return ctx.Err()
		}
		// The next page begins after the last object that exists: one that is held, in use, or not due. If there is
		// none, all of this page ended, and the page after the same object has others.
		for _, id := range append(ids, next) {
			if !slices.Contains(ended, id) {
				after = id
			}
		}
	}
}

// end ends those of some objects that are not held, as one batch, and returns the ids of those that ended.
func (s *Service) end(ctx context.Context, r berth.RetentionRecord, before time.Time, ids []string) ([]string, error) {
	b := &record{RetentionRecord: r, Server: s.Server, Stage: deleting}
	b.ID, b.Before = berth.NewID(berth.PrefixRetentionRecord), before.Unix()
	for _, id := range ids {
		switch err := s.Holds.Check(ctx, r.ProjectID, strings.Split(id, "/")...); {
		case err == nil:
			b.IDs = append(b.IDs, id)
		case !IsHeld(err):
			return nil, err
		}
	}
	if len(b.IDs) == 0 {
		return nil, nil
	}
	slices.Sort(b.IDs)
	if err := s.begin(ctx, b); err != nil {
		return nil, err
	}
	err := s.finish(ctx, b, false)
	return b.IDs, err
}

// begin stores the record of a batch before its deletion.
func (s *Service) begin(ctx context.Context, r *record) error {
	r.CreatedAt = s.Clock.Now().Unix()
	body, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode batch: %w", err)
	}
	// It is due from now on: whoever finds it has to finish it.
	err = s.Objects.CreateObjects(ctx, r.ProjectID, &store.Object{ObjectKey: recordKey(r.ID), CreatedAt: r.CreatedAt,
		ExpiresAt: r.CreatedAt, Body: body})
	if err != nil {
		return fmt.Errorf("store batch: %w", err)
	}
	return nil
}

// save stores a later stage of a batch.
func (s *Service) save(ctx context.Context, r *record) error {
	body, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode batch: %w", err)
	}
	_, err = s.Objects.UpdateObject(ctx, r.ProjectID, recordKey(r.ID), func(o *store.Object) error {
		o.Body = body
		if r.Stage == recorded {
			o.ExpiresAt = 0
			if life := s.configured(r.ProjectID).ExpireAfter[berth.RetainedAudit]; life > 0 {
				o.ExpiresAt = o.CreatedAt + int64(life/time.Second)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("store batch: %w", err)
	}
	return nil
}

// finish deletes the objects of a batch and records them. If again is true, an earlier call may have done a part.
func (s *Service) finish(ctx context.Context, r *record, again bool) error {
	if r.Stage == deleting {
		if err := s.remove(ctx, r, again); err != nil {
			return err
		}
		if len(r.IDs) == 0 { // others deleted all, or hold them now
			return s.Objects.DeleteObject(ctx, r.ProjectID, recordKey(r.ID))
		}
		r.Stage, r.Count, r.Digest = deleted, int64(len(r.IDs)), Digest(r.IDs)
		if err := s.save(ctx, r); err != nil {
			return err
		}
	}
	if err := s.commit(ctx, r, again); err != nil {
		return err
	}
	done := s.Clock.Now().Unix()
	r.Stage, r.Checkpoint, r.CompletedAt = recorded, s.Audit.Checkpoint(), &done
	return s.save(ctx, r)
}

// remove deletes the objects of a batch. It leaves the ids of those that the batch has ended.
func (s *Service) remove(ctx context.Context, r *record, again bool) error {
	source, known := s.Sources[r.Kind]
	if !known {
		return fmt.Errorf("no part of this server deletes %s", r.Kind)
	}
	var ended []string
	for _, id := range r.IDs {
		err := source.Remove(ctx, berth.Caller{Project: r.ProjectID}, id)
		switch {
		case err == nil:
			ended = append(ended, id)
		case isGone(err):
			if again { // by the call that was interrupted
				ended = append(ended, id)
			}
		case IsHeld(err), berth.ErrorCode(err) == berth.CodeConflict: // the next sweep tries again
		default:
			return fmt.Errorf("delete %s: %w", id, err)
		}
	}
	r.IDs = ended
	return nil
}

// commit adds the entry of a batch to the audit record, unless an interrupted call has done it.
func (s *Service) commit(ctx context.Context, r *record, again bool) error {
	if again && r.Server == s.Server {
		found, _, err := s.Audit.Latest(ctx, audit.Query{Project: r.ProjectID, Action: audit.RetentionEnded,
			Object: r.ID, From: time.Unix(r.CreatedAt, 0).Add(-time.Hour), Before: 1<<63 - 1, Limit: 1})
		if err != nil {
			return fmt.Errorf("search the audit record: %w", err)
		}
		if len(found) > 0 {
			return nil
		}
	}
	err := s.Audit.Commit(ctx, audit.Entry{Action: audit.RetentionEnded, Project: r.ProjectID, Object: r.ID,
		Name: string(r.Kind), Count: r.Count, Digest: r.Digest, Recovered: again,
		Reason: fmt.Sprintf("%s after %d seconds", r.Source, r.ExpireAfter)})
	if err != nil {
		return fmt.Errorf("record batch: %w", err)
	}
	return nil
}

// Digest returns the digest of ids: SHA-256 of the sorted ids, each with a line feed after it.
func Digest(ids []string) string {
	sum := sha256.New()
	for _, id := range slices.Sorted(slices.Values(ids)) {
		sum.Write([]byte(id + "\n"))
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// Record returns the record of a batch.
func (s *Service) Record(ctx context.Context, p berth.ProjectID, id string) (*berth.RetentionRecord, error) {
	o, err := s.Objects.GetObject(ctx, p, recordKey(id))
	if errors.Is(err, store.ErrNotFound) {
		return nil, berth.NotFound("Retention record", rule.Clip(id))
	}
	if err != nil {
		return nil, fmt.Errorf("read retention record: %w", err)
	}
	return decodeRecord(o)
}

// Records returns a page of the records of a project, without ids, and whether there are more.
func (s *Service) Records(ctx context.Context, p berth.ProjectID, page store.Page) ([]*berth.RetentionRecord, bool,
	error) {
	objects, more, err := s.Objects.ListObjects(ctx, p, store.KindRetentionRecord, "", page)
	if err != nil {
		return nil, false, fmt.Errorf("list retention records: %w", err)
	}
	list := make([]*berth.RetentionRecord, len(objects))
	for i, o := range objects {
		if list[i], err = decodeRecord(o); err != nil {
			return nil, false, err
		}
		list[i].IDs = nil
	}
	return list, more, nil
}

func decodeRecord(o *store.Object) (*berth.RetentionRecord, error) {
	r := &berth.RetentionRecord{}
	if err := json.Unmarshal(o.Body, r); err != nil {
		return nil, fmt.Errorf("decode retention record %s: %w", o.ID, err)
	}
	return r, nil
}
