package enduser

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/store"
)

const (
	// DeletionLease is how long a deletion may make no progress before the sweep continues it.
	DeletionLease = 2 * time.Minute
	// afterDeletion is how long a forgotten user's record remains, without the names. A request that was admitted
	// before the deletion may still create something, which the sweep deletes then.
	afterDeletion = 10 * time.Minute
)

// A deletion is the state of a request to forget a user. The record of the user has it, so that a crash does not stop
// it.
type deletion struct {
	By       berth.KeyID      `json:"by,omitempty"`       // the key of the request
	Objects  map[string]int64 `json:"objects,omitempty"`  // deleted so far, by kind
	Recorded bool             `json:"recorded,omitempty"` // everything is deleted and in the audit record
	Closing  bool             `json:"closing,omitempty"`  // the record is being deleted, too
}

// gone reports whether the user has been forgotten.
func (r *record) gone() bool { return r.Deletion != nil && r.Deletion.Recorded }

// Forget deletes what belongs to a user of a project. Requests for the user are refused until then. After an error or
// a crash, the next call or the sweep continues. The audit record has an entry of the deletion, which the returned
// checkpoint signs; each container has entries of its own.
func (s *Service) Forget(ctx context.Context, c berth.Caller, id berth.EndUserID) (*berth.EndUserDeletion, error) {
	if s.Held != nil {
		if err := s.Held(ctx, c.Project, id); err != nil {
			return nil, err
		}
	}
	r, err := s.change(ctx, c.Project, id, func(r *record) (time.Time, error) {
		if r.gone() {
			return time.Time{}, store.ErrNotFound
		}
		if r.Deletion == nil {
			r.Forgotten, r.Deletion = true, &deletion{By: c.Key, Objects: map[string]int64{}}
		}
		return s.Clock.Now().Add(DeletionLease), nil
	})
	if err != nil {
		return nil, err
	}
	return s.finish(ctx, c, r)
}

// finish completes the deletion of a user.
func (s *Service) finish(ctx context.Context, c berth.Caller, r *record) (*berth.EndUserDeletion, error) {
	c.Subject = nil
	r, err := s.drain(ctx, c, r)
	if err != nil {
		return nil, err
	}
	sum := int64(0)
	for _, n := range r.Deletion.Objects {
		sum += n
	}
	err = s.Audit.Commit(ctx, audit.Entry{Action: audit.EndUserForgotten, Project: c.Project, Key: r.Deletion.By,
		Person: c.Person, Object: string(r.ID), Count: sum})
	if err != nil {
		return nil, fmt.Errorf("record the deletion of end user %s: %w", r.ID, err)
	}
	done := &berth.EndUserDeletion{ID: r.ID, Object: "end_user.deleted", Deleted: true, Objects: r.Deletion.Objects,
		Checkpoint: s.Audit.Checkpoint()}
	if done.Objects == nil {
		done.Objects = map[string]int64{}
	}
	_, err = s.change(ctx, c.Project, r.ID, func(r *record) (time.Time, error) {
		r.User, r.Chat, r.Limits, r.Deletion.Recorded = "", "", berth.EndUserLimits{}, true
		return s.Clock.Now().Add(afterDeletion), nil
	})
	if err != nil && berth.ErrorCode(err) != berth.CodeNotFound {
		return nil, fmt.Errorf("end the deletion of end user %s: %w", done.ID, err)
	}
	return done, nil
}

// drain deletes the objects of a user, in pages. It returns the record with their number.
func (s *Service) drain(ctx context.Context, c berth.Caller, r *record) (*record, error) {
	for {
		links, _, err := s.Objects.ListObjects(ctx, c.Project, store.KindEndUserLink, string(r.ID),
			store.Page{Limit: 100, Ascending: true})
		if err != nil {
			return nil, fmt.Errorf("list what belongs to end user %s: %w", r.ID, err)
		}
		deleted := map[string]int64{}
		for _, link := range links {
			if err = s.remove(ctx, c, link, deleted); err != nil {
				break
			}
		}
		if err == nil && len(links) == 0 { // containers that expired left snapshots, and clients asked for others
			err = s.removeSnapshots(ctx, c, r.ID, deleted)
		}
		if len(deleted) > 0 || err != nil {
			counted, changeErr := s.count(ctx, c.Project, r.ID, deleted)
			if err = errors.Join(err, changeErr); err != nil {
				return nil, err
			}
			r = counted
		}
		if len(links) == 0 {
			return r, nil
		}
	}
}

