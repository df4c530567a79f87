package retention

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/store"
)

// maxHolds bounds the holds of a project: each deletion reads them.
const maxHolds = 1000

// Holds are the legal holds of projects. It is safe for concurrent use.
//
// Holds are read from the store for each deletion, so that a hold applies on all servers of a cluster from its creation
// on. A deletion that has begun before may complete.
type Holds struct {
	Objects store.Objects // not a Guard: releases delete holds
	Audit   HoldAuditor   // set before the first Create
	Clock   clock.Clock
}

// A HoldAuditor records actions; *audit.Log is one.
type HoldAuditor interface {
	Commit(ctx context.Context, entries ...audit.Entry) error
}

func holdKey(id berth.HoldID) store.ObjectKey {
	return store.ObjectKey{Kind: store.KindHold, ID: string(id)}
}

// wireHeld is the code of the error when a client deletes a held object.
const wireHeld = "legal_hold"

// IsHeld reports whether an error means that a hold stops a deletion.
func IsHeld(err error) bool {
	e, ok := errors.AsType[*berth.Error](err)
	return ok && e.Wire == wireHeld
}

func held(what string, h *berth.Hold) error {
	return &berth.Error{Code: berth.CodeConflict, Wire: wireHeld, RetryAfter: -1, Message: fmt.Sprintf(
		"%s cannot be deleted: the legal hold '%s' stops it until somebody releases the hold.", what, h.ID)}
}

// Create makes a hold in a project, for a caller who may be of the organization. h has the objects and the reason.
func (s *Holds) Create(ctx context.Context, p berth.ProjectID, c berth.Caller, h berth.Hold) (*berth.Hold, error) {
	all, err := s.list(ctx, p)
	if err != nil {
		return nil, err
	}
	if len(all) >= maxHolds {
		return nil, berth.Errorf(berth.CodeConflict, "Project '%s' has %d holds. Release some first.", p, maxHolds)
	}
	h.ID, h.Object, h.ProjectID = berth.HoldID(berth.NewID(berth.PrefixHold)), "hold", p
	h.CreatedAt, h.KeyID, h.Person, h.By = s.Clock.Now().Unix(), c.Key, c.Person, levelOf(c)
	if h.EndUser != "" && h.ObjectID != "" {
		return nil, berth.Invalid("object_id", "A hold has an 'end_user' or an 'object_id', not both.")
	}
	body, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("encode hold: %w", err)
	}
	if err := s.Objects.CreateObjects(ctx, p, &store.Object{ObjectKey: holdKey(h.ID), CreatedAt: h.CreatedAt,
		Body: body}); err != nil {
		return nil, fmt.Errorf("store hold: %w", err)
	}
	if err := s.record(ctx, audit.HoldCreated, c, &h); err != nil {
		return nil, fmt.Errorf("record hold %s, which applies: %w", h.ID, err)
	}
	return &h, nil
}

func levelOf(c berth.Caller) berth.HoldLevel {
	if c.Admin() {
		return berth.HeldByOrganization
	}
	return berth.HeldByProject
}

func (s *Holds) record(ctx context.Context, action audit.Action, c berth.Caller, h *berth.Hold) error {
	what := string(h.ProjectID)
	if h.EndUser != "" {
		what = string(h.EndUser)
	} else if h.ObjectID != "" {
		what = h.ObjectID
	}
	return s.Audit.Commit(ctx, audit.Entry{Action: action, Project: h.ProjectID, Key: c.Key, Person: c.Person,
		Object: string(h.ID), Name: what, Reason: h.Reason})
}

// Release ends a hold. Only the organization releases its holds. The entry of the audit record comes first: a crash
// leaves a hold that was to be released, never one that ended without an entry.
func (s *Holds) Release(ctx context.Context, p berth.ProjectID, c berth.Caller, id berth.HoldID) error {
	h, err := s.Get(ctx, p, id)
	if err != nil {
		return err
	}
	if h.By == berth.HeldByOrganization && !c.Admin() {
		return berth.Errorf(berth.CodeForbidden,
			"The hold '%s' was made by the organization: only an admin key can release it.", h.ID)
	}
	if err := s.record(ctx, audit.HoldReleased, c, h); err != nil {
		return fmt.Errorf("record the release of hold %s: %w", h.ID, err)
	}
	return notFound(id, s.Objects.DeleteObject(ctx, p, holdKey(id)))
}

