package schedules

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

func (k key) object() store.ObjectKey {
	return store.ObjectKey{Kind: store.KindSchedule, ID: string(k.id)}
}

func (k key) run(id berth.ScheduleRunID) store.ObjectKey {
	return store.ObjectKey{Kind: store.KindScheduleRun, Parent: string(k.id), ID: string(id)}
}

// runID returns the id of a schedule's run at a time, in Unix seconds. It is the same on each server.
func (k key) runID(at int64) berth.ScheduleRunID {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d", k.project, k.id, at))
	return berth.ScheduleRunID(fmt.Sprintf("%s%012x%s", berth.PrefixScheduleRun, at*1000,
		hex.EncodeToString(sum[:18])))
}

// decode returns the body of an object.
func decode[T any](o *store.Object) (*T, error) {
	r := new(T)
	if err := json.Unmarshal(o.Body, r); err != nil {
		return nil, fmt.Errorf("decode %s: %w", o.Kind, err)
	}
	return r, nil
}

// get returns the record of a schedule.
func (s *Service) get(ctx context.Context, k key) (*record, error) {
	o, err := s.opts.Objects.GetObject(ctx, k.project, k.object())
	if err != nil {
		return nil, clientError(k.id, err)
	}
	return decode[record](o)
}

// update changes the record of a schedule. The store lists it when it is due.
func (s *Service) update(ctx context.Context, k key, change func(*record) error) (*record, error) {
	var r *record
	_, err := s.opts.Objects.UpdateObject(ctx, k.project, k.object(), func(o *store.Object) (err error) {
		if r, err = decode[record](o); err != nil {
			return err
		}
		if err = change(r); err != nil {
			return err
		}
		r.NextRuns = nil
		o.ExpiresAt = r.NextAt
		o.Body, err = json.Marshal(r)
		return err
	})
	if e, ok := errors.AsType[*berth.Error](err); ok {
		return nil, e
	}
	return r, clientError(k.id, err)
}

// addRun saves a run. It is expired, which lists it, until it has ended.
func (s *Service) addRun(ctx context.Context, k key, r *runRecord) error {
	body, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode run: %w", err)
	}
	o := &store.Object{ObjectKey: k.run(r.ID), CreatedAt: s.opts.Clock.Now().Unix(), Body: body}
	if r.EndedAt == nil {
		o.ExpiresAt = r.ScheduledAt
	}
	return s.opts.Objects.CreateObjects(ctx, k.project, o)
}

// getRun returns the record of a run, or store.ErrNotFound.
func (s *Service) getRun(ctx context.Context, k key, id berth.ScheduleRunID) (*runRecord, error) {
	o, err := s.opts.Objects.GetObject(ctx, k.project, k.run(id))
	if err != nil {
		return nil, fmt.Errorf("read run: %w", err)
	}
	return decode[runRecord](o)
}

// updateRun changes the record of a run. It returns store.ErrNotFound if there is none.
func (s *Service) updateRun(ctx context.Context, k key, id berth.ScheduleRunID, change func(*runRecord)) (*runRecord,
	error) {
	var r *runRecord
	_, err := s.opts.Objects.UpdateObject(ctx, k.project, k.run(id), func(o *store.Object) (err error) {
		if r, err = decode[runRecord](o); err != nil {
			return err
		}
		change(r)
		if r.EndedAt != nil {
			o.ExpiresAt, r.Body = 0, nil
		}
		o.Body, err = json.Marshal(r)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("update run: %w", err)
	}
	return r, nil
}

// prune deletes the oldest runs of a schedule that have ended.
func (s *Service) prune(ctx context.Context, k key) error {
	page := store.Page{Limit: maxKept}
	newest, more, err := s.opts.Objects.ListObjects(ctx, k.project, store.KindScheduleRun, string(k.id), page)
	if err != nil || !more {
		return wrapped("list runs", err)
	}
	page.After = newest[len(newest)-1].ID
	older, _, err := s.opts.Objects.ListObjects(ctx, k.project, store.KindScheduleRun, string(k.id), page)
	if err != nil {
		return wrapped("list runs", err)
	}
	for _, o := range older {
		if o.ExpiresAt != 0 {
			continue
		}
		if err := s.opts.Objects.DeleteObject(ctx, k.project, o.ObjectKey); err != nil &&
			!errors.Is(err, store.ErrNotFound) {
			return wrapped("delete run", err)
		}
	}
	return nil
}

// wrapped names the operation of an error; nil stays nil.
func wrapped(operation string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", operation, err)
}