// count adds to the number of objects that were deleted.
func (s *Service) count(ctx context.Context, p berth.ProjectID, id berth.EndUserID,
	deleted map[string]int64) (*record, error) {
	return s.change(context.WithoutCancel(ctx), p, id, func(r *record) (time.Time, error) {
		if r.Deletion == nil {
			return time.Time{}, store.ErrNotFound
		}
		sums := maps.Clone(r.Deletion.Objects)
		if sums == nil {
			sums = map[string]int64{}
		}
		for kind, n := range deleted {
			sums[kind] += n
		}
		r.Deletion.Objects = sums
		return s.Clock.Now().Add(DeletionLease), nil
	})
}

// remove deletes an object that belongs to a user, then its link.
func (s *Service) remove(ctx context.Context, c berth.Caller, link *store.Object, deleted map[string]int64) error {
	prefix := s.prefix(link.ID)
	if prefix == "" {
		return fmt.Errorf("no part of this server deletes %s", link.ID)
	}
	err := s.Removers[prefix](ctx, c, strings.TrimPrefix(link.ID, chosenByClient(prefix)))
	switch {
	case err == nil:
		deleted[kindOf(prefix)]++
	case !isGone(err):
		return fmt.Errorf("delete %s: %w", link.ID, err)
	}
	if err := s.Objects.DeleteObject(ctx, c.Project, link.ObjectKey); err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("delete the link of %s: %w", link.ID, err)
	}
	return nil
}

func isGone(err error) bool {
	return errors.Is(err, store.ErrNotFound) || berth.ErrorCode(err) == berth.CodeNotFound
}

// Prefixes of links.
const (
	// PrefixTrace precedes the id of a trace. Clients choose these ids, so one may look like the id of another object.
	PrefixTrace      = "trace:"
	PrefixCompletion = "chatcmpl"
)

// chosenByClient returns what precedes an id in the name of its link.
func chosenByClient(prefix string) string {
	if prefix == PrefixTrace {
		return prefix
	}
	return ""
}

// kindOf returns the name of the objects whose links have a prefix.
func kindOf(prefix string) string {
	return map[string]string{berth.PrefixContainer: "container", berth.PrefixResponse: "response",
		berth.PrefixFile: "file", berth.PrefixConversation: "conversation", berth.PrefixSnapshot: "snapshot",
		PrefixTrace: "trace", PrefixCompletion: "chat.completion"}[prefix]
}

// removeSnapshots deletes the snapshots of the containers of a user.
func (s *Service) removeSnapshots(ctx context.Context, c berth.Caller, id berth.EndUserID,
	deleted map[string]int64) error {
	if s.Snapshots == nil {
		return nil
	}
	var theirs []string
	for page := (store.Page{Limit: 100, Ascending: true}); ; {
		list, more, err := s.Snapshots(ctx, c.Project, page)
		if err != nil {
			return fmt.Errorf("list snapshots: %w", err)
		}
		for _, one := range list {
			if one.EndUser == id {
				theirs = append(theirs, string(one.ID))
			}
			page.After = string(one.ID)
		}
		if !more || len(list) == 0 {
			break
		}
	}
	for _, one := range theirs {
		if err := s.Removers[berth.PrefixSnapshot](ctx, c, one); err == nil {
			deleted["snapshot"]++
		} else if !isGone(err) {
			return fmt.Errorf("delete %s: %w", one, err)
		}
	}
	return nil
}

// Sweep continues the deletions of users of all projects that have made no progress by now, and deletes the records
// of forgotten users. One that fails does not stop the others.
func (s *Service) Sweep(ctx context.Context, now time.Time) error {
	due, err := s.Objects.ExpiredObjects(ctx, store.KindEndUser, now, 1000)
	if err != nil {
		return fmt.Errorf("list deletions of end users: %w", err)
	}
	var failed error
	for _, ref := range due {
		if err := s.sweepOne(ctx, ref); err != nil && !isGone(err) {
			failed = errors.Join(failed, fmt.Errorf("end user %s of project %s: %w", ref.ID, ref.Project, err))
		}
	}
	return failed
}

func (s *Service) sweepOne(ctx context.Context, ref store.ObjectRef) error {
	r, err := s.change(ctx, ref.Project, berth.EndUserID(ref.ID), func(r *record) (time.Time, error) {
		switch {
		case r.Deletion == nil: // the user has returned
			return time.Time{}, nil
		case r.Deletion.Recorded:
			r.Deletion.Closing = true // no request brings the user back from here
		}
		return s.Clock.Now().Add(DeletionLease), nil
	})
	if err != nil || r.Deletion == nil {
		return err
	}
	c := berth.Caller{Project: ref.Project, Key: r.Deletion.By}
	if !r.Deletion.Closing {
		_, err := s.finish(ctx, c, r)
		return err
	}
	if _, err := s.drain(ctx, c, r); err != nil {
		return err
	}
	return s.Objects.DeleteObject(ctx, ref.Project, ref.ObjectKey)
}