func notFound(id berth.HoldID, err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return berth.NotFound("Hold", rule.Clip(string(id)))
	}
	return err
}

// Get returns a hold of a project.
func (s *Holds) Get(ctx context.Context, p berth.ProjectID, id berth.HoldID) (*berth.Hold, error) {
	o, err := s.Objects.GetObject(ctx, p, holdKey(id))
	if err != nil {
		return nil, notFound(id, err)
	}
	return decodeHold(o)
}

func decodeHold(o *store.Object) (*berth.Hold, error) {
	h := &berth.Hold{}
	if err := json.Unmarshal(o.Body, h); err != nil {
		return nil, fmt.Errorf("decode hold %s: %w", o.ID, err)
	}
	return h, nil
}

// List returns a page of the holds of a project, and whether there are more.
func (s *Holds) List(ctx context.Context, p berth.ProjectID, page store.Page) ([]*berth.Hold, bool, error) {
	objects, more, err := s.Objects.ListObjects(ctx, p, store.KindHold, "", page)
	if err != nil {
		return nil, false, fmt.Errorf("list holds: %w", err)
	}
	list := make([]*berth.Hold, len(objects))
	for i, o := range objects {
		if list[i], err = decodeHold(o); err != nil {
			return nil, false, err
		}
	}
	return list, more, nil
}

// list returns all holds of a project.
func (s *Holds) list(ctx context.Context, p berth.ProjectID) ([]*berth.Hold, error) {
	list, _, err := s.List(ctx, p, store.Page{Limit: maxHolds, Ascending: true})
	return list, err
}

// Any returns an error for the client if a project has a hold, whatever it holds: then the project cannot be archived.
func (s *Holds) Any(ctx context.Context, p berth.ProjectID) error {
	list, err := s.list(ctx, p)
	if err != nil || len(list) == 0 {
		return err
	}
	return held(fmt.Sprintf("Project '%s'", p), list[0])
}

// EndUser returns an error for the client if anything of an end user is held.
func (s *Holds) EndUser(ctx context.Context, p berth.ProjectID, user berth.EndUserID) error {
	list, err := s.list(ctx, p)
	if err != nil {
		return err
	}
	for _, h := range list {
		of := h.ObjectID == "" && (h.EndUser == "" || h.EndUser == user)
		if h.ObjectID != "" {
			if of, err = s.owns(ctx, p, user, h.ObjectID); err != nil {
				return err
			}
		}
		if of {
			return held(fmt.Sprintf("What belongs to end user '%s'", user), h)
		}
	}
	return nil
}

// Check returns an error for the client if one of the ids is held: of an object, of what it is a part of, and of what
// it was made from.
func (s *Holds) Check(ctx context.Context, p berth.ProjectID, ids ...string) error {
	list, err := s.list(ctx, p)
	if err != nil {
		return err
	}
	for _, h := range list {
		for _, id := range ids {
			hit := id == h.ObjectID || h.EndUser == "" && h.ObjectID == ""
			if h.EndUser != "" && id != "" {
				if hit, err = s.owns(ctx, p, h.EndUser, id); err != nil {
					return err
				}
				hit = hit || id == string(h.EndUser)
			}
			if hit && id != "" {
				return held("'"+rule.Clip(ids[0])+"'", h)
			}
		}
	}
	return nil
}

// owns reports whether an object belongs to an end user. Links of traces have a prefix.
func (s *Holds) owns(ctx context.Context, p berth.ProjectID, user berth.EndUserID, id string) (bool, error) {
	for _, name := range []string{id, "trace:" + id} {
		_, err := s.Objects.GetObject(ctx, p, store.EndUserLink(user, name, 0).ObjectKey)
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, store.ErrNotFound) {
			return false, fmt.Errorf("read the end user of %s: %w", id, err)
		}
	}
	return false, nil
}
